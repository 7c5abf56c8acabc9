"""`streams status`: what runs, where, with how much memory. Calls `streams.stack.local`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the parts of the local stack and their addresses."""
    from streams.config import settings
    from streams.stack.local import status as ask

    answer = ask(settings())
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        _print_table(answer)


def _print_table(answer: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("PART", "STATE", "PID", "PORT", "MEMORY", box=None)
    for part in answer["parts"]:
        memory = f"{part['memory_bytes'] / 1e6:.0f} MB" if part["pid"] else ""
        table.add_row(part["name"], part["state"], str(part["pid"] or ""), str(part["port"]), memory)
    console = Console()
    console.print(table)
    for name, address in answer.items():
        if name != "parts":
            console.print(f"{name:<18} {address}", highlight=False, soft_wrap=True)
