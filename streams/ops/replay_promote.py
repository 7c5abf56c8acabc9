"""A shadow's results become the reader's, and back again. Called by `streams replay promote | rollback`.

All of it is one transaction, with the reader stopped: who reads the tables sees what was, or what is. Before that
what was there is kept beside the shadow, which stays as it is; so a rollback restores it exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql as ident

import streams.ops
from streams.config import Settings
from streams.core.groups import Commit, Partition
from streams.core.offsets import Position
from streams.core.replay import check_without_members
from streams.database import Connection, connect, queries
from streams.errors import ReplayRefused
from streams.kafka.admin import GroupsAdmin
from streams.kafka.exact_offsets import ExactOffsets
from streams.ops.lag_history import mark
from streams.ops.replay import check_all
from streams.ops.replay_runs import ReplayRuns, Run, held, sql
from streams.readers.discovery import look
from streams.sinks.replayed import shadow_of

_SQL = queries(Path(streams.ops.__file__).parent / "sql" / "promote.sql")


@dataclass(frozen=True, slots=True)
class Promotion:
    """What a promotion would do: swap all, or merge, and why not swap."""

    run: Run
    tables: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def swaps(self) -> bool:
        """Whether the shadow takes the place of all that the reader has."""
        return not self.reasons


class Promotions:
    """Promotes and rolls back over one connection a call."""

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._runs = ReplayRuns(config)
        self._admin = GroupsAdmin(config)
        self._offsets = ExactOffsets(config)

    def plan(self, run: Run) -> Promotion:
        """How the shadow would be promoted. Raises ReplayRefused if it cannot be."""
        if run.target != "shadow":
            raise ReplayRefused(f"replay {run.run} went into the live tables: there is no shadow to promote")
        if run.state != "done":
            raise ReplayRefused(f"replay {run.run} is not done: it is {run.shown_state}")
        with connect(self._config) as connection:
            tables = list(sql.shadow_tables(connection, run=run.run))
        reasons = tuple(self._against_a_swap(run, {name for name, _, shared, _ in tables if not shared}))
        counters = [name for name, *_, counts in tables if counts]
        if reasons and counters:
            raise ReplayRefused(
                f"replay {run.run} can only be merged, since {reasons[0]}; but {counters[0]} holds counters, which "
                "cannot be merged"
            )
        return Promotion(run, tuple(name for name, *_ in tables), reasons)

    def promote(self, run: Run) -> Promotion:
        """Do it, while the reader is stopped. Raises ReplayRefused, with nothing changed, if it is not."""
        with held(self._config, run):
            # First: what the reader may commit while it runs would make the plan wrong.
            commits = self._at_rest(run)
            made = self.plan(self._runs.get(run.run))
            with self._changing(run) as connection:
                for table in _tables(connection, run):
                    table.keep()
                    table.swap() if made.swaps else table.merge()
                _promote_progress(connection, run, made.swaps)
                _SQL.promoted(
                    connection,
                    run=run.run,
                    partitions=[one.number for one in commits],
                    positions=[commit.position for commit in commits.values()],
                )
        mark(self._config, "replay", run.reader, f"run {run.run} promoted")
        return made

    def rollback(self, run: Run) -> None:
        """Restore what the promotion replaced; what came since, the reader does again. Raises as `promote` does."""
        with held(self._config, run):
            run = self._runs.get(run.run)
            if run.state != "promoted":
                raise ReplayRefused(f"replay {run.run} is {run.state}, not promoted, so there is nothing to roll back")
            commits = self._at_rest(run)
            with self._changing(run) as connection:
                if (later := _SQL.promoted_later(connection, run=run.run)) is not None:
                    raise ReplayRefused(f"replay {later} of {run.reader} was promoted later: roll that back first")
                for table in _tables(connection, run):
                    table.restore()
                _restore_progress(connection, run)
                # Before all that is committed: should it stop here, the reader does some documents again, no more.
                self._rewind(connection, run, commits)
                _SQL.rolled_back(connection, run=run.run)
        mark(self._config, "replay", run.reader, f"run {run.run} rolled back")

    def _against_a_swap(self, run: Run, own_tables: set[str]) -> Iterator[str]:
        """Why the shadow is not all that the reader would have; nothing if it is."""
        window = self._runs.window(run)
        if not run.whole:
            yield "it does not begin at the start of the log and end at its end"
            return
        now = set(self._admin.cluster().partitions(run.topic))
        logs = self._admin.logs(now)
        check_all(now, logs, "where it starts and ends")
        if any(log.start > 0 for log in logs.values()):
            yield "retention has taken a part of the log"
        ahead = [one for one, commit in self._commits(run).items() if commit.position > _end(window.bounds.get(one))]
        if ahead or now - window.bounds.keys():
            yield f"the reader is further than it: stop it, and streams replay run --resume {run.run} --catch-up"
        for other in look().readers.values():
            if other.group != run.reader and not other.table.shared and other.table.name in own_tables:
                yield f"{other.group} writes to {other.table.name} too"

    def _commits(self, run: Run) -> dict[Partition, Commit]:
        return {one: commit for one, commit in self._offsets.read(run.reader).items() if one.topic == run.topic}

    def _at_rest(self, run: Run) -> dict[Partition, Commit]:
        described = self._admin.describe([run.reader]).get(run.reader)
        check_without_members(run.reader, described, "; one that has stopped counts for six seconds more")
        return self._commits(run)

    @contextmanager
    def _changing(self, run: Run) -> Iterator[Connection]:
        """One transaction, in which nobody else writes as the reader. Raises ReplayRefused if Postgres refuses."""
        try:
            with connect(self._config, application_name="distributary-promote") as connection:
                _SQL.alone(connection, reader=run.reader)
                _SQL.fence(connection, reader=run.reader)
                yield connection
        except psycopg.Error as error:
            reason = str(error).strip().split("\n")[0]
            raise ReplayRefused(f"nothing was changed, since Postgres refuses: {reason}") from error

    def _rewind(self, connection: Connection, run: Run, current: Mapping[Partition, Commit]) -> None:
        """Back to where the reader was when the replay was promoted, in a new pass."""
        rows = list(sql.partitions(connection, run=run.run))
        kept = {Partition(run.topic, number): position for number, *_, position in rows}
        back = {one: kept.get(one) for one, commit in current.items() if commit.position > (kept.get(one) or 0)}
        if written := {one: Commit(Position(at), "") for one, at in back.items() if at is not None}:
            self._offsets.write(run.reader, written)
        if removed := [one for one, at in back.items() if at is None]:
            self._offsets.remove(run.reader, removed)


class _Table:
    """One table of a shadow, on the way into its place or out of it. Of a table of many readers, the reader's rows."""

    def __init__(self, connection: Connection, run: Run, name: str, key: list[str], shared: bool) -> None:
        self._connection = connection
        self._values = {"reader": run.reader, "group": run.group}
        self._columns = [column for (column,) in _SQL.columns(connection, table=f'readers."{name}"')]
        self._key = (["reader"] if shared else []) + key
        self._names: dict[str, Any] = {
            "live": ident.Identifier("readers", name),
            "before": ident.Identifier(shadow_of(run.run), f"before_{name}"),
            "scope": ident.SQL("WHERE reader = %(reader)s" if shared else ""),
            "columns": _listed(self._columns),
        }
        self._shadow = ident.Identifier(shadow_of(run.run), name)

    def keep(self) -> None:
        """Remember what is there."""
        self._run(_SQL.keep.sql)

    def swap(self) -> None:
        """The shadow's rows in place of all."""
        self._run(_SQL.clear.sql)
        self._run(_SQL.copy.sql, source=self._shadow)

    def merge(self) -> None:
        """The shadow's rows beside and over the others, by version; nothing is deleted."""
        sets = [column for column in self._columns if column not in self._key]
        assign = (ident.SQL("{c} = excluded.{c}").format(c=ident.Identifier(column)) for column in sets)
        chosen = (ident.Identifier("s", column) for column in self._columns)
        self._run(
            _SQL.merge.sql,
            source=self._shadow,
            key=_listed(self._key),
            chosen=ident.SQL(", ").join(chosen),
            sets=ident.SQL(", ").join(assign),
        )

    def restore(self) -> None:
        """What was there before, and nothing else."""
        self._run(_SQL.clear.sql)
        self._run(_SQL.copy.sql, source=self._names["before"])
        self._connection.execute(ident.SQL("DROP TABLE {before}").format(**self._names))

    def _run(self, text: str, **names: ident.Composable) -> None:
        self._connection.execute(ident.SQL(text).format(**self._names, **names), self._values)


