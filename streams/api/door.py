"""The door: while too much waits for the relay, writes are refused, with the time when to come again.

The bound is the outbox's: bytes of the write-ahead log that Postgres keeps until the relay has put them into the log.
While the log is away saves are taken up to it, and all of them arrive afterwards. Watched beside the app, asked by
`streams.api.writes`; asks Postgres about the slot.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING

from streams.cdc import slot
from streams.errors import Overloaded, Unavailable

if TYPE_CHECKING:
    from streams.api.resources import Database

ASK_SECONDS = 1.0
# A verdict that is older says nothing: Postgres does not answer, and then refuses writes by itself.
VERDICT_SECONDS_MAX = 30.0
RATE_SECONDS = 15.0  # over which the drain is measured: the relay confirms its position every few seconds
RETRY_AFTER_SECONDS_MAX = 60


class Backlog:
    """What waits for the relay, as it was seen lately. Pure: times are arguments, in monotonic seconds."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, waiting_bytes: int, now: float) -> None:
        """What is waiting now."""
        while self._seen and now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        self._seen.append((now, waiting_bytes))

    def require(self, now: float) -> None:
        """Raises Overloaded while it is over the bound, as far as is known."""
        if not self._seen:
            return
        at, waiting_bytes = self._seen[-1]
        if waiting_bytes > self._bytes_max and now - at <= VERDICT_SECONDS_MAX:
            waiting, most = (f"{size / 1e6:,.1f} MB" for size in (waiting_bytes, self._bytes_max))
            says = f"{waiting} of changes wait for the relay, more than {most}: nothing is saved until it has caught up"
            raise Overloaded(says, self._retry_after_seconds())

    def _retry_after_seconds(self) -> int:
        """The time to drain to the bound, as it went lately; the longest wait if it does not drain."""
        (began, before), (ended, waiting_bytes) = self._seen[0], self._seen[-1]
        if waiting_bytes >= before:
            return RETRY_AFTER_SECONDS_MAX
        seconds = (waiting_bytes - self._bytes_max) * (ended - began) / (before - waiting_bytes)
        return min(RETRY_AFTER_SECONDS_MAX, max(1, ceil(seconds)))


class Door:
    """One process's door; open until it knows better."""

    def __init__(self, bytes_max: int) -> None:
        self._backlog = Backlog(bytes_max)

    async def watch(self, database: Database) -> None:
        """Look once a second."""
        while True:
            with suppress(Unavailable):  # then the writes are refused for that
                state = await database.run(slot.read_state)
                self._backlog.note(state.lag_bytes or 0, time.monotonic())
            await asyncio.sleep(ASK_SECONDS)

    def require(self) -> None:
        """Raises Overloaded while nothing is to be written."""
        self._backlog.require(time.monotonic())
