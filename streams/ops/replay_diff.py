"""What a replay's shadow says otherwise than the live tables. Called by `streams replay diff`; reads Postgres alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql as ident

from streams.config import Settings
from streams.database import Connection, connect
from streams.errors import ReplayRefused
from streams.ops.replay_runs import Run, sql
from streams.sinks.replayed import shadow_of

Kind = Literal["same", "changed", "only_shadow", "only_live", "newer", "outside"]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    """A row as both have it; None where one has none."""

    kind: Kind
    live: Row | None
    shadow: Row | None

    @property
    def columns(self) -> list[str]:
        """Those in which both differ; none where only one has the row."""
        if self.live is None or self.shadow is None:
            return []
        return [name for name in self.live if self.live[name] != self.shadow.get(name)]


@dataclass(frozen=True, slots=True)
class TableDiff:
    """One table: how many rows of each kind, and the first few that differ."""

    table: str
    key: tuple[str, ...]
    counts_only: bool  # whether counters stand there: those of a part of the log are that part's
    rows: Mapping[Kind, int]
    examples: tuple[Example, ...]


def diff(config: Settings, run: Run, examples_max: int) -> list[TableDiff]:
    """Each table of the shadow against the live one, at one moment; at most so many examples of a kind.

    Raises ReplayRefused for a replay without a shadow.
    """
    if run.target != "shadow":
        raise ReplayRefused(f"replay {run.run} went into the live tables, so there is no shadow to compare")
    if run.state == "cancelled":
        raise ReplayRefused(f"replay {run.run} was cancelled, and its shadow dropped")
    with connect(config) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return list(_tables(connection, run, examples_max))


def _tables(connection: Connection, run: Run, examples_max: int) -> Iterator[TableDiff]:
    for name, key, shared, counts in list(sql.shadow_tables(connection, run=run.run)):
        full_key = (["reader"] if shared else []) + key
        scope = ident.SQL("WHERE reader = %(reader)s" if shared else "")
        text = ident.SQL(sql.diff.sql).format(
            live=ident.Identifier("readers", name),
            shadow=ident.Identifier(shadow_of(run.run), name),
            key=ident.SQL(", ").join(map(ident.Identifier, full_key)),
            scope=scope,
        )
        values = {"reader": run.reader, "group": run.group, "whole": run.whole, "examples_max": examples_max}
        rows = connection.execute(text, values).fetchall()
        examples = tuple(
            Example(kind, live, shadow) for kind, _, live, shadow in rows if kind not in ("same", "outside")
        )
        yield TableDiff(
            name, tuple(key), counts, {kind: count for kind, count, *_ in rows}, examples if examples_max else ()
        )
