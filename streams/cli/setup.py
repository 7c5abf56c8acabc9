"""`streams setup`: tables, relay, topics, schemas and connector, for any stack. Calls `streams.stack.setup`."""

from __future__ import annotations


def setup() -> None:
    """Make everything between the servers and the first save; safe to repeat."""
    from rich.console import Console

    from streams.stack.setup import run_setup

    run_setup(Console(stderr=True))
