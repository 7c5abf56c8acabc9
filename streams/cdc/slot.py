"""The relay's end in Postgres: the publication, which says what is read, and the slot, which says from where.

The publication comes first: the slot reads the log of changes with the catalogue of that moment, so rows written before
there was a publication are passed over in silence. Called by setup, the doctor and the outbox's repair; calls Postgres.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from streams.config import Settings
from streams.database import connect, queries
from streams.errors import RelayError

NAME = "docs_outbox"  # of both
PLUGIN = "pgoutput"
# Making a slot waits for every open transaction of the server.
CREATE_SECONDS_MAX = 30
# Setup, repair, re-emit and prune: one at a time, whatever the process.
_MAINTENANCE_LOCK = 0x6F757462
_MAINTENANCE_SECONDS_MAX = 120
# Held by the polling relay while it works: one at a time, and whoever looks at the slot sees that it runs.
POLLING_LOCK = 0x706F6C6C

Connection = psycopg.Connection[tuple[Any, ...]]
_sql = queries(Path(__file__).parent / "sql")


@dataclass(frozen=True, slots=True)
class SlotState:
    """The publication and the slot as they are; see sql/slot.sql for the columns."""

    publication_ok: bool | None
    publication_exists: bool
    slot_exists: bool
    plugin: str | None = None
    active: bool | None = None
    wal_status: str | None = None
    invalidation_reason: str | None = None
    failover: bool | None = None
    confirmed: str | None = None
    lag_bytes: int | None = None
    safe_bytes: int | None = None
    held_bytes: int | None = None
    polled: bool = False

    @property
    def lost(self) -> bool:
        """The slot is there but Postgres has removed, or given up, what it should read next."""
        return self.slot_exists and (self.wal_status == "lost" or self.invalidation_reason is not None)

    @property
    def usable_slot(self) -> bool:
        """Whether the slot is there and can be read from."""
        return self.slot_exists and not self.lost and self.plugin == PLUGIN

    @property
    def usable(self) -> bool:
        """Whether the relay can go on from here without a repair."""
        return bool(self.publication_ok) and self.usable_slot


def read_state(connection: Connection) -> SlotState:
    """The publication and the slot as they are now."""
    return SlotState(*_sql.slot_state(connection, publication=NAME, slot=NAME, polling_lock=POLLING_LOCK))


def create_publication(connection: Connection) -> None:
    """Make the publication anew: inserts into the outbox, nothing else."""
    with connection.transaction():
        _sql.drop_publication(connection)
        _sql.create_publication(connection)


def create_slot(config: Settings) -> None:
    """Make the slot, alone in its transaction. Raises RelayError when an open transaction holds it up."""
    with connect(config, autocommit=True, statement_timeout=f"{CREATE_SECONDS_MAX}s") as connection:
        try:
            _sql.create_slot(connection, slot=NAME)
        except psycopg.errors.QueryCanceled as error:
            raise RelayError(
                f"the slot {NAME} could not be made within {CREATE_SECONDS_MAX} s: a transaction of this server "
                "has been open for longer; end it (see pg_stat_activity) and try again"
            ) from error
        except psycopg.errors.DuplicateObject:
            return  # somebody else made it, which is as good
        except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.ConfigurationLimitExceeded) as error:
            raise RelayError(f"Postgres cannot make the slot {NAME}: {error.diag.message_primary}") from error


def drop_slot(connection: Connection) -> None:
    """Drop the slot; nobody may be reading it."""
    _sql.drop_slot(connection, slot=NAME)


def end_reader(connection: Connection) -> None:
    """End the session that reads the slot, if there is one."""
    _sql.end_reader(connection, slot=NAME)


def advance_slot(connection: Connection) -> None:
    """Move the slot past everything that is committed now; nobody may be reading it."""
    _sql.advance_slot(connection, slot=NAME)


@contextmanager
def maintenance(config: Settings) -> Iterator[Connection]:
    """A connection (autocommit) that alone may change the relay or move rows. Raises RelayError after a long wait."""
    with connect(config, autocommit=True, lock_timeout=f"{_MAINTENANCE_SECONDS_MAX}s") as connection:
        try:
            connection.execute("SELECT pg_advisory_lock(%s)", [_MAINTENANCE_LOCK])
        except psycopg.errors.LockNotAvailable as error:
            raise RelayError(
                f"another setup, repair or prune has been running for {_MAINTENANCE_SECONDS_MAX} s; wait for it to end"
            ) from error
        connection.execute("SET lock_timeout = 0")
        yield connection
