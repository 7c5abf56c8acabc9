"""Where handlers run: plain functions on threads, coroutines on one event loop, either in processes of their own.

An executor takes lanes, runs each lane's records in order until it is empty or one fails, and appends to `results`:
(record, attempt) for each, then (lane, None), unless the record stood for its lane. The loop's thread drains `results`;
nothing here touches the log or the sink. With `batch` over 1 the heads of several lanes are one call of the handler,
and a lane whose record is done goes to the end of the queue.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from typing import Protocol

from streams.contract import Reader
from streams.core.outcomes import Failure
from streams.runtime.children import Child
from streams.runtime.handling import Attempt, Call, Handler
from streams.runtime.records import Lane, Record, Run

if sys.platform == "win32":
    from asyncio import new_event_loop
else:
    from uvloop import new_event_loop  # its timers and switches cost half

CALLS_AT_ONCE = 16  # of a reader that does not say: most handlers wait for another machine
Results = deque[tuple[Record, Attempt] | tuple[Run, None]]
Head = tuple[Run, Record]  # a lane and its next record, taken from it


class Executor(Protocol):
    """Runs lanes at the reader's concurrency."""

    results: Results

    def start(self) -> None:
        """Make the reader's model or client; what `setup` raises comes out here."""
        ...

    def submit(self, lanes: Collection[Run]) -> None:
        """Run these lanes; none may be running already."""
        ...

    def stop(self) -> None:
        """Take no more; a handler at work is left to itself (its thread is a daemon)."""
        ...


def executor_for(reader: Reader) -> Executor:
    """The executor of the handler's kind."""
    if reader.runs_as == "async":
        return EventLoop(reader)
    return Processes(reader) if reader.runs_as == "process" else Threads(reader)


