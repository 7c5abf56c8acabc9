"""`streams setup`: tables, relay, topics, schemas and connector, for any stack. Calls `streams.stack.setup`."""

from __future__ import annotations

from typing import Annotated

import typer


def setup(
    without_connect: Annotated[
        bool, typer.Option("--without-connect", help="Leave Debezium's parts out: `streams outbox relay` relays.")
    ] = False,
) -> None:
    """Make everything between the servers and the first save; safe to repeat."""
    from rich.console import Console

    from streams.stack.setup import run_setup

    run_setup(Console(stderr=True), with_connect=not without_connect)
