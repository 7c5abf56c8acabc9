"""Lanes: which record may run now, and what follows from how it ended.

A lane runs one record at a time. A failed one is parked, and all that comes after it in its lane behind it; no other
lane waits. Called by the loop, on its thread; hands lanes to an executor and takes their results.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import count

from streams.contract import Reader
from streams.core.breaker import Breaker
from streams.core.outcomes import Behind, Dead, Failure, Retrying, after_failure, is_used_up
from streams.runtime.admission import RETRY_SECONDS
from streams.runtime.clock import Clock
from streams.runtime.executors import Executor
from streams.runtime.ports import Sink, SinkBusy
from streams.runtime.records import Assignment, Lane, Record, Run

log = logging.getLogger(__name__)

# At most this many results a round: a batch's transaction stays well under the sink's ten seconds.
RESULTS_MAX = 2_000
# Once no more can be taken in, a lane longer than this goes on in the table of parked records; so does one whose head
# runs longer than this.
LANE_RECORDS_MAX = 1_000
HEAD_SECONDS_MAX = 60.0
# A failure is held for so long before it is counted and parked, unless another record goes well first: at ten results a
# second the breaker suspects an outage by then, after five.
UNSUSPECTED_SECONDS = 0.5
# What may be an outage's is held until that is known, but no longer than this.
UNDECIDED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Undecided:
    """A failure that waits for the breaker's word."""

    record: Record
    lane: Lane
    failure: Failure
    is_last: bool
    since: float  # monotonic seconds
    at: datetime  # of the failure, from which its backoff runs


