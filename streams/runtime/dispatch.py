"""Lanes: which record may run now, and what follows from how it ended.

A lane runs one record at a time; a failed one stays at the lane's head until its next attempt, and no other lane
waits for it. Called by the loop, on its thread; hands lanes to an executor and takes their results.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Hashable, Iterable
from itertools import count

from streams.contract import Reader
from streams.core.outcomes import Dead, Failure, Retrying, after_failure
from streams.runtime.clock import Clock
from streams.runtime.delivery import Item
from streams.runtime.executors import Executor
from streams.runtime.records import Lane, Record

log = logging.getLogger(__name__)

# At most this many results a round: a batch's transaction stays well under the sink's ten seconds.
RESULTS_MAX = 2_000


class Dispatch:
    """The lanes of one worker."""

    def __init__(self, reader: Reader, executor: Executor, clock: Clock) -> None:
        self._reader = reader
        self._executor = executor
        self._clock = clock
        self._waiting: list[tuple[float, int, Lane]] = []  # a heap by the time of the next attempt
        self._ticket = count()  # breaks ties, since lanes do not compare
        self._running = 0

    def start(self) -> None:
        """Make the reader's model or client and the threads."""
        self._executor.start()

    def stop(self) -> None:
        """Let the threads end."""
        self._executor.stop()

    @property
    def is_busy(self) -> bool:
        """Whether any handler is at work."""
        return self._running > 0

    @property
    def has_results(self) -> bool:
        """Whether `collect` would give anything."""
        return bool(self._executor.results)

    def enqueue(self, records: Iterable[Record]) -> None:
        """Put looked-up records into their lanes, in log order, and run what can run."""
        ready: dict[Lane, None] = {}
        for record in records:
            lane = self._lane_of(record)
            lane.records.append(record)
            ready[lane] = None
        self._run(ready)

    def wake(self) -> None:
        """Run the lanes whose next attempt is due."""
        now, due = self._clock.monotonic(), []
        while self._waiting and self._waiting[0][0] <= now:
            lane = heapq.heappop(self._waiting)[2]
            lane.waiting = False
            due.append(lane)
        self._run(due)

    def collect(self) -> list[Item]:
        """The results that came since, in each lane's order, as items to write."""
        results = self._executor.results
        items: list[Item] = []
        ended = []
        while results and len(items) < RESULTS_MAX:
            subject, attempt = results.popleft()
            if isinstance(subject, Lane):
                self._ended(subject)
                ended.append(subject)
            elif subject.assignment.alive:
                assert attempt is not None
                outcome = self._decide(subject, attempt) if isinstance(attempt, Failure) else attempt
                items.append(Item(subject, outcome))
        self._run(ended)
        return items

    def _lane_of(self, record: Record) -> Lane:
        key = self._key_of(record)
        lanes = record.assignment.lanes
        lane = lanes.get(key)
        if lane is None:
            lane = lanes[key] = Lane(record.assignment, key)
        return lane

    def _key_of(self, record: Record) -> Hashable:
        if self._reader.order == "partition":
            return None
        if self._reader.order == "none":
            return record.offset
        assert record.document is not None
        return record.document.document_id

    def _run(self, lanes: Iterable[Lane]) -> None:
        """Submit those that have a record, wait for no attempt and do not run already."""
        ready = [
            lane
            for lane in lanes
            if lane.records and not lane.waiting and lane.assignment.alive and lane not in lane.assignment.running
        ]
        for lane in ready:
            lane.assignment.running.add(lane)
        self._running += len(ready)
        self._executor.submit(ready)

    def _ended(self, lane: Lane) -> None:
        self._running -= 1
        lane.assignment.running.discard(lane)
        if not lane.records and not lane.waiting:
            lane.assignment.lanes.pop(lane.key, None)

    def _decide(self, record: Record, failure: Failure) -> Retrying | Dead:
        """Count the attempt; put the record back at its lane's head if it is to be tried again."""
        now = self._clock.now()
        record.attempts += 1
        record.first_failed_at = record.first_failed_at or now
        outcome = after_failure(
            self._reader.retry, failure, record.attempts, record.first_failed_at, now, self._clock.chance()
        )
        if isinstance(outcome, Retrying):
            self._put_back(record, (outcome.next_attempt_at - now).total_seconds())
        log.warning("%s: %s", self._reader.group, _sentence(record, failure, outcome))
        return outcome

    def _put_back(self, record: Record, wait_seconds: float) -> None:
        lane = self._lane_of(record)
        lane.records.appendleft(record)
        lane.waiting = True
        heapq.heappush(self._waiting, (self._clock.monotonic() + wait_seconds, next(self._ticket), lane))


def _sentence(record: Record, failure: Failure, outcome: Retrying | Dead) -> str:
    """One line for the log: which record, which attempt, why, and what now."""
    assert record.document is not None
    what = f"{record.document.document_id} version {record.document.version}"
    where = f"{record.assignment.partition.number}:{record.offset}"
    then = (
        f"again at {outcome.next_attempt_at:%H:%M:%S}" if isinstance(outcome, Retrying) else "given up: a dead letter"
    )
    return f"{what} ({where}) failed, attempt {record.attempts}: {failure.error_class}: {failure.message}; {then}"
