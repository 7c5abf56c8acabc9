"""What is known of all documents, from the latest version of each: totals, owners, windows of time, hot keys. Pure.

A view is a sum over the latest versions. A newer version takes its predecessor out of every sum and puts itself in, an
older or equal one changes nothing: so duplicates, replays and any order of the events give the same views. Two counts
can be meant by "saves", and each stands where it is right:

- `saves` of a document is its version, since every save and every deletion is one version more. So the sum of versions
  counts *all* saves, also those whose events were never read.
- a window counts *latest* versions by their time: a document that is saved again moves from its old minute to the new.

Called by the keeper (puts and drops) and by the web view (asks); calls nothing.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
WINDOWS_MS = (MINUTE_MS, HOUR_MS)
Key = TypeVar("Key")


class Row(NamedTuple):
    """The latest version of a document. `size_bytes` is of title and body in UTF-8; 0 of one that is deleted."""

    version: int
    owner_id: str
    size_bytes: int
    saved_at_ms: int  # since 1970, in UTC
    deleted: bool


@dataclass(slots=True)
class Sums:
    """Sums over some documents: those that are alive, those that are deleted, their versions, their bytes."""

    documents: int = 0
    deleted: int = 0
    saves: int = 0
    size_bytes: int = 0

    def add(self, row: Row, sign: int) -> None:
        """Put a row in (1) or take it out (-1)."""
        self.documents += sign * (not row.deleted)
        self.deleted += sign * row.deleted
        self.saves += sign * row.version
        self.size_bytes += sign * row.size_bytes

    @property
    def is_empty(self) -> bool:
        """Whether no document is in it."""
        return not self.documents and not self.deleted


class Views:
    """The rows of the partitions that this worker has, and every sum over them."""

    def __init__(self) -> None:
        self.totals = Sums()
        self._rows: defaultdict[int, dict[str, Row]] = defaultdict(dict)
        self._owners: defaultdict[str, Sums] = defaultdict(Sums)
        self._windows: dict[int, defaultdict[int, Sums]] = {width: defaultdict(Sums) for width in WINDOWS_MS}

    def put(self, partition: int, document_id: str, row: Row) -> int | None:
        """Take a version of a document; gives the version that is obsolete now: an older one, this one, or None."""
        known = self._rows[partition].get(document_id)
        if known is not None:
            if row.version <= known.version:
                return row.version if row.version < known.version else None
            self._count(known, -1)
        self._rows[partition][document_id] = row
        self._count(row, 1)
        return known.version if known is not None else None

    def drop(self, partition: int) -> None:
        """Forget a partition: it is another worker's now."""
        for row in self._rows.pop(partition, {}).values():
            self._count(row, -1)

    def version(self, partition: int, document_id: str) -> int:
        """The latest version known of a document, 0 if none is."""
        row = self._rows[partition].get(document_id)
        return row.version if row else 0

    def hottest(self, count: int) -> list[tuple[str, Row]]:
        """The documents with the most versions, the hottest first."""
        every = (pair for rows in self._rows.values() for pair in rows.items())
        return heapq.nlargest(count, every, key=lambda pair: pair[1].version)

    def owners(self, count: int) -> list[tuple[str, Sums]]:
        """The owners with the most documents, the largest first."""
        return heapq.nlargest(count, self._owners.items(), key=lambda pair: pair[1].documents)

    def owner_count(self) -> int:
        """How many owners there are, those of deleted documents too."""
        return len(self._owners)

    def windows(self, width_ms: int, count: int) -> list[tuple[int, Sums]]:
        """The latest windows of this width that hold a document, by their start in ms since 1970, the latest first."""
        windows = self._windows[width_ms]
        return [(start * width_ms, windows[start]) for start in heapq.nlargest(count, windows)]

    def _count(self, row: Row, sign: int) -> None:
        self.totals.add(row, sign)
        _add(self._owners, row.owner_id, row, sign)
        for width, windows in self._windows.items():
            _add(windows, row.saved_at_ms // width, row, sign)


def _add(sums: defaultdict[Key, Sums], key: Key, row: Row, sign: int) -> None:
    sums[key].add(row, sign)
    if sums[key].is_empty:
        del sums[key]
