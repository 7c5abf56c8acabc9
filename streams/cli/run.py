"""`streams run`: run readers. Calls streams/ops/supervisor.py, which calls it again for each worker (`--parent`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from streams.config import Settings
    from streams.contract import Reader
    from streams.ops.metrics import Look
    from streams.ops.worker import Wiring

log = logging.getLogger(__name__)


def run(
    readers: Annotated[list[str], typer.Argument(help="The readers, by group.", metavar="READER...")],
    workers: Annotated[int, typer.Option(min=1, max=256, help="Workers of each reader.")] = 1,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve Prometheus metrics here; 0: not. Default STREAMS_METRICS_PORT."),
    ] = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
    report: Annotated[int | None, typer.Option(hidden=True)] = None,
    terminal: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run readers until Ctrl-C or SIGTERM; a worker that dies is started again.

    Workers that are told to end finish what runs, and commit it. One that cannot
    reach a server is started again after 0.5 s, then later each time, up to 30.

    \b
    Exit codes:
      0    after a signal
      130  after a second signal, which kills the workers
      2    a setting or an argument is wrong, or the broker has no KIP-848
      3    the port of the metrics cannot be had
      4    a reader is not there, is badly declared, or does not fit its tables
    """
    if parent is None:
        _supervise(readers, workers, metrics_port)
    else:
        from streams.ops.runnable import wired

        _work(*wired(readers[0]), parent, report, terminal)


def _supervise(readers: list[str], workers: int, metrics_port: int | None) -> None:
    from contextlib import nullcontext

    from streams import logs
    from streams.cli._view import Above, terminal_view
    from streams.config import settings
    from streams.ops.runnable import groups
    from streams.ops.supervisor import Supervisor

    view = terminal_view()
    above = view is not None and view.takes_errors
    logs.configure(for_people=above, handler=Above(view) if view and above else None)
    config = settings()
    port = config.metrics_port if metrics_port is None else metrics_port
    supervisor = Supervisor(groups(readers), workers, view)
    try:
        with _serving(config, port, supervisor.look) if port else nullcontext():
            code = supervisor.run()
    finally:
        if view is not None:
            view.close()
    raise typer.Exit(code)


def _serving(config: Settings, port: int, look: Look) -> AbstractContextManager[None]:
    from streams.ops.metrics import serving

    return serving(config, port, look)


def _work(reader: Reader, wiring: Wiring, parent: int, report: int | None, terminal: bool) -> None:
    """One worker. What ends it is logged, and told to the supervisor, which says it last."""
    import os
    import sys

    from streams import logs
    from streams.config import settings
    from streams.errors import StreamsError
    from streams.ops.reports import Reporter
    from streams.ops.worker import work

    logs.configure(for_people=terminal, reader=reader.group)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what a handler prints is for the log
    reporter = None if report is None else Reporter(report)
    try:
        work(settings(), reader, lambda: os.getppid() == parent, reporter, wiring)
    except StreamsError as error:
        log.error("%s", error)
        if reporter is not None:
            reporter.tell(str(error))
        raise typer.Exit(error.exit_code) from error
    except Exception:
        log.exception("the worker failed")
        raise typer.Exit(1) from None
