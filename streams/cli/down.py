"""`streams down`: stop the local stack. Calls `streams.stack.local`."""

from __future__ import annotations

from typing import Annotated

import typer


def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="Also remove the stack's data and logs.")] = False,
) -> None:
    """Stop the local servers; only those that this stack started."""
    from streams.config import settings
    from streams.stack.local import down as stop

    stopped = stop(settings(), wipe)
    typer.echo(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.", err=True)
    if wipe:
        typer.echo(f"Removed the data in {settings().home}.", err=True)