def _tables(connection: Connection, run: Run) -> list[_Table]:
    return [
        _Table(connection, run, name, key, shared)
        for name, key, shared, _ in list(sql.shadow_tables(connection, run=run.run))
    ]


def _promote_progress(connection: Connection, run: Run, swaps: bool) -> None:
    """Letters first: what the replay has done of them, its progress says."""
    names = {"reader": run.reader, "group": run.group}
    _on_kept(connection, run, "letters", _SQL.keep_letters.sql)
    _on_kept(connection, run, "progress", _SQL.keep_progress.sql)
    _on_kept(connection, run, "letters", _SQL.resolve_letters.sql)
    if swaps:
        _SQL.drop_progress(connection, reader=run.reader)
        _SQL.take_progress(connection, **names)
        _SQL.take_letters(connection, **names)
    else:
        _SQL.merge_progress(connection, **names)


def _restore_progress(connection: Connection, run: Run) -> None:
    _SQL.drop_progress(connection, reader=run.reader)
    _on_kept(connection, run, "progress", _SQL.restore_progress.sql)
    _on_kept(connection, run, "letters", _SQL.restore_letters.sql)
    for what in ("progress", "letters"):
        _on_kept(connection, run, what, "DROP TABLE {before}")


def _on_kept(connection: Connection, run: Run, what: str, text: str) -> None:
    """A statement on what is kept of the progress, or of the letters; no result table has a name with a blank."""
    before = ident.Identifier(shadow_of(run.run), f"before {what}")
    connection.execute(ident.SQL(text).format(before=before), {"reader": run.reader, "group": run.group})


def _listed(columns: list[str]) -> ident.Composed:
    return ident.SQL(", ").join(map(ident.Identifier, columns))


def _end(bound: Any) -> int:
    return -1 if bound is None else int(bound.end)
