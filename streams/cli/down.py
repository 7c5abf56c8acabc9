"""`streams down`: stop the local stack. Calls `streams.stack.local`."""

from __future__ import annotations

from typing import Annotated

import typer


def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="Also remove the stack's data and logs.")] = False,
) -> None:
    """Stop the local servers; only those that this stack started."""
    from rich.console import Console

    from streams.config import settings
    from streams.stack.local import down as stop

    console = Console(stderr=True)
    stopped = stop(settings(), console, wipe)
    console.print(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.")
    if wipe:
        console.print(f"Removed the stack's data in {settings().home}.", soft_wrap=True)
