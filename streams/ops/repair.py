"""The repair of the relay, whatever is wrong with it: nothing lost, the order kept, rarely anything twice.

    1  stop the connector (make it, stopped, if it is gone), so that the log stands still
    2  make the publication and the slot anew where they are missing or broken, and forget Connect's old position
    3  read from the log which events it has
    4  lock the outbox against inserts; move the slot past all that is there; set the poison rows aside; insert every
       event that the log does not have once more, in the order of seq; unlock
    5  resume the connector and wait until it runs

Killed at any point it can be run again: until step 5 the connector stays stopped, which setup and doctor take for a
repair that did not end, and step 3 asks the log afresh. While the polling relay runs, which tries a row again and
again, rows are set aside and that is all. Called by `streams outbox repair | skip`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from streams.cdc import connector, slot
from streams.cdc.connect import Connect
from streams.cdc.slot import Connection
from streams.config import Settings
from streams.errors import ConfigError, RelayError
from streams.kafka.published import Published, PublishedEvents
from streams.ops.diagnosis import poison
from streams.ops.doctor import relay_facts
from streams.ops.outbox import lock_outbox
from streams.ops.unpublished import OutboxRow, missing, sql
from streams.stack.setup import unblock

Say = Callable[[str], None]

# A task that hangs on its broker is given up by Connect after 5 s, and may keep the slot: then its session is ended.
_LET_GO_SECONDS_MAX = 10.0
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Repaired:
    """How many rows were set aside, and how many events were emitted because the log did not have them."""

    skipped_rows: int
    emitted_events: int


def repair(config: Settings, say: Say, skip: Iterable[int] = ()) -> Repaired:
    """Bring the relay to run again from a known point; rows of `skip` (by seq) are set aside.

    Raises ConfigError for a row that is not there or is in the log already; RelayError for rows that the broker refuses
    and that are not to be skipped, since they would stop the relay again; RelayError, Unavailable: run it again.
    """
    seqs = sorted(set(skip))
    if refused := poison(relay_facts(config)).keys() - set(seqs):
        rows = " ".join(map(str, sorted(refused | set(seqs))))
        raise RelayError(f"the broker takes no such row: run `streams outbox skip {rows}`, which repairs as well")
    with slot.maintenance(config) as connection, Connect(config) as connect, PublishedEvents(config) as published:
        skipped = _skipped(connection, published, seqs)
        if slot.read_state(connection).polled:
            return _set_aside(connection, skipped, say)
        _stop(connect)
        say("connector stopped")
        _renew(config, connection, say)
        connect.delete_offsets(connector.NAME)
        there = published.since(dict(sql.oldest_times(connection)))
        done = _emit_missing(connection, skipped, there)
        say(f"{done.skipped_rows} rows set aside, {done.emitted_events} events emitted")
        connect.put(connector.NAME, connector.wanted())
        connect.resume(connector.NAME)
        connector.wait_until_running(connect, partial(unblock, config))
        say("connector running")
        return done


def _skipped(connection: Connection, published: PublishedEvents, seqs: list[int]) -> list[str]:
    """The event ids of the rows to skip. One that was set aside before is fine: this run ends what that one began."""
    found = [OutboxRow(*row) for row in sql.rows_to_skip(connection, seqs=seqs)]
    absent = set(seqs) - {row.seq for row in found}
    waiting = set(missing(found, published))
    there = [row.seq for row in found if row not in waiting]
    if absent or there:
        raise ConfigError(
            f"row {', '.join(map(str, sorted(absent) or there))} is not in the relay's way: "
            f"{'the outbox does not have it' if absent else 'the log has it already'}"
        )
    return [row.event_id for row in found]


def _set_aside(connection: Connection, skipped: list[str], say: Say) -> Repaired:
    if not skipped:
        raise RelayError(
            "the polling relay runs: end `streams outbox relay` first, and the repair hands the outbox to Debezium"
        )
    done = Repaired(sql.set_aside(connection, event_ids=skipped), 0)
    say(f"{done.skipped_rows} rows set aside; the polling relay goes on by itself")
    return done


def _stop(connect: Connect) -> None:
    if connect.state(connector.NAME) is None:
        connect.create_stopped(connector.NAME, connector.wanted())
    else:
        connect.stop(connector.NAME)
    connector.wait_until_stopped(connect)


def _renew(config: Settings, connection: Connection, say: Say) -> None:
    """A publication and a slot that can be read from; no recorded position that a moved slot would seem to confirm."""
    sql.forget_marks(connection)
    state = slot.read_state(connection)
    if not state.publication_ok:
        slot.create_publication(connection)
        say("publication made")
    if state.slot_exists:
        _wait_until_free(connection)
    if state.slot_exists and not state.usable_slot:
        slot.drop_slot(connection)
    if not state.usable_slot:
        slot.create_slot(config)
        say("slot made")


def _wait_until_free(connection: Connection) -> None:
    """Wait until nobody reads the slot; a session that does not let go is ended."""
    deadline = time.monotonic() + _LET_GO_SECONDS_MAX
    while slot.read_state(connection).active:
        if time.monotonic() > deadline:
            slot.end_reader(connection)
            deadline += _LET_GO_SECONDS_MAX
        time.sleep(_PAUSE_SECONDS)


def _emit_missing(connection: Connection, skipped: list[str], there: set[Published]) -> Repaired:
    """Step 4, one transaction; saves wait for it, so what the log has was read before."""
    with connection.transaction():
        lock_outbox(connection)
        slot.advance_slot(connection)
        sql.give_to_debezium(connection)
        skipped_rows = sql.set_aside(connection, event_ids=skipped)
        rows = (OutboxRow(*row) for row in sql.newest_rows(connection, rows_max=None))
        seqs = [row.seq for row in rows if row.record not in there]
        return Repaired(skipped_rows, sql.emit_again(connection, seqs=seqs, fresh=False))
