"""`streams logs PART`: print a part's log, or follow it. Reads what `streams.stack.process` had written."""

from __future__ import annotations

import time
from typing import Annotated

import typer

LINES_SHOWN = 200
_FOLLOW_SECONDS = 0.2


def logs(
    part: Annotated[
        str, typer.Argument(help="postgres, kafka, connect, registry; api or readers, if started with it.")
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing what is added.")] = False,
) -> None:
    """Print the end of a part's log."""
    from streams.config import settings
    from streams.errors import ConfigError
    from streams.stack.local import NAMES
    from streams.stack.process import LocalProcess

    path = LocalProcess(part, settings().home.resolve()).log_file
    parts = sorted({*NAMES, *(log.stem for log in path.parent.glob("*.log"))})
    if part not in parts:
        raise ConfigError(f"There is no part {part}: the parts are {', '.join(parts)}.")
    if not path.exists():
        raise ConfigError(f"{part} has no log in {path.parent}: it was never started there.")
    with path.open(encoding="utf-8", errors="replace") as log:
        typer.echo("".join(log.readlines()[-LINES_SHOWN:]), nl=False)
        while follow:
            typer.echo(log.read(), nl=False)
            time.sleep(_FOLLOW_SECONDS)
