"""Effects as SQL. Rows that one document owns carry its id and version; a counter's row belongs to nobody.

Called by the Postgres sink, inside its transaction; builds statements, runs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from psycopg import sql
from psycopg.types.json import Jsonb

from streams.contract import Delete, DocumentSaved, Effect, Increment, Key, Replace, Table, Upsert
from streams.runtime.ports import RowRefused


class Statement(NamedTuple):
    """One statement. `rows` is how many it must touch; None: any number."""

    text: str
    values: tuple[Any, ...] | dict[str, Any]
    rows: int | None


SCHEMA = "readers"


def statements(
    reader: str, default: Table, document: DocumentSaved, effect: Effect, schema: str = SCHEMA
) -> Iterator[Statement]:
    """What an effect does, in the tables of a schema. Raises RowRefused where the effect and its table do not fit."""
    table = effect.table or default
    match effect:
        case Upsert(key, value):
            yield _upsert(schema, reader, table, document, key, value)
        case Delete(key):
            where = _own_key(reader, table, document, key) | {"document_id": document.document_id}
            yield Statement(_delete_sql(schema, table.name, tuple(where)), tuple(where.values()), None)
        case Replace(rows, scope):
            where = {**scope, **_reader_column(reader, table), "document_id": document.document_id}
            yield Statement(_delete_sql(schema, table.name, tuple(where)), tuple(where.values()), None)
            for key, value in rows.items():
                yield _upsert(schema, reader, table, document, key, value)
        case Increment(key, by):
            yield _increment(schema, reader, table, key, by)


def _reader_column(reader: str, table: Table) -> dict[str, Any]:
    return {"reader": reader} if table.shared else {}


def _key(reader: str, table: Table, key: Key) -> dict[str, Any]:
    """The primary key's columns and values."""
    parts = (key,) if isinstance(key, str) else key
    if len(parts) != len(table.key):
        raise RowRefused(f"readers.{table.name} has the key {table.key}, but the effect gives {parts!r}")
    return _reader_column(reader, table) | dict(zip(table.key, parts, strict=True))


def _own_key(reader: str, table: Table, document: DocumentSaved, key: Key) -> dict[str, Any]:
    """The same, of a row that this document may have."""
    keyed = _key(reader, table, key)
    if keyed.get("document_id", document.document_id) != document.document_id:
        raise RowRefused(f"the key {key!r} belongs to another document")
    return keyed


def _upsert(
    schema: str, reader: str, table: Table, document: DocumentSaved, key: Key, value: Mapping[str, Any]
) -> Statement:
    keyed = _own_key(reader, table, document, key)
    given = {"value": Jsonb(dict(value))} if table.shared else dict(value)
    row = {**given, **keyed, "document_id": document.document_id, "version": document.version}
    return Statement(_upsert_sql(schema, table.name, tuple(keyed), tuple(row)), tuple(row.values()), 1)


def _increment(schema: str, reader: str, table: Table, key: Key, by: Mapping[str, int]) -> Statement:
    if not by or not all(isinstance(amount, int) for amount in by.values()):
        raise RowRefused(f"an Increment adds whole numbers, not {by!r}")
    keyed = _key(reader, table, key)
    if table.shared:
        return Statement(_count_sql(schema, table.name), (*keyed.values(), Jsonb(dict(by))), 1)
    return Statement(_add_sql(schema, table.name, tuple(keyed), tuple(by)), (*keyed.values(), *by.values()), 1)


@cache
def _count_sql(schema: str, table: str) -> str:
    """A counter in the shared table: each number is added to the old one. Not where a document owns the key."""
    return _text(
        "INSERT INTO {table} AS t (reader, key, value) VALUES (%s, %s, %s)"
        " ON CONFLICT (reader, key) DO UPDATE SET value = t.value || ("
        " SELECT jsonb_object_agg(by.name, coalesce((t.value ->> by.name)::numeric, 0) + by.amount::numeric)"
        " FROM jsonb_each_text(excluded.value) AS by (name, amount))"
        " WHERE t.document_id IS NULL",
        table=sql.Identifier(schema, table),
    )


@cache
def _upsert_sql(schema: str, table: str, key: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """Update only a row of the same document: a key of another's is left, and the count of rows tells."""
    changed = [column for column in columns if column not in key] or ["version"]
    sets = sql.SQL(", ").join(sql.SQL("{c} = excluded.{c}").format(c=sql.Identifier(name)) for name in changed)
    return _text(
        "INSERT INTO {table} AS t ({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {sets}"
        " WHERE t.document_id = excluded.document_id",
        table=sql.Identifier(schema, table),
        columns=_names(columns),
        marks=sql.SQL(", ").join(sql.SQL("%s") for _ in columns),
        key=_names(key),
        sets=sets,
    )


@cache
def _add_sql(schema: str, table: str, key: tuple[str, ...], numbers: tuple[str, ...]) -> str:
    sets = sql.SQL(", ").join(sql.SQL("{c} = t.{c} + excluded.{c}").format(c=sql.Identifier(n)) for n in numbers)
    return _text(
        "INSERT INTO {table} AS t ({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {sets}",
        table=sql.Identifier(schema, table),
        columns=_names(key + numbers),
        marks=sql.SQL(", ").join(sql.SQL("%s") for _ in key + numbers),
        key=_names(key),
        sets=sets,
    )


@cache
def _delete_sql(schema: str, table: str, columns: tuple[str, ...]) -> str:
    tests = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in columns)
    return _text("DELETE FROM {table} WHERE {tests}", table=sql.Identifier(schema, table), tests=tests)


def _names(columns: tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _text(template: str, **parts: sql.Composable) -> str:
    return sql.SQL(template).format(**parts).as_string(None)