class Dispatch:
    """The lanes of one worker."""

    def __init__(self, reader: Reader, executor: Executor, sink: Sink, clock: Clock) -> None:
        self._reader = reader
        self._executor = executor
        self._sink = sink
        self._clock = clock
        self._breaker = Breaker()
        self._waiting: list[tuple[float, int, Lane]] = []  # a heap by the time of the next attempt
        self._ticket = count()  # breaks ties, since lanes do not compare
        self._undecided: deque[_Undecided] = deque()
        self._stopped: dict[Lane, None] = {}  # by the breaker
        self._running: set[Run] = set()
        self.started = False  # whether `setup` is through

    def start(self) -> None:
        """Make the reader's model or client and the threads."""
        self._executor.start()
        self.started = True

    def stop(self) -> None:
        """Let the threads end."""
        self._executor.stop()

    @property
    def is_busy(self) -> bool:
        """Whether any handler is at work."""
        return bool(self._running)

    @property
    def is_outage(self) -> bool:
        """Whether the breaker is open, with records at hand to probe: then nothing new is to be read."""
        return self._breaker.is_open and bool(self._stopped or self._undecided or self._running)

    @property
    def has_results(self) -> bool:
        """Whether `collect` would give anything."""
        return bool(self._executor.results)

    def enqueue(self, records: Iterable[Record], parked: set[str]) -> list[Record]:
        """Put records into their lanes, in log order, and run what can run; those of `parked` lanes go behind."""
        alone: dict[Run, None] = {}
        ready: dict[Lane, None] = {}
        behind = []
        now, is_open = self._clock.monotonic(), self._breaker.is_open
        for record in records:
            name, lanes = record.lane, record.assignment.lanes
            before = lanes.get(name)
            if before is None and name not in parked and not is_open:
                lanes[name] = record
                alone[record] = None
                continue
            lane = self._lane_of(record)
            if isinstance(before, Record) and before in alone:  # not submitted yet: the first of the lane
                del alone[before]
                lane.running = False
                lane.records.append(before)
            lane.parking = lane.parking or lane.key in parked or _runs_too_long(lane, now)
            if lane.parking:
                behind.append(_parks(lane, record, Behind()))
            else:
                lane.records.append(record)
                ready[lane] = None
        self._submit(alone)
        self._run(ready)
        return behind

    def spill(self, assignments: Iterable[Assignment]) -> list[Record]:
        """Park what is too long: such a lane keeps the records of others out. A whole partition has no others."""
        behind: list[Record] = []
        for lane in (one for assignment in assignments for one in assignment.lanes.values() if isinstance(one, Lane)):
            if self._reader.order == "key" and len(lane.records) > LANE_RECORDS_MAX:
                lane.parking = True
                taken = [lane.records.pop() for _ in range(len(lane.records) - LANE_RECORDS_MAX)]
                behind += [_parks(lane, record, Behind()) for record in reversed(taken)]
        return behind

    def retry(self, record: Record, wait_seconds: float) -> None:
        """Run a parked record, the head of its lane, when its time has come."""
        lane = self._lane_of(record)
        lane.parking = True
        lane.records.append(record)
        self._wait(lane, wait_seconds)

    def wake(self) -> list[Record]:
        """Run the lanes whose next attempt is due; decide on failures that waited for the breaker."""
        now, due = self._clock.monotonic(), []
        while self._waiting and self._waiting[0][0] <= now:
            lane = heapq.heappop(self._waiting)[2]
            lane.waiting = False
            due.append(lane)
        self._run(due)
        return self._decide_held(now)

    def collect(self) -> list[Record]:
        """What ended since, in each lane's order, with the outcome to write."""
        results = self._executor.results
        decided: list[Record] = []
        ended: list[Lane] = []
        succeeded = 0
        while results and len(decided) < RESULTS_MAX:
            subject, attempt = results.popleft()
            if attempt is not None and isinstance(subject, Record) and subject.assignment.alive:
                if isinstance(attempt, Failure):
                    self._note_successes(succeeded)
                    succeeded = 0
                    decided += self._failed(subject, attempt)
                else:
                    if subject.parked:
                        self._breaker.note(subject.lane, failed=False, is_first=False, now=self._clock.monotonic())
                    succeeded += not subject.parked
                    subject.outcome = attempt
                    decided.append(subject)
            if subject in self._running:
                self._ends(subject, ended)
        self._note_successes(succeeded)
        self._run(ended)
        for lane in ended:
            self._forget(lane)
        return decided

    def written(self, records: Iterable[Record]) -> None:
        """The sink knows these now: what was parked in memory is found in the table."""
        for record in records:
            if record.parks is not None:
                record.parks.unwritten -= 1
                self._forget(record.parks)

    # ------------------------------------------------- for the status, which another thread asks for

    @property
    def lanes_waiting(self) -> int:
        """How many heads of parked lanes are in memory until the time of their next attempt."""
        return len(self._waiting)

    @property
    def outage_since(self) -> float | None:
        """When the breaker opened, in monotonic seconds; None without an outage."""
        return self._breaker.opened_at if self.is_outage else None

    def submitted(self) -> list[Run]:
        """What the executor has, begun or not."""
        return list(self._running)

    def at_work(self) -> set[Run]:
        """The lanes whose handler runs: submitted, begun, and not ended."""
        ended = {subject for subject, _ in list(self._executor.results)}
        return {lane for lane in list(self._running) if lane.current is not None} - ended

    def unheard(self) -> list[Record]:
        """Records whose handler ended, and the loop does not know it."""
        return [subject for subject, _ in list(self._executor.results) if isinstance(subject, Record)]

    def undecided(self) -> list[Record]:
        """Failed ones that wait for the breaker's word."""
        return [one.record for one in list(self._undecided)]

    def is_stopped(self, lane: Lane) -> bool:
        """Whether the breaker holds it back."""
        return lane in self._stopped

    # ------------------------------------------------------------------------------------------- lanes

    def _lane_of(self, record: Record) -> Lane:
        lanes = record.assignment.lanes
        found = lanes.get(record.lane)
        if isinstance(found, Lane):
            return found
        lane = lanes[record.lane] = Lane(record.assignment, record.lane)
        if found is not None:  # the record that stood for it, which is the first of it
            lane.running = True
            lane.began_at = self._clock.monotonic() if found.current_since is None else found.current_since
        return lane

    def _run(self, lanes: Iterable[Lane]) -> None:
        """Submit those that have a record, wait for nothing and do not run already; in an outage, a probe alone."""
        now = self._clock.monotonic()
        ready = []
        for lane in lanes:
            if not lane.records or lane.waiting or not lane.assignment.alive or lane.running:
                continue
            if self._breaker.is_open and not self._breaker.may_probe(now):
                self._stopped[lane] = None
                continue
            ready.append(lane)
        ready = self._noted(ready)
        for lane in ready:
            lane.began_at, lane.current = now, None
            lane.running = True
        self._submit(ready)

    def _noted(self, lanes: list[Lane]) -> list[Lane]:
        """Those that may run: should a parked record kill us, the sink must know that it was at work."""
        unnoted = [lane for lane in lanes if lane.records[0].parked and not lane.records[0].runs_noted]
        if not unnoted:
            return lanes
        heads = [lane.records[0] for lane in unnoted]
        try:
            self._sink.begin(heads)
        except SinkBusy as error:
            log.warning("%s: parked records wait: %s", self._reader.group, error)
            for lane in unnoted:
                self._wait(lane, RETRY_SECONDS)
            return [lane for lane in lanes if not lane.waiting]
        for head in heads:
            head.runs_noted = True
        return lanes

    def _wait(self, lane: Lane, seconds: float) -> None:
        lane.waiting = True
        heapq.heappush(self._waiting, (self._clock.monotonic() + seconds, next(self._ticket), lane))

    def _submit(self, lanes: Collection[Run]) -> None:
        self._running.update(lanes)
        self._executor.submit(lanes)

    def _ends(self, subject: Run, ended: list[Lane]) -> None:
        """The executor is done with it. A record stood for its lane; if others came, or it failed, there is one now."""
        self._running.remove(subject)
        if isinstance(subject, Record):
            lanes = subject.assignment.lanes
            if lanes[subject.lane] is subject:
                del lanes[subject.lane]
                return
            subject = self._lane_of(subject)
        subject.running = False
        ended.append(subject)

    def _forget(self, lane: Lane) -> None:
        """Let an idle lane go: its next record makes it anew."""
        if not lane.records and not lane.waiting and not lane.unwritten and not lane.running:
            lane.assignment.lanes.pop(lane.key, None)

    # ------------------------------------------------------------------------------------- what ended

    def _note_successes(self, count: int) -> None:
        if count:
            self._breaker.note_successes(count, self._clock.monotonic())

    def _failed(self, record: Record, failure: Failure) -> list[Record]:
        now = self._clock.monotonic()
        lane = self._lane_of(record)
        self._breaker.note(lane.key, not failure.permanent, not record.parked, now)
        at = self._clock.now()
        if failure.permanent:
            return self._decide(record, lane, failure, at)
        is_last = is_used_up(self._reader.retry, record.attempts + 1)
        lane.waiting = True
        self._undecided.append(_Undecided(record, lane, failure, is_last, now, at))
        return []

    def _decide_held(self, now: float) -> list[Record]:
        """An outage gives the records back unburnt; a sign that others go well, or the end of patience, counts them."""
        items: list[Record] = []
        if self._breaker.is_open:
            while self._undecided:
                held = self._undecided.popleft()
                held.lane.waiting = False
                held.lane.records.appendleft(held.record)
                self._stopped[held.lane] = None
        items += self._decide_those(lambda held: self._is_decided(held, now))
        self._resume_stopped()
        return items

    def settle(self, leaving: Collection[Assignment]) -> list[Record]:
        """Count what failed a moment ago of partitions that go; what may be an outage's is left to their next owner."""
        if self._breaker.suspects(self._clock.monotonic()):
            return []
        return self._decide_those(lambda held: held.record.assignment in leaving and not held.is_last)

    def _decide_those(self, chosen: Callable[[_Undecided], bool]) -> list[Record]:
        items: list[Record] = []
        undecided, self._undecided = self._undecided, deque()
        for held in undecided:
            if not chosen(held):
                self._undecided.append(held)
                continue
            held.lane.waiting = False
            if held.record.assignment.alive:
                items += self._decide(held.record, held.lane, held.failure, held.at)
        return items

    def _is_decided(self, held: _Undecided, now: float) -> bool:
        """A last attempt waits as long as one under suspicion: after it there is nothing to give back."""
        seconds = now - held.since
        if seconds >= UNDECIDED_SECONDS:
            return True
        unsuspected = seconds >= UNSUSPECTED_SECONDS and not held.is_last
        return not self._breaker.suspects(now) and (unsuspected or self._breaker.answered_at > held.since)

    def _resume_stopped(self) -> None:
        """All of them when the breaker is closed; else the next in turn, if a probe is due: new ones before failed."""
        lanes = sorted(self._stopped, key=lambda lane: lane.parking)
        self._stopped.clear()
        self._run(lanes)

    def _decide(self, record: Record, lane: Lane, failure: Failure, at: datetime) -> list[Record]:
        """Count the attempt that failed at a time: park the record and all behind it, or give it up."""
        record.attempts += 1
        record.first_failed_at = record.first_failed_at or at
        outcome = after_failure(
            self._reader.retry, failure, record.attempts, record.first_failed_at, at, self._clock.chance()
        )
        log.warning("%s: %s", self._reader.group, _sentence(record, failure, outcome))
        if isinstance(outcome, Dead):
            self._run([lane])
            self._forget(lane)  # where it waited for the breaker's word, nothing else would
            record.outcome = outcome
            return [record]
        lane.parking = True
        items = [_parks(lane, record, outcome)]
        while lane.records:
            items.append(_parks(lane, lane.records.popleft(), Behind()))
        return items


def _parks(lane: Lane, record: Record, outcome: Retrying | Behind) -> Record:
    """An outcome that moves the record to the table; until it is written only the lane knows of it."""
    lane.unwritten += 1
    record.outcome, record.parks = outcome, lane
    return record


def _runs_too_long(lane: Lane, now: float) -> bool:
    return now - lane.began_at > HEAD_SECONDS_MAX and lane.running


def _sentence(record: Record, failure: Failure, outcome: Retrying | Dead) -> str:
    """One line for the log: which record, which attempt, why, and what now."""
    assert record.document is not None
    what = f"{record.document.document_id} version {record.document.version}"
    _topic, partition, offset = record.at
    then = (
        f"again at {outcome.next_attempt_at:%H:%M:%S}" if isinstance(outcome, Retrying) else "given up: a dead letter"
    )
    why = f"{failure.error_class}: {failure.message}"
    return f"{what} ({partition}:{offset}) failed, attempt {record.attempts}: {why}; {then}"
