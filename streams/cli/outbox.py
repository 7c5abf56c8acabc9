"""`streams outbox status | prune | re-emit | skip | repair | relay`. Calls streams.ops's modules of those names."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import UTC, datetime
from threading import Event, Timer
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli._numbers import finite
from streams.core.times import duration
from streams.errors import ConfigError

if TYPE_CHECKING:
    from streams.ops.outbox import OutboxStatus

app = typer.Typer(help="The outbox and its relay to the log.", no_args_is_help=True)

_RELAYS = {"polling": "polling (streams outbox relay)", "debezium": "Debezium", None: "none reads the outbox"}
_UNKNOWN = "unknown: its server does not answer"
# Of the polling relay, after it was told to end: what hangs by then is left, and a container is killed after 10 s.
_END_SECONDS_MAX = 8.0


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show what waits in the outbox, and how the relay is."""
    from streams.config import settings
    from streams.ops import outbox

    found = _figures(outbox.status(settings()))
    typer.echo(
        json.dumps(found, indent=2) if as_json else "\n".join(f"{name:<12} {says}" for name, says in _lines(found))
    )


def _figures(found: OutboxStatus) -> dict[str, Any]:
    """The status as JSON has it; null for unknown."""
    waiting, slot, connector = found.unpublished, found.slot, found.connector
    oldest = max((row.age_seconds for row in waiting), default=0.0) if waiting is not None else None
    return {
        "relay": "polling" if slot.polled else "debezium" if slot.active else None,
        "rows": found.rows,
        "unpublished_rows": None if waiting is None else len(waiting),
        "oldest_unpublished_seq": waiting[0].seq if waiting else None,
        "oldest_unpublished_age_seconds": None if oldest is None else round(oldest, 3),
        "publication": bool(slot.publication_ok),
        "slot": {
            "exists": slot.slot_exists,
            "active": slot.active,
            "wal_status": slot.wal_status,
            "lag_bytes": slot.lag_bytes,
            "held_bytes": slot.held_bytes,
            "safe_bytes": slot.safe_bytes,
        },
        "connector": connector.connector if connector else None,
        "task": connector.task if connector else None,
        "reason": connector.reason or None if connector else None,
    }


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for people."""
    slot, rows = found["slot"], found["unpublished_rows"]
    waiting = f"{rows}" + (f", the oldest for {duration(found['oldest_unpublished_age_seconds'])}" if rows else "")
    reading = (
        f"{slot['wal_status']}, {'read' if slot['active'] else 'not read'}, {slot['lag_bytes']} bytes behind, "
        f"{slot['held_bytes']} held back"
    )
    margin = "no limit" if slot["safe_bytes"] is None else f"{slot['safe_bytes']} bytes until the slot is lost"
    return [
        ("relay", _RELAYS[found["relay"]]),
        ("rows", str(found["rows"])),
        ("unpublished", _UNKNOWN if rows is None else waiting),
        ("publication", "there" if found["publication"] else "missing or wrong"),
        ("slot", reading if slot["exists"] else "missing"),
        ("margin", margin if slot["exists"] else ""),
        ("connector", found["connector"] or _UNKNOWN),
        ("task", (found["task"] or "none") + (f": {found['reason']}" if found["reason"] else "")),
    ]


@app.command()
def prune(
    older_than: Annotated[str, typer.Option("--older-than", help="Keep what is younger: 3d, 12h.")] = "3d",
) -> None:
    """Delete old rows that are certainly in the log."""
    from streams.config import settings
    from streams.core.times import parse_length
    from streams.ops import outbox

    done = outbox.prune(settings(), parse_length(older_than))
    typer.echo(
        f"deleted {done.deleted_rows} rows; kept {done.kept_rows} that old" + (f": {done.why}" if done.why else "")
    )


@app.command("re-emit")
def re_emit(
    since: Annotated[
        str, typer.Option("--since", help="A row's seq, a time (2026-11-27T00:00Z) or 2h for 2 hours ago.")
    ],
    until: Annotated[
        str | None, typer.Option("--until", help="The same, inclusive; without it, all up to now.")
    ] = None,
) -> None:
    """Emit events once more, with their own ids and in their order."""
    from streams.config import settings
    from streams.ops import outbox

    first, last = _bound(since), _bound(until) if until else None
    if type(first) is type(last) and first > last:  # type: ignore[operator]  # of one type
        raise ConfigError(f"--since {since} is after --until {until}")
    count = outbox.re_emit(settings(), first, last)
    typer.echo(f"emitted {count} events again")


def _bound(text: str) -> int | datetime:
    from streams.core.times import parse_moment

    return int(text) if text.isdecimal() else parse_moment(text, datetime.now(UTC))


@app.command()
def skip(
    seqs: Annotated[list[int], typer.Argument(metavar="SEQ...", help="The rows that the broker does not take.")],
) -> None:
    """Set rows aside (into app.outbox_skipped) that stop the relay, and let it go on with the others."""
    _repair(seqs)


@app.command()
def repair() -> None:
    """Make the relay run again after a lost slot or publication: nothing lost, in order; safe to repeat."""
    _repair([])


def _repair(seqs: list[int]) -> None:
    from streams.config import settings
    from streams.ops import repair as work

    work.repair(settings(), typer.echo, seqs)


@app.command()
def relay(
    interval: Annotated[
        float, typer.Option(help="Seconds between two looks, while nothing waits.", min=0.01, callback=finite)
    ] = 0.2,
    batch: Annotated[int, typer.Option(help="Rows that are published at once.", min=1, max=10_000)] = 500,
    take_over: Annotated[bool, typer.Option("--take-over", help="Stop Debezium's connector before.")] = False,
) -> None:
    """Relay by polling, where no Kafka Connect may run; a second one waits until the first ends."""
    ended = _end_by_signals()
    from streams import logs
    from streams.config import settings
    from streams.ops import polling

    logs.configure(for_people=sys.stderr.isatty())
    polling.relay(settings(), polling.Pace(interval, batch), ended, take_over)


def _end_by_signals() -> Event:
    """Set by the first SIGTERM or SIGINT; the second ends at once, and what hangs is not waited for."""
    ended = Event()

    def obey(_number: int, _frame: object) -> None:
        if ended.is_set():
            os._exit(130)
        ended.set()
        killer = Timer(_END_SECONDS_MAX, os._exit, [0])
        killer.daemon = True
        killer.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, obey)
    return ended
