"""What stands in the changelog, as JSON: rows by document and version, and each partition's position. Pure.

A row's key holds the version, so a row never changes, and no writer can put an old row in a new one's place: a worker
that was frozen and wakes up after its successor took over only repeats what is true anyway. The position stands in the
same partition as the rows that it speaks of, so whoever has read it has read them.

Called by the keeper; calls nothing.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from streams.analytics.views import Row

POSITION_KEY = json.dumps("position").encode()


class Position(NamedTuple):
    """Below this offset every event of the partition is in the table."""

    offset: int


class Latest(NamedTuple):
    """A document's version, as a row."""

    document_id: str
    row: Row


def row_key(document_id: str, version: int) -> bytes:
    """The key of a row."""
    return json.dumps([document_id, version]).encode()


def row_value(row: Row) -> bytes:
    """A row without its version, which is in the key."""
    return json.dumps(row[1:]).encode()


def position_value(offset: int) -> bytes:
    """A position."""
    return json.dumps(offset).encode()


def read(key: bytes | None, value: bytes | None) -> Position | Latest | None:
    """What a record says; None for a row that was removed. Raises ValueError for what is not ours."""
    if value is None:
        return None
    try:
        name, content = json.loads(key or b""), json.loads(value)
        if key == POSITION_KEY:
            return Position(int(content))
        document_id, version = name
        return Latest(document_id, Row(version, *content))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key!r} is no key of ours, or its value {value[:100]!r} no value: {error}") from error
