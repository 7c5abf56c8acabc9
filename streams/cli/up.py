"""`streams up`: start what does not run and set the stack up. Calls `streams.stack.local`."""

from __future__ import annotations


def up() -> None:
    """Start the local servers, or those that died, and set them up; safe to repeat."""
    from rich.console import Console

    from streams.config import settings
    from streams.stack.local import up as bring_up

    console = Console(stderr=True)
    started = bring_up(settings(), console)
    console.print(f"Started {', '.join(started)}." if started else "Everything runs already.")
