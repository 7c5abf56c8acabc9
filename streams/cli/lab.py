"""`streams lab chaos`: what the runtime promises, put to the proof on the real servers. Calls `streams.lab.chaos`."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli._numbers import finite

if TYPE_CHECKING:
    from rich.console import Console

    from streams.lab.chaos import Course, Numbers, Plan

app = typer.Typer(help="Experiments on the real servers, and what they should come to.", no_args_is_help=True)

PLOT_COLUMNS = 60
_BARS = " ▁▂▃▄▅▆▇█"


class Guard(StrEnum):
    """Whether the sink asks and notes what was done."""

    ON = "on"
    OFF = "off"


@app.callback()
def _group() -> None:
    """Keeps `chaos` a word of its own, though it is the only one."""


@app.command()
def chaos(
    documents: Annotated[int, typer.Option(help="Documents to save, 200 a second; two of them fail.", min=10)] = 2_000,
    workers: Annotated[int, typer.Option(help="Workers.", min=1, max=64)] = 4,
    kill_every: Annotated[
        float, typer.Option(help="Seconds from one worker's death to the next.", min=0.1, callback=finite)
    ] = 0.3,
    guard: Annotated[Guard, typer.Option(help="off: the control, which must apply some documents twice.")] = Guard.ON,
    commit_delay: Annotated[
        float, typer.Option(help="Seconds between a write and its commit.", min=0, max=5, callback=finite)
    ] = 0.0,
    servers: Annotated[bool, typer.Option("--servers", help="Kill broker, Connect and Postgres too.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers to this file.")] = None,
) -> None:
    """Kill workers with SIGKILL while they read, then count in Postgres what was lost and what was done twice.

    No worker is killed while none gets anything done, as on a machine that is too slow to bring one back in time.
    Exit code 1 if, with the guard on, anything was. Removes everything that it made.
    """
    from rich.console import Console

    from streams.config import settings
    from streams.errors import ConfigError
    from streams.lab.chaos import Plan, run
    from streams.lab.chaos_worker import Conditions
    from streams.lab.services import interruptible

    if json_file and not json_file.absolute().parent.is_dir():
        raise ConfigError(f"--json: there is no folder {json_file.absolute().parent}")
    plan = Plan(documents, workers, Conditions(guard is Guard.ON, commit_delay), servers, kill_every)
    console = Console(soft_wrap=True, highlight=False)
    try:
        with interruptible():
            numbers, course = run(settings(), plan, console)
    except KeyboardInterrupt:
        console.print("Interrupted, and stopped.")
        raise typer.Exit(130) from None
    _report(console, plan, numbers, course, json_file)
    if plan.conditions.guard and not numbers.is_exact(plan):
        raise typer.Exit(1)


def _report(console: Console, plan: Plan, numbers: Numbers, course: Course, json_file: Path | None) -> None:
    import json
    from dataclasses import asdict

    if json_file:
        json_file.write_text(json.dumps(asdict(numbers)) + "\n", "utf-8")
    console.print(f"\n{plan.documents:,} documents, {numbers.kills} kills, {numbers.seconds:.1f} s")
    console.print(f"done, second by second  {plot(course)}")
    _print_table(console, plan, numbers)


def _print_table(console: Console, plan: Plan, numbers: Numbers) -> None:
    from rich.table import Table

    from streams.lab.chaos import POISON_DOCUMENTS

    good = plan.documents - POISON_DOCUMENTS
    more = None if plan.conditions.guard else "more"  # the control that must fail
    expected = {
        "lost": 0,
        "doubled": more or 0,
        "rows": more or good,
        "counter": more or good,
        "dead": POISON_DOCUMENTS,
    }
    table = Table("", "FOUND", "EXPECTED", box=None)
    for name, wanted in expected.items():
        table.add_row(name, f"{getattr(numbers, name):,}", f"{wanted:,}" if isinstance(wanted, int) else wanted)
    console.print(table)


def plot(course: Course) -> str:
    """How many documents were done in each stretch of time, as bars."""
    if len(course.done) < 2:
        return ""
    columns = min(PLOT_COLUMNS, len(course.done) - 1)
    at = [round(column * (len(course.done) - 1) / columns) for column in range(columns + 1)]
    steps = [course.done[b] - course.done[a] for a, b in pairwise(at)]
    most = max(*steps, 1)
    return "".join(_BARS[-(-step * (len(_BARS) - 1) // most)] for step in steps)
