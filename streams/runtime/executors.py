"""Where handlers run: threads for plain functions, one event loop for coroutines.

An executor takes lanes, runs each lane's records in order until it is empty or one fails, and appends to `results`:
(record, attempt) for each, then (lane, None). The loop's thread drains `results`; nothing here touches the log or
the sink.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Protocol

from streams.contract import Reader
from streams.core.outcomes import Failure
from streams.runtime.handling import Attempt, Handler
from streams.runtime.records import Lane, Record

Results = deque[tuple[Record, Attempt] | tuple[Lane, None]]


class Executor(Protocol):
    """Runs lanes at the reader's concurrency."""

    results: Results

    def start(self) -> None:
        """Make the reader's model or client; what `setup` raises comes out here."""
        ...

    def submit(self, lanes: Iterable[Lane]) -> None:
        """Run these lanes; none may be running already."""
        ...

    def stop(self) -> None:
        """Take no more; a handler at work is left to itself (its thread is a daemon)."""
        ...


def executor_for(reader: Reader) -> Executor:
    """The executor of the handler's kind."""
    return EventLoop(reader) if reader.is_async else Threads(reader)


class Threads:
    """Plain handlers, on `concurrency` threads."""

    def __init__(self, reader: Reader) -> None:
        self.results: Results = deque()
        self._handler = Handler(reader)
        self._lanes: SimpleQueue[Lane | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._work, name=f"handler-{number}", daemon=True) for number in range(reader.concurrency)
        ]

    def start(self) -> None:
        self._handler.set_up()
        for thread in self._threads:
            thread.start()

    def submit(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            self._lanes.put(lane)

    def stop(self) -> None:
        for _ in self._threads:
            self._lanes.put(None)

    def _work(self) -> None:
        while (lane := self._lanes.get()) is not None:
            while (record := _next(lane)) is not None:
                assert record.document is not None
                attempt = self._handler.attempt(record.document)
                self.results.append((record, attempt))
                if type(attempt) is Failure:
                    break
            self.results.append((lane, None))


class EventLoop:
    """Coroutine handlers, on one event loop in a thread of its own, `concurrency` lanes at once."""

    def __init__(self, reader: Reader) -> None:
        self.results: Results = deque()
        self._handler = Handler(reader)
        self._loop = asyncio.new_event_loop()
        self._ready: deque[Lane] = deque()
        self._idle = reader.concurrency
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = Thread(target=self._loop.run_forever, name="handlers", daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._set_up(), self._loop).result()

    async def _set_up(self) -> None:
        made = self._handler.set_up()
        if asyncio.iscoroutine(made):
            self._handler.adopt(await made)

    def submit(self, lanes: Iterable[Lane]) -> None:
        self._loop.call_soon_threadsafe(self._begin, list(lanes))

    def stop(self) -> None:
        stopped = Event()
        self._loop.call_soon_threadsafe(self._end, stopped)
        stopped.wait(1.0)

    def _begin(self, lanes: list[Lane]) -> None:
        self._ready.extend(lanes)
        while self._idle and self._ready:
            self._idle -= 1
            task = self._loop.create_task(self._work())
            self._tasks.add(task)  # the loop itself keeps only weak references
            task.add_done_callback(self._tasks.discard)

    def _end(self, stopped: Event) -> None:
        for task in self._tasks:
            task.cancel()
        self._loop.call_soon(self._loop.stop)
        stopped.set()

    async def _work(self) -> None:
        """One of `concurrency` workers: takes ready lanes until there are none."""
        while self._ready:
            lane = self._ready.popleft()
            while (record := _next(lane)) is not None:
                assert record.document is not None
                attempt = await self._handler.attempt_async(record.document)
                self.results.append((record, attempt))
                if type(attempt) is Failure:
                    break
            self.results.append((lane, None))
        self._idle += 1


def _next(lane: Lane) -> Record | None:
    """The lane's next record; the loop empties the lane to take it back."""
    try:
        return lane.records.popleft()
    except IndexError:
        return None
