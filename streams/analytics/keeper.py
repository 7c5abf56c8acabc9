"""Takes events into the views and the changelog, and knows how far each partition is done for good.

Why its totals are right whatever Faust commits, and whatever becomes of the commits, in four rules:

1. A row is one version of one document and never changes (its key holds the version). It is removed only after a
   row of a later version was acknowledged. So whoever writes it, and however often, it says what is true.
2. A position is written to the partition of the rows that it speaks of, and only after every event below it was handled
   and what was sent for it acknowledged. So whoever has read a position has read a row of each document's version that
   is below it, or of a later one. This stays true for ever: rows only make way for later ones.
3. Reading begins at the highest position that the changelog gave, or at the log's start if it gave none; nothing else
   says where to begin. So the group's offsets, wherever another tool puts them, are for looking at.
4. The views take the highest version, so what is read twice counts once, in any order.

By 2 and 3 no event is missed: it is below the position and in the table, or it is read. By 1 that holds also when a
worker that was frozen, or has lost the partition without knowing it, writes beside its successor.

Called by the Faust app: recovery gives it the changelog's records, the agent the log's. Calls the codec through
`decode` and the changelog through `write`; knows no Faust.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from streams.analytics import changelog
from streams.analytics.progress import Progress, Sent
from streams.analytics.views import Row, Views
from streams.contract import DocumentSaved
from streams.errors import SchemaError, Unavailable

log = logging.getLogger(__name__)

# Sends a record to a partition of the changelog; a value of None removes the key. Acknowledged when the future is done.
Sending: TypeAlias = "asyncio.Future[object]"
Write = Callable[[int, bytes, bytes | None], Awaitable[Sending]]

_RETRY_SECONDS = 1.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Keeper:
    """The state of one worker. Since it started, `unreadable` counts what could not be read, by kind, `holes` how often
    events were lost on their way here, and `taken` the attempts to read one.
    """

    def __init__(self, decode: Callable[[bytes | None], DocumentSaved], write: Write) -> None:
        self.views = Views()
        self.unreadable: Counter[str] = Counter()
        self.holes = 0
        self.taken = 0
        self._decode = decode
        self._write = write
        self._progress: dict[int, Progress] = {}
        self._written: dict[int, int] = {}
        self._leftovers: dict[int, set[bytes]] = {}

    # ------------------------------------------------------------------------------------- partitions

    @property
    def partitions(self) -> list[int]:
        """Those that this worker has."""
        return sorted(self._progress)

    def take_over(self, partition: int) -> None:
        """The partition is this worker's; what stands in the changelog comes next."""
        self._progress.setdefault(partition, Progress())

    def let_go(self, partition: int) -> None:
        """The partition is no longer this worker's."""
        self.views.drop(partition)
        for kept in (self._progress, self._written, self._leftovers):
            kept.pop(partition, None)

    def position(self, partition: int) -> int | None:
        """Where to read a partition from; None: from its start."""
        return self._progress[partition].position if partition in self._progress else None

    def begin(self, starts: Mapping[int, int]) -> None:
        """These partitions are read from these offsets on."""
        for partition, start in starts.items():
            if partition in self._progress:
                self._progress[partition].begin(start)

    @property
    def has_holes(self) -> bool:
        """Whether events were lost on their way here, so that partitions have to be read again from their position."""
        return any(progress.has_hole for progress in self._progress.values())

    # ----------------------------------------------------------------------------------- the changelog

    def recover(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Take a record of the changelog. Raises nothing: Faust would lose the records around it."""
        if partition not in self._progress:
            return
        try:
            record = changelog.read(key, value)
        except ValueError as error:
            self._count("ForeignRow", f"partition {partition} of the changelog: {error}")
            return
        if isinstance(record, changelog.Position):
            self._progress[partition].learn(record.offset)
        elif record is not None:
            self._put(partition, record.document_id, record.row)
        elif key is not None:
            self._leftovers.get(partition, set()).discard(key)

    def _put(self, partition: int, document_id: str, row: Row) -> None:
        """Of two rows of one document the older is left over if nothing in the changelog removes it."""
        obsolete = self.views.put(partition, document_id, row)
        if obsolete is not None:
            self._leftovers.setdefault(partition, set()).add(changelog.row_key(document_id, obsolete))

    # ---------------------------------------------------------------------------------------- the log

    async def take(self, partition: int, offset: int, before: int | None, value: bytes | None) -> None:
        """Take an event of the log; `before` is the offset of the one fetched before it. Raises if sending failed."""
        progress = self._progress.get(partition)
        if progress is None:
            return
        document = await self._read(partition, offset, value)
        if self._progress.get(partition) is not progress:
            return  # let go while the registry was asked
        sent, obsolete = await self._keep(partition, document) if document else (None, None)
        progress.handled(offset, before, sent, obsolete)
        await self._settle(partition, progress)

    async def _read(self, partition: int, offset: int, value: bytes | None) -> DocumentSaved | None:
        """The event, waiting for the registry if it must be asked; None, counted and said, if it cannot be read."""
        while True:
            self.taken += 1
            try:
                return self._decode(value)
            except Unavailable as error:
                log.warning("%s; tried again", error)
                await asyncio.sleep(_RETRY_SECONDS)
            except SchemaError as error:
                self._count(type(error).__name__, f"partition {partition}, offset {offset}: {error}")
                return None

    async def _keep(self, partition: int, document: DocumentSaved) -> tuple[Sent | None, bytes | None]:
        """Put a version into the views and the changelog; what was sent, and the key that is obsolete once it is there.

        A version that is not new is there already, or on its way before this one.
        """
        known = self.views.version(partition, document.document_id)
        if document.version <= known:
            return None, None
        row = _row(document)
        self.views.put(partition, document.document_id, row)
        key = changelog.row_key(document.document_id, document.version)
        sent = await self._write(partition, key, changelog.row_value(row))
        return sent, changelog.row_key(document.document_id, known) if known else None

    # --------------------------------------------------------------------------------------- settling

    async def _settle(self, partition: int, progress: Progress) -> None:
        for key in progress.settle():
            await self._write(partition, key, None)

    async def save(self) -> dict[int, int]:
        """Write the positions that moved, and remove what is left over; gives all. Raises what sending did."""
        for partition, progress in list(self._progress.items()):
            await self._settle(partition, progress)
            # With something on its way, the later row might be what is not there yet: next time.
            for key in () if progress.unsettled else self._leftovers.pop(partition, ()):
                await self._write(partition, key, None)
        known = {number: each.position for number, each in self._progress.items() if each.position is not None}
        moved = {number: position for number, position in known.items() if self._written.get(number) != position}
        sent = [
            await self._write(number, changelog.POSITION_KEY, changelog.position_value(position))
            for number, position in moved.items()
        ]
        for acknowledgement in sent:
            await acknowledgement
        self._written |= {number: position for number, position in moved.items() if number in self._progress}
        return known

    def _count(self, kind: str, said: str) -> None:
        """Say the first of each kind, and then each at a time when there are ten times as many."""
        self.unreadable[kind] += 1
        count = self.unreadable[kind]
        if str(count).rstrip("0") == "1":
            log.warning("unreadable and passed over (%s, %s so far): %s", kind, f"{count:,}", said)


def _row(document: DocumentSaved) -> Row:
    return Row(
        version=document.version,
        owner_id=document.owner_id,
        size_bytes=len(document.title.encode()) + len(document.body.encode()),
        saved_at_ms=round((document.saved_at - _EPOCH).total_seconds() * 1000),
        deleted=document.type == "deleted",
    )
