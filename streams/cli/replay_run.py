"""`streams replay run | runs | diff | promote | rollback | cancel`: read a part of the log again beside the reader.

Calls `streams.ops.replay_runs`, `replay_worker`, `replay_diff` and `replay_promote`.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli._columns import columns
from streams.cli.replay import Yes, agree
from streams.core.times import duration
from streams.errors import ConfigError

if TYPE_CHECKING:
    from streams.ops.replay_diff import Example, TableDiff
    from streams.ops.replay_runs import Asked, Planned, Run
    from streams.ops.replay_worker import Result, Seen

_HEADS = ("RUN", "READER", "INTO", "FROM", "TO", "STATE", "READ", "OF ABOUT", "BEGUN")
_LEFT = frozenset({"READER", "INTO", "FROM", "TO", "STATE", "BEGUN"})
_KINDS = {
    "same": "SAME",
    "changed": "CHANGED",
    "only_shadow": "ONLY SHADOW",
    "only_live": "ONLY LIVE",
    "newer": "LIVE NEWER",
    "outside": "NOT REPLAYED",
}
_DIFF_HEADS = ("TABLE", *_KINDS.values())
_CELL_CHARACTERS_MAX = 60
_INTO = ("live", "shadow")

Number = Annotated[int, typer.Argument(help="The replay, from `streams replay runs`.", metavar="RUN")]


def add_to(app: typer.Typer) -> None:
    """Add the verbs to `streams replay`."""
    app.command()(run)
    app.command()(runs)
    app.command()(diff)
    app.command()(promote)
    app.command()(rollback)
    app.command()(cancel)


def run(
    reader: Annotated[str | None, typer.Argument(help="The reader, by group.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", help="earliest, 2d, 90m, 2026-11-27T00:00Z or offset:N.")
    ] = None,
    until: Annotated[str, typer.Option("--to", help="latest, or as --from; up to it, without it.")] = "latest",
    into: Annotated[
        str, typer.Option("--into", help="live: the reader's tables, by version. shadow: a copy that nobody reads.")
    ] = "live",
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="Records a second, at most.")] = None,
    external: Annotated[
        bool,
        typer.Option("--external", help="Tell handlers that it is no replay: they do what they hold back in one."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how many records and how long; do nothing.")] = False,
    resume: Annotated[int | None, typer.Option("--resume", help="Go on with this replay.", metavar="RUN")] = None,
    catch_up: Annotated[
        bool, typer.Option("--catch-up", help="With --resume: a shadow goes on to the end that the log has now.")
    ] = False,
) -> None:
    """Read a part of the log again with a reader, beside its live workers.

    It has a group and progress of its own, and ends by itself. Ctrl-C stops it;
    --resume goes on, also after a crash. Into the live tables it never puts an
    older version over a newer one.
    """
    from streams.config import settings
    from streams.ops.replay_runs import Asked, ReplayRuns
    from streams.readers.discovery import find

    replays = ReplayRuns(settings())
    if resume is not None:
        if reader or since or dry_run:
            raise ConfigError("--resume takes no reader, --from or --dry-run: the replay knows them")
        going_on = replays.catch_up(replays.get(resume)) if catch_up else replays.get(resume)
        _work(replays.set_rate(going_on, rate) if rate else going_on)
        return
    if catch_up:
        raise ConfigError("--catch-up goes with --resume")
    if reader is None or since is None:
        raise ConfigError("say which reader, and where from with --from")
    if into not in _INTO:
        raise ConfigError(f"--into is live or shadow, not {into}")
    (found,) = find([reader])
    asked = Asked(since, until, "shadow" if into == "shadow" else "live", rate, external)
    planned = replays.plan(found, asked)
    typer.echo(_planned(reader, asked, planned))
    if not dry_run:
        _work(replays.begin(found, asked, planned))


def runs(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the replays, the newest first."""
    from streams.config import settings
    from streams.ops.replay_runs import ReplayRuns

    found = ReplayRuns(settings()).listed()
    if as_json:
        typer.echo(json.dumps([asdict(one) | {"state": one.shown_state} for one in found], default=str, indent=2))
    elif found:
        typer.echo(columns(_HEADS, [_row(one) for one in found], _LEFT))
    else:
        typer.echo("No replay was run.")


def diff(
    run: Number,
    examples: Annotated[int, typer.Option("--examples", min=0, help="Rows of each kind to show.")] = 3,
) -> None:
    """Compare a shadow with the live tables, row by row."""
    from streams.config import settings
    from streams.ops.replay_diff import diff as compare
    from streams.ops.replay_runs import ReplayRuns

    found = ReplayRuns(settings()).get(run)
    tables = compare(settings(), found, examples)
    if not tables:
        typer.echo(f"Replay {run} has written nothing yet.")
        return
    typer.echo(columns(_DIFF_HEADS, [_diff_row(one) for one in tables], frozenset({"TABLE"})))
    for table in tables:
        for line in _examples(table):
            typer.echo(line)
    if found.state == "open":
        typer.echo(f"Note: replay {run} is not done yet.")
    if any(one.counts_only for one in tables) and not found.whole:
        typer.echo("Note: counters of a part of the log count that part alone.")


