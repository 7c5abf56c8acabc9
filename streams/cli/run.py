"""`streams run`: run readers. Calls streams/ops/worker.py, or streams/ops/supervisor.py for several workers."""

from __future__ import annotations

from typing import Annotated

import typer


def run(
    readers: Annotated[list[str], typer.Argument(help="The readers, by group.", metavar="READER...")],
    workers: Annotated[int, typer.Option(min=1, max=256, help="Workers of each reader.")] = 1,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run readers until Ctrl-C or SIGTERM; a worker that dies is started again."""
    import logging
    import os

    from streams.config import settings
    from streams.readers.discovery import find

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    found = find(readers)
    if len(found) == workers == 1:
        from streams.ops.worker import work

        work(settings(), found[0], parent)
        return
    from streams.ops.supervisor import supervise

    raise typer.Exit(supervise([reader.group for reader in found], workers, os.getpid()))
