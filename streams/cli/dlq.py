"""`streams dlq list | show | redrive | discard`. Calls `streams.ops.letters`."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli._columns import columns
from streams.cli._numbers import finite
from streams.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from streams.ops.letters import Filters, Letter

app = typer.Typer(help="Dead letters: records that a reader gave up on.", no_args_is_help=True)

Reader = Annotated[str | None, typer.Option("--reader", help="Of this reader.")]
Error = Annotated[str | None, typer.Option("--error", help="With this text in the error's class or message.")]
Key = Annotated[str | None, typer.Option("--key", help="Of this document.")]
Since = Annotated[str | None, typer.Option("--since", help="Dead since: 2h, 3d, or 2026-11-27T00:00Z.")]
Ids = Annotated[list[int] | None, typer.Argument(help="Dead letters, by number.", metavar="[ID]...")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many, the oldest first.")]
Everything = Annotated[bool, typer.Option("--all", help="All open ones, when no other filter is given.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without it, only what would be done is shown.")]


@app.command("list")
def list_letters(
    reader: Reader = None,
    error: Error = None,
    key: Key = None,
    since: Since = None,
    state: Annotated[str, typer.Option(help="open, redriven, resolved, discarded, superseded, or any.")] = "open",
    limit: Limit = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List dead letters, oldest first, and how many there are."""
    from streams.config import settings
    from streams.database import connect
    from streams.ops import letters

    filters = _filters(reader, error, key, since, None, _state(state))
    with connect(settings(), autocommit=True) as connection:
        found, total = letters.find(connection, filters, limit)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], default=str, indent=2))
        return
    if found:
        typer.echo(_table(found))
    typer.echo(f"{len(found)} of {total} shown: {_scope(filters)}.")


@app.command()
def show(letter: Annotated[int, typer.Argument(help="Its number, from the list.")]) -> None:
    """Show one dead letter: where it stands in the log, why it died, and its bytes."""
    from streams.config import settings
    from streams.database import connect
    from streams.ops import letters

    with connect(settings(), autocommit=True) as connection:
        found = letters.show(connection, letter)
    names, values = found.pop("header_names"), found.pop("header_values")
    found["headers"] = {name: _text(value) for name, value in zip(names, values, strict=True)}
    traceback = found.pop("traceback")
    for name, value in found.items():
        typer.echo(f"{name:<16} {_text(value) if isinstance(value, bytes) else value}")
    typer.echo(f"\n{traceback}")


@app.command()
def redrive(
    ids: Ids = None,
    reader: Reader = None,
    error: Error = None,
    key: Key = None,
    since: Since = None,
    limit: Limit = None,
    everything: Everything = False,
    rate: Annotated[float | None, typer.Option(min=0.01, callback=finite, help="At most so many a second.")] = None,
    yes: Yes = False,
) -> None:
    """Give open dead letters to the reader that failed them again, attempts 0; without --yes, only say which."""
    from streams.ops import letters

    filters = replace(_chosen(ids, reader, error, key, since, everything), live=True)
    _change("redrive", filters, limit, yes, lambda c, progress: letters.redrive(c, filters, limit, rate, progress))


@app.command()
def discard(
    ids: Ids = None,
    reader: Reader = None,
    error: Error = None,
    key: Key = None,
    since: Since = None,
    limit: Limit = None,
    everything: Everything = False,
    yes: Yes = False,
) -> None:
    """Give open dead letters up for good; the rows stay, marked. Without --yes, only say which."""
    from streams.ops import letters

    filters = _chosen(ids, reader, error, key, since, everything)
    _change("discard", filters, limit, yes, lambda c, progress: letters.discard(c, filters, limit, progress))


def _change(verb: str, filters: Filters, limit: int | None, yes: bool, change: Any) -> None:
    """The dry run, or the real one with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from streams.config import settings
    from streams.database import connect
    from streams.ops import letters
    from streams.ops.lag_history import mark

    with connect(settings(), autocommit=True) as connection:
        _oldest, total = letters.find(connection, filters, rows_max=1)
        _oldest, chosen = letters.find(connection, replace(filters, live=False), rows_max=1)
        if chosen == 0 and filters.ids:
            raise NotFound(f"none of these is an open dead letter: {', '.join(map(str, filters.ids))}")
        if total < chosen:
            typer.echo(f"{chosen - total} of {chosen} stay: they are of replays (READER@RUN); replay again instead.")
        wanted = total if limit is None else min(limit, total)
        if not yes:
            typer.echo(f"Would {verb} {wanted} of {total}: {_scope(filters)}. Add --yes to do it.")
            return
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(verb, total=wanted)
            changed = change(connection, lambda done: bar.advance(task, done))
    if changed:
        mark(settings(), verb, filters.reader, f"{changed} dead letters")
    typer.echo(f"{verb}: {changed} of {total}: {_scope(filters)}.")


def _chosen(
    ids: list[int] | None, reader: str | None, error: str | None, key: str | None, since: str | None, everything: bool
) -> Filters:
    """What a change is about; to mean all, it must be said."""
    filters = _filters(reader, error, key, since, ids or None, "open")
    narrowed = any(value is not None for value in (ids or None, reader, error, key, since))
    if narrowed == everything:
        raise ConfigError(
            "--all goes without other filters" if narrowed else "say which dead letters: numbers, a filter, or --all"
        )
    return filters


def _filters(
    reader: str | None, error: str | None, key: str | None, since: str | None, ids: list[int] | None, state: Any
) -> Filters:
    from streams.core.times import parse_moment
    from streams.ops.letters import Filters

    moment = None if since is None else parse_moment(since, datetime.now(UTC))
    return Filters(reader, state, error, key, moment, ids)


def _state(given: str) -> str | None:
    known = ("open", "redriven", "resolved", "discarded", "superseded")
    if given not in (*known, "any"):
        raise ConfigError(f"--state is one of {', '.join(known)}, any; not {given!r}")
    return None if given == "any" else given


def _scope(filters: Filters) -> str:
    """What a count is a count of, in words."""
    named = {"reader": filters.reader, "error": filters.error, "key": filters.key}
    parts = [f"{name} {value!r}" for name, value in named.items() if value is not None]
    parts += [f"since {filters.since:%Y-%m-%d %H:%M:%S} UTC"] if filters.since else []
    parts += [f"numbers {', '.join(map(str, filters.ids))}"] if filters.ids else []
    return f"{filters.state or 'all'} dead letters of {', '.join(parts) or 'every reader'}"


def _table(found: list[Letter]) -> str:
    heads = ("ID", "READER", "RECORD", "DOCUMENT", "VERSION", "STATE", "ATTEMPTS", "DIED", "ERROR")
    rows = [
        (
            str(one.dead_letter_id),
            one.reader,
            f"{one.topic}:{one.partition}:{one.offset}",
            one.document_id or "",
            str(one.version or ""),
            one.state,
            str(one.attempts),
            f"{one.died_at:%Y-%m-%d %H:%M:%S}",
            f"{one.error_class}: {one.error_message}".split("\n")[0][:80],
        )
        for one in found
    ]
    return columns(heads, rows, frozenset(heads) - {"ID", "VERSION", "ATTEMPTS"})


def _text(value: bytes | None) -> str:
    """Bytes as far as they are text, the rest escaped."""
    return "" if value is None else value.decode("utf-8", "backslashreplace")
