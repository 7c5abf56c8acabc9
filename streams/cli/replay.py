"""`streams replay plan | apply | undo`: move a group's offsets, and take it back. Calls `streams.ops.replay`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli._columns import columns
from streams.errors import ConfigError

if TYPE_CHECKING:
    from streams.core.replay import Move, Plan

app = typer.Typer(help="Move a group's offsets, or read a part of the log again beside it.", no_args_is_help=True)

_HEADS = ("TOPIC", "PARTITION", "NOW", "TO", "RECORDS", "OLDEST", "SKIPPED", "TAKEN")
_LEFT = frozenset({"TOPIC", "OLDEST"})

Group = Annotated[str, typer.Argument(help="The consumer group.")]
To = Annotated[
    str | None,
    typer.Option("--to", help="earliest, latest, 2d, 90m, 2026-11-27T00:00Z, offset:N or shift:-N."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Only this topic, or some of its partitions: t:0,1. Repeat for more."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command()
def plan(
    group: Group,
    to: To = None,
    topic: Topics = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the plan as CSV, as Kafka's own tool does.")] = None,
) -> None:
    """Show what moving the group would do; nothing is changed."""
    from streams.config import settings
    from streams.ops.replay import Replays

    if to is None:
        raise ConfigError("say where to with --to")
    replays = Replays(settings())
    made = replays.plan(group, to, topic or ())
    typer.echo(_shown(made))
    if out is not None:
        replays.write_plan(made, out)
        typer.echo(f"Written to {out}.")


@app.command()
def apply(
    group: Group,
    to: To = None,
    topic: Topics = None,
    plan: Annotated[Path | None, typer.Option("--plan", help="A plan that was written with --out.")] = None,
    yes: Yes = False,
) -> None:
    """Move the group, which must have no members; what was committed before is kept for undo."""
    from streams.config import settings
    from streams.ops.replay import Replays, undo_command

    if (to is None) == (plan is None) or (plan and topic):
        raise ConfigError("say where to with --to (and --topic), or give a --plan")
    replays = Replays(settings())
    made = replays.plan(group, to, topic or ()) if to is not None else replays.read_plan(group, plan or Path())
    typer.echo(_shown(made))
    agree(yes, "Move the group?")
    with _watching(group):
        replays.apply(made)
    typer.echo(f"Moved {len(made.moves)} partitions of {group}. To take it back: {undo_command(group)}")


@app.command()
def undo(group: Group, yes: Yes = False) -> None:
    """Restore what the group's newest replay has replaced, exactly; repeat for the one before it."""
    from streams.config import settings
    from streams.ops.replay import Replays

    replays = Replays(settings())
    typer.echo(_shown(replays.undo_plan(group)))
    agree(yes, "Restore these?")
    with _watching(group):
        replays.undo(group)
    typer.echo(f"Restored {group}.")


def agree(yes: bool, question: str) -> None:
    if not yes and not typer.confirm(question):
        typer.echo("Nothing was changed.")
        raise typer.Exit(1)


def _watching(group: str) -> AbstractContextManager[object]:
    from rich.console import Console

    from streams.ops.replay import WATCH_SECONDS

    return Console(stderr=True).status(f"Watching {group} for {WATCH_SECONDS:.0f} s: nobody may commit for it")


def _shown(plan: Plan) -> str:
    lines = [columns(_HEADS, [_row(move) for move in plan.moves], _LEFT), ""] if plan.moves else []
    span, taken = (sum(getattr(move, name) for move in plan.moves) for name in ("span", "taken"))
    lines.append(f"{span:,} offsets from there to the end of the log, control records included.")
    if taken:
        lines.append(f"Retention has already taken up to {taken:,} offsets of what was asked for.")
    return "\n".join([*lines, *(f"Note: {note}." for note in plan.notes)])


def _row(move: Move) -> tuple[str, ...]:
    return (
        move.partition.topic,
        str(move.partition.number),
        "-" if move.before is None else str(move.before.position),
        str(move.to),
        str(move.span),
        _oldest(move),
        str(move.skipped or ""),
        str(move.taken or ""),
    )


def _oldest(move: Move) -> str:
    if move.oldest is not None:
        return f"{move.oldest:%Y-%m-%dT%H:%M:%S}Z"
    return "?" if move.span else "-"
