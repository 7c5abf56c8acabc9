"""`streams analytics`: totals, owners, hot keys and windows of all documents. Calls `streams.analytics.worker`."""

from __future__ import annotations

import logging
import signal
import sys
from typing import Annotated

import typer

_SELDOM_SECONDS = 10.0  # between two of the same line


def analytics(
    host: Annotated[str | None, typer.Option(help="Address to show it on; default STREAMS_ANALYTICS_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; default STREAMS_ANALYTICS_PORT.", min=1, max=65535)] = None,
) -> None:
    """Follow the log with Faust, and show the sums over all documents: / for people, /views as JSON, /metrics."""
    for number in (signal.SIGTERM, signal.SIGINT):  # also while all is being loaded, the end that is asked for is none
        signal.signal(number, lambda *_: sys.exit(0))
    from streams import logs
    from streams.analytics.worker import work
    from streams.cli._listen import listen
    from streams.config import settings

    handler = logging.StreamHandler()
    handler.addFilter(logs.Seldom(_SELDOM_SECONDS))
    logs.configure(for_people=sys.stderr.isatty(), handler=handler)
    for name in ("faust", "mode", "aiokafka", "streams.analytics.engine"):  # they tell of every step
        logging.getLogger(name).setLevel(logging.WARNING)
    config = settings()
    with listen("the analytics", host or config.analytics_host, port or config.analytics_port) as listener:
        work(config, listener)
