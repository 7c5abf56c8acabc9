"""`streams exercise check 1`: whether an exercise of docs/exercises is solved. Calls `streams.lab.exercise`."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Check your solutions of the exercises in docs/exercises.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `check` a word of its own, though it is the only one."""


@app.command()
def check(number: Annotated[int, typer.Argument(help="The exercise's number.", min=1, max=1)]) -> None:
    """Run your solution against the local stack and say what is missing; exit code 9 if something is."""
    from rich.console import Console

    from streams.config import settings
    from streams.lab.exercise import check_first
    from streams.lab.services import interruptible

    console = Console()
    try:
        with interruptible():
            check_first(settings(), console)
    except KeyboardInterrupt:
        console.print("Interrupted, and stopped.")
        raise typer.Exit(130) from None
    console.print(f"Exercise {number} is solved.")