class Threads:
    """Plain handlers, on `concurrency` threads that share the ready lanes.

    A thread that was woken goes on until nothing is ready: handing each lane to a thread of its own would cost a
    switch of threads a lane.
    """

    def __init__(self, reader: Reader) -> None:
        self.results: Results = deque()
        self._reader = reader
        self._handler = Handler(reader)
        self._ready: deque[Run] = deque()
        self._wake: SimpleQueue[bool] = SimpleQueue()  # False: end
        self._threads: list[Thread] = []

    def start(self) -> None:
        self._handler.set_up()
        alone = self._reader.batch == 1
        together = partial(self._work_in_batches, lambda calls: self._handler.attempt_each(calls, self._handler.answer))
        self._begin([self._work if alone else together] * (self._reader.concurrency or CALLS_AT_ONCE))

    def submit(self, lanes: Collection[Run]) -> None:
        self._ready.extend(lanes)
        for _ in range(min(len(lanes), len(self._threads))):
            self._wake.put(True)

    def stop(self) -> None:
        for _ in self._threads:
            self._wake.put(False)

    def _begin(self, works: Iterable[Callable[[], None]]) -> None:
        for number, work in enumerate(works):
            thread = Thread(target=work, name=f"handler-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        takes_context, group = self._reader.takes_context, self._reader.group
        while self._wake.get():
            while (lane := self._ready_lane()) is not None:
                while (record := _next(lane)) is not None:
                    assert record.document is not None
                    context = record.context(group) if takes_context else None
                    attempt = self._handler.attempt(record.document, context)
                    self.results.append((record, attempt))
                    if record is lane or type(attempt) is Failure:
                        break
                if record is not lane:
                    self.results.append((lane, None))

    def _work_in_batches(self, attempt_each: Callable[[list[Call]], list[Attempt]]) -> None:
        call_of = _calls_of(self._reader)
        while self._wake.get():
            while heads := self._heads():
                attempts = attempt_each([call_of(record) for _, record in heads])
                self.submit(_ended(heads, attempts, self.results))

    def _heads(self) -> list[Head]:
        """The next records of up to `batch` lanes, as many as are ready."""
        heads: list[Head] = []
        while len(heads) < self._reader.batch and (lane := self._ready_lane()) is not None:
            heads += _head(lane, self.results)
        return heads

    def _ready_lane(self) -> Run | None:
        try:
            return self._ready.popleft()
        except IndexError:
            return None


class Processes(Threads):
    """Handlers of either form in `count` processes, else in `concurrency`, each owned by a thread."""

    def __init__(self, reader: Reader, count: int | None = None) -> None:
        super().__init__(reader)
        self._children = [Child(reader) for _ in range(count or reader.concurrency or os.cpu_count() or 1)]
        self._started: SimpleQueue[BaseException | None] = SimpleQueue()

    def start(self) -> None:
        self._begin(partial(self._serve, child) for child in self._children)
        for _ in self._children:
            if (error := self._started.get()) is not None:
                self.stop()
                raise error

    def stop(self) -> None:
        """No process outlives this, whatever its handler is at."""
        super().stop()
        for child in self._children:
            child.stop()

    def _serve(self, child: Child) -> None:
        try:
            child.start()
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            self._started.put(error)
            return
        self._started.put(None)
        self._work_in_batches(partial(child.attempt, timeout_seconds=self._reader.timeout_seconds))


class EventLoop:
    """Coroutine handlers, on one event loop in a thread of its own, `concurrency` calls at once."""

    def __init__(self, reader: Reader) -> None:
        self.results: Results = deque()
        self._reader = reader
        self._handler = Handler(reader)
        self._loop = new_event_loop()
        self._ready: deque[Run] = deque()
        self._idle = reader.concurrency or CALLS_AT_ONCE
        self._tasks: set[asyncio.Task[None]] = set()
        self._worker = self._work if reader.batch == 1 else self._work_in_batches
        self._thread = Thread(target=self._loop.run_forever, name="handlers", daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._handler.set_up_async(), self._loop).result()

    def submit(self, lanes: Collection[Run]) -> None:
        self._loop.call_soon_threadsafe(self._begin, list(lanes))

    def stop(self) -> None:
        stopped = Event()
        self._loop.call_soon_threadsafe(self._end, stopped)
        stopped.wait(1.0)

    def _begin(self, lanes: list[Run]) -> None:
        self._ready.extend(lanes)
        while self._idle and self._ready:
            self._idle -= 1
            task = self._loop.create_task(self._worker())
            self._tasks.add(task)  # the loop itself keeps only weak references
            task.add_done_callback(self._tasks.discard)

    def _end(self, stopped: Event) -> None:
        for task in self._tasks:
            task.cancel()
        self._loop.call_soon(self._loop.stop)
        stopped.set()

    async def _work(self) -> None:
        """One of `concurrency` workers: takes ready lanes until there are none."""
        takes_context, group = self._reader.takes_context, self._reader.group
        while self._ready:
            lane = self._ready.popleft()
            while (record := _next(lane)) is not None:
                assert record.document is not None
                context = record.context(group) if takes_context else None
                attempt = await self._handler.attempt_async(record.document, context)
                self.results.append((record, attempt))
                if record is lane or type(attempt) is Failure:
                    break
            if record is not lane:
                self.results.append((lane, None))
        self._idle += 1

    async def _work_in_batches(self) -> None:
        call_of = _calls_of(self._reader)
        while self._ready:
            heads: list[Head] = []
            while self._ready and len(heads) < self._reader.batch:
                heads += _head(self._ready.popleft(), self.results)
            attempts = await self._handler.attempt_each_async([call_of(record) for _, record in heads])
            self._ready.extend(_ended(heads, attempts, self.results))
        self._idle += 1


def _next(lane: Run) -> Record | None:
    """The lane's next record; the loop empties the lane to take it back."""
    return lane.take(time.monotonic())


def _head(lane: Run, results: Results) -> list[Head]:
    """The lane with its next record; a lane that was emptied meanwhile ends."""
    record = _next(lane)
    if record is None:
        results.append((lane, None))
        return []
    return [(lane, record)]


def _ended(heads: list[Head], attempts: list[Attempt], results: Results) -> list[Run]:
    """Note how the records ended; gives the lanes that go on."""
    going_on: list[Run] = []
    for (lane, record), attempt in zip(heads, attempts, strict=True):
        results.append((record, attempt))
        if type(attempt) is not Failure and isinstance(lane, Lane) and lane.records:
            lane.current = None  # until it is its turn again
            going_on.append(lane)
        elif record is not lane:
            results.append((lane, None))
    return going_on


def _calls_of(reader: Reader) -> Callable[[Record], Call]:
    """From a record to what it asks of the handler."""
    takes_context = reader.takes_context

    def call_of(record: Record) -> Call:
        assert record.document is not None
        return record.document, record.context(reader.group) if takes_context else None

    return call_of
