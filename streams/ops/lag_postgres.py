"""What our Postgres knows of groups, asked of it: parked records, samples of the last minute, the relay.

Called by `streams.ops.lag_facts`, on its thread, and by the recorder; the database may be none of ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import psycopg

from streams.config import Settings
from streams.core.groups import Partition
from streams.core.outlook import Parked
from streams.core.series import SECONDS, Sample
from streams.database import Connection, connect
from streams.errors import StreamsError
from streams.ops import lag_history
from streams.ops.lag_facts import Facts, RelayState
from streams.ops.lag_history import sql
from streams.ops.relay_lag import RelayLag

# A recorder samples every 5 s; when it has been silent for four of them, nobody records.
STALE_SECONDS = 20.0


def ask(config: Settings, groups: Sequence[str], relay: RelayLag | None) -> Facts:
    """The facts; that nothing is known, and why, where there is no Postgres."""
    try:
        with connect(config, autocommit=True, statement_timeout="2s") as connection:
            return gather(connection, groups, relay)
    except (StreamsError, psycopg.Error) as error:
        return Facts(fault=str(error).partition("\n")[0])


def gather(connection: Connection, groups: Sequence[str] = (), relay: RelayLag | None = None) -> Facts:
    """All that Postgres knows of these groups, or of all, and of the relay if asked to. Raises psycopg.Error."""
    has_readers, has_parked, has_samples, has_outbox = sql.tables(connection)
    state, fault = _relay(connection, relay) if has_outbox and relay else (None, None)
    return Facts(
        parked=parked(connection, has_parked) if has_readers else {},
        samples=_fresh(connection, groups) if has_samples else {},
        capacities=lag_history.capacities(connection) if has_samples else {},
        relay=state,
        fault=fault,
    )


def parked(connection: Connection, has_parked: bool) -> dict[str, dict[Partition, Parked]]:
    """What each reader of ours has parked, none for most."""
    found: defaultdict[str, dict[Partition, Parked]] = defaultdict(dict)
    for reader, topic, number, count, oldest_seconds in sql.parked(connection) if has_parked else ():
        found[reader][Partition(topic, number)] = Parked(count, oldest_seconds)
    return {reader: found[reader] for reader in lag_history.readers(connection)}


def _fresh(connection: Connection, groups: Sequence[str]) -> dict[str, list[Sample]]:
    """The samples of the groups that somebody records now."""
    now: float = sql.now(connection)
    samples = lag_history.recent(connection, SECONDS + STALE_SECONDS, groups)
    return {group: each for group, each in samples.items() if each[-1].at > now - STALE_SECONDS}


def _relay(connection: Connection, relay: RelayLag) -> tuple[RelayState | None, str | None]:
    try:
        state = relay.look(connection)
    except StreamsError as error:
        return None, str(error)
    return state, None if state else "the last look at the relay is not over yet"
