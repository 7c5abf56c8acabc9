"""Offsets, positions, and the tracker that says how far a partition may be committed. Pure.

An `Offset` names a record; a `Position` names the next one to read. `after` is the only place of the `+ 1`.
Called by the runtime's checkpoint; rule 2 of docs/ARCHITECTURE.md stands here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NewType

Offset = NewType("Offset", int)
Position = NewType("Position", int)


def after(offset: Offset) -> Position:
    """The position just behind a record."""
    return Position(offset + 1)


class Tracker:
    """Which records of one assigned partition are still unfinished.

    It knows only the offsets that it was given, so gaps (control records, compaction) cost nothing.
    """

    __slots__ = ("_unfinished",)

    def __init__(self) -> None:
        self._unfinished: dict[Offset, None] = {}  # as received, so the first is the lowest

    def __len__(self) -> int:
        """How many records are unfinished."""
        return len(self._unfinished)

    def receive(self, offsets: Iterable[Offset]) -> None:
        """Note records as unfinished, in log order."""
        self._unfinished.update(dict.fromkeys(offsets))

    def finish(self, offsets: Iterable[Offset]) -> None:
        """Note records as finished, in any order."""
        unfinished = self._unfinished
        for offset in offsets:
            unfinished.pop(offset, None)

    def oldest(self) -> Offset | None:
        """The lowest unfinished record: where a successor must begin."""
        return next(iter(self._unfinished), None)
