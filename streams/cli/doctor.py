"""`streams doctor`: what is wrong with the stack, and the command that mends it. Calls `streams.ops.doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streams.ops.diagnosis import Check

UNHEALTHY_EXIT_CODE = 6
_SIGNS = {"ok": "ok     ", "fault": "FAULT  ", "unknown": "?      "}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check everything between a save and the log; exit code 6 unless all is well."""
    from streams.config import settings
    from streams.ops.diagnosis import commands
    from streams.ops.doctor import examine

    checks = examine(settings())
    healthy = all(check.state == "ok" for check in checks)
    if as_json:
        found = {"healthy": healthy, "commands": commands(checks), "checks": [asdict(check) for check in checks]}
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(checks, commands(checks))
    if not healthy:
        raise typer.Exit(UNHEALTHY_EXIT_CODE)


def _print(checks: list[Check], mending: list[str]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        typer.echo(
            f"{_SIGNS[check.state]}{check.name:<{width}}  {check.says}"
            + (f"  →  {check.command}" if check.command else "")
        )
    typer.echo("\nTo mend it, run: " + ", then ".join(mending) if mending else "\nAll is well.")