def promote(run: Number, yes: Yes = False) -> None:
    """Make a shadow's results the reader's, which must be stopped; `rollback` takes it back.

    A shadow of the whole log that has caught up with the reader takes the place of
    all that the reader has. Any other is merged by version, and deletes nothing.
    """
    from streams.config import settings
    from streams.ops.replay_promote import Promotions
    from streams.ops.replay_runs import ReplayRuns

    promotions, found = Promotions(settings()), ReplayRuns(settings()).get(run)
    planned = promotions.plan(found)
    names = ", ".join(planned.tables) or "no table"
    if planned.swaps:
        typer.echo(f"The rows of {found.reader} in {names}, and its progress, are replaced by those of replay {run}.")
    else:
        typer.echo(f"Replay {run} is merged into {names} by version, since {'; '.join(planned.reasons)}.")
    agree(yes, "Promote it?")
    promotions.promote(found)
    typer.echo(f"Replay {run} is promoted. To take it back: streams replay rollback {run}")


def rollback(run: Number, yes: Yes = False) -> None:
    """Restore what a promotion has replaced. The reader, which must be stopped, then does again what came since."""
    from streams.config import settings
    from streams.ops.replay_promote import Promotions
    from streams.ops.replay_runs import ReplayRuns

    found = ReplayRuns(settings()).get(run)
    agree(yes, f"Restore the tables and progress of {found.reader} as they were before replay {run}?")
    Promotions(settings()).rollback(found)
    typer.echo(f"Replay {run} is rolled back.")


def cancel(run: Number) -> None:
    """Give a replay up: it ends, and its shadow and progress are dropped. What it wrote into live tables stays."""
    from streams.config import settings
    from streams.ops.replay_runs import ReplayRuns

    replays = ReplayRuns(settings())
    replays.cancel(replays.get(run))
    typer.echo(f"Replay {run} is cancelled.")


def _work(run: Run) -> None:
    from streams import logs
    from streams.config import settings
    from streams.ops.replay_worker import work
    from streams.ops.worker import spare_the_collector
    from streams.readers.discovery import find

    logs.configure(for_people=sys.stderr.isatty(), reader=run.group)
    (reader,) = find([run.reader])
    typer.echo(f"Replay {run.run} of {run.reader}, from {run.asked_from} to {run.asked_to}, into {run.target}.")
    spare_the_collector()
    with _shown() as show:
        result = work(settings(), reader, run, show, _obey_signals)
    typer.echo(_ended(result))
    if result.run.state == "open":
        raise typer.Exit(130)


def _obey_signals(stop: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())


@contextmanager
def _shown() -> Iterator[Callable[[Seen], None]]:
    """A bar on the terminal's stderr; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    line = "{task.completed:,.0f} of about {task.total:,.0f} records, {task.fields[pace]:,.0f}/s, {task.fields[left]}"
    with Progress(BarColumn(), TextColumn(line), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None, start=True, visible=False, pace=0.0, left="")

        def show(seen: Seen) -> None:
            left = "time left unknown" if seen.eta_seconds is None else f"{duration(seen.eta_seconds)} left"
            bar.update(
                task,
                total=seen.records_about,
                completed=seen.records_read,
                visible=True,
                pace=seen.per_second,
                left=left,
            )

        yield show


def _planned(reader: str, asked: Asked, planned: Planned) -> str:
    lines = [f"About {planned.records_about:,} records of {asked.topic} for {reader}; {_time(planned)}."]
    if planned.window.until_ms is not None:
        lines.append(
            f"Times in a log are not in order, so it is read to its end: {planned.window.offsets:,} offsets in all."
        )
    return "\n".join(lines)


def _time(planned: Planned) -> str:
    if planned.seconds is None:
        return "how long that takes is unknown, since nobody has measured the reader: try --rate"
    return f"{'at most' if planned.at_most else 'about'} {duration(planned.seconds)}"


def _ended(result: Result) -> str:
    run = result.run
    if run.state == "cancelled":
        return f"Replay {run.run} was cancelled."
    dead = f" {result.dead:,} were given up: streams dlq list --reader {run.group}" if result.dead else ""
    if run.state == "open":
        return f"Replay {run.run} stopped. To go on: streams replay run --resume {run.run}{dead and '.'}{dead}"
    return f"Replay {run.run} is done: {run.records_read:,} records read.{dead}"


def _row(one: Run) -> tuple[str, ...]:
    return (
        str(one.run),
        one.reader,
        one.target,
        one.asked_from,
        one.asked_to,
        one.shown_state,
        f"{one.records_read:,}",
        f"{one.records_about:,}",
        f"{one.begun_at:%Y-%m-%dT%H:%M:%S}Z",
    )


def _diff_row(table: TableDiff) -> tuple[str, ...]:
    return (table.table, *(f"{table.rows.get(kind, 0):,}" for kind in _KINDS))  # type: ignore[call-overload]


def _examples(table: TableDiff) -> Iterator[str]:
    """Each row that differs: its key, and live → shadow of what does."""
    for one in table.examples:
        row = one.live or one.shadow or {}
        key = ", ".join(str(row[name]) for name in table.key)
        yield f"{table.table} {key}: {_KINDS[one.kind].lower()}{_changes(one)}"


def _changes(one: Example) -> str:
    both = ((name, (one.live or {})[name], (one.shadow or {})[name]) for name in one.columns)
    return "".join(f"; {name} {_cell(live)} → {_cell(shadow)}" for name, live, shadow in both)


def _cell(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _CELL_CHARACTERS_MAX else text[: _CELL_CHARACTERS_MAX - 1] + "…"
