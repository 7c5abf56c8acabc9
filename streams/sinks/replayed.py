"""Where a bounded replay writes: into the live tables, by version; or into a shadow of them, which nobody reads yet.

Its own progress, owners, parked records and dead letters stand under `reader@run`, so the live reader's workers and the
replay's do not meet there. Put together by streams/ops/replay_worker.py; the runtime sees a sink like any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from psycopg import sql

from streams.config import Settings
from streams.contract import Increment, Reader, Table
from streams.core.outcomes import Done
from streams.database import queries
from streams.runtime.ports import Partition, Progress, Result
from streams.sinks.postgres import Connection, PostgresSink

_SQL = queries(Path(__file__).parent / "sql")


def group_of(reader: str, run: int) -> str:
    """The consumer group of a replay, and its reader's name in the tables: no reader can be declared under it."""
    return f"{reader}@{run}"


def shadow_of(run: int) -> str:
    """The schema of a replay's tables."""
    return f"replay_{run}"


class _Replayed(PostgresSink):
    """Works under the replay's name, and writes results under the reader's. Dead letters stay in their table."""

    def __init__(self, config: Settings, live: Reader, run: int) -> None:
        group = group_of(live.group, run)
        self.reader = replace(live, group=group)
        super().__init__(config, self.reader, group, encode=None)
        self._live = live
        self._writes_as = live.group


class IntoLive(_Replayed):
    """Results go where the reader's own go, of each document never an older version than is there.

    Progress of the reader is asked and written by the reader's own guard, so each waits for the other at one document
    alone, and an Increment is added only for what the reader has not counted yet.
    """

    # Where both want the same documents it is the replay that gives way, long before a deadlock is looked for (1 s).
    session: ClassVar = {**PostgresSink.session, "lock_timeout": "100ms"}

    def lookup(self, document_ids: Iterable[str]) -> dict[str, Progress]:
        """Own progress, and what the reader has applied: its handler need not run for what is older."""
        wanted = list(document_ids)
        found = super().lookup(wanted)
        with self._session() as connection:
            rows = _SQL.lookup(connection, reader=self._live.group, document_ids=wanted)
            for document_id, _version, state, applied, _pass in rows:
                own = found.get(document_id, Progress(0, state, 0, 0))
                found[document_id] = replace(own, applied_version=max(own.applied_version, applied))
        return found

    def _guard(self, connection: Connection, results: list[Result]) -> list[tuple[Result, bool]]:
        done = [one for one, _ in super()._guard(connection, results)]
        applied = self._guarded(connection, done, self._live.group)
        if mended := [one.event_id for one, _ in applied if one.event_id]:
            _SQL.resolve(connection, reader=self._live.group, event_ids=mended)
        return applied


class IntoShadow(_Replayed):
    """Results go into tables of the replay's own schema, each made like the one of its name when it is first needed."""

    def __init__(self, config: Settings, live: Reader, run: int) -> None:
        super().__init__(config, live, run)
        self._run = run
        self._schema = shadow_of(run)
        self._made: set[tuple[Table, bool]] = set()

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        try:
            super().write(epochs, results)
        except Exception:
            self._made.clear()  # perhaps they were made in what is undone
            raise

    def _guard(self, connection: Connection, results: list[Result]) -> list[tuple[Result, bool]]:
        applied = super()._guard(connection, results)
        effects = [each for one, _ in applied if isinstance(one.outcome, Done) for each in one.outcome.effects]
        needed = {(each.table or self._live.table, isinstance(each, Increment)) for each in effects}
        for table, counts in sorted({(self._live.table, False), *needed} - self._made, key=str):
            self._make(connection, table, counts)
        return applied

    def _make(self, connection: Connection, table: Table, counts: bool) -> None:
        names = {"schema": sql.Identifier(self._schema), "table": sql.Identifier(table.name)}
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {schema}").format(**names))
        connection.execute(
            sql.SQL("CREATE TABLE IF NOT EXISTS {schema}.{table} (LIKE readers.{table} INCLUDING ALL)").format(**names)
        )
        _SQL.note_shadow(
            connection, run=self._run, name=table.name, key=list(table.key), shared=table.shared, counts=counts
        )
        self._made.add((table, counts))
