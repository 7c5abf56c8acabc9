"""From the parts of a running loop to its status: counters, what is in flight, and why the oldest record is.

Called by `Loop.status`, on a thread of the worker's that is not the loop's: a loop that hangs in the sink could not
tell of it. So nothing here changes anything, and every container is copied, in one step of the interpreter, before it
is walked; a figure may be off by what happened in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streams.core.offsets import Offset
from streams.runtime.admission import Admission
from streams.runtime.clock import Clock
from streams.runtime.delivery import Delivery
from streams.runtime.dispatch import Dispatch
from streams.runtime.parking import Parking
from streams.runtime.ports import Sink
from streams.runtime.records import Assignment, Lane, Record, Run
from streams.runtime.status import OUTCOMES, Blocked, Pause, Status, cut

SLOW_SECONDS = 2.0  # a call of the sink takes milliseconds; a server that is frozen never answers


class Timed:
    """A sink that tells how long its present call takes; else it is the sink that it stands for."""

    def __init__(self, sink: Sink, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self._asked_at: float | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._sink, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            self._asked_at = self._clock.monotonic()
            try:
                return method(*arguments, **named)
            finally:
                self._asked_at = None

        return timed

    def trouble(self) -> Pause | None:
        """That it is silent."""
        asked_at = self._asked_at
        seconds = 0.0 if asked_at is None else self._clock.monotonic() - asked_at
        return Pause("sink", f"the sink has not answered for {int(seconds)} s") if seconds > SLOW_SECONDS else None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a loop consists of, as far as its status needs it."""

    reader: str
    worker: str
    clock: Clock
    sink: Timed
    assignments: Sequence[Assignment]
    admission: Admission
    dispatch: Dispatch
    delivery: Delivery
    parking: Parking
    claim_trouble: Pause | None
    is_full: bool
    stopping: bool


def observe(parts: Parts) -> Status:
    """The status now."""
    records = sum(len(one.tracker) for one in parts.assignments)
    size = sum(one.bytes_in_flight for one in parts.assignments)
    written = parts.delivery.counted.copy() + parts.admission.counted.copy()
    return Status(
        reader=parts.reader,
        worker=parts.worker,
        records={outcome: written[outcome] for outcome in OUTCOMES},
        in_flight_records=max(0, records),
        in_flight_bytes=max(0, size),
        running_handlers=len(parts.dispatch.at_work()),
        waiting_lanes=parts.dispatch.lanes_waiting,
        partitions=tuple(sorted(one.partition.number for one in parts.assignments)),
        paused=_pause(parts, records, size),
        stopping=parts.stopping,
        blocked=_blocked(parts),
    )


# -------------------------------------------------------------------------------------------------- pauses


def _pause(parts: Parts, records: int, size: int) -> Pause | None:
    """Why nothing more comes in; what is at the root of it before what follows from it."""
    if not parts.dispatch.started:
        return Pause("setup", "its setup runs")
    if not parts.assignments:
        return Pause("unassigned", "not yet assigned")
    if trouble := _trouble(parts):
        return trouble
    if (since := parts.dispatch.outage_since) is not None:
        opened = parts.clock.now() - timedelta(seconds=parts.clock.monotonic() - since)
        return Pause("outage", f"outage: the breaker is open since {opened:%H:%M:%S} UTC, probes go on")
    if parts.is_full:
        return Pause("full", f"full: {records:,} records, {size / 1_000_000:,.1f} MB in flight")
    return None


def _trouble(parts: Parts) -> Pause | None:
    """What a server answered that something waits for, or that it does not."""
    if silent := parts.sink.trouble():
        return silent
    if parts.delivery.trouble:
        return parts.delivery.trouble
    if parts.claim_trouble and any(one.epoch is None for one in parts.assignments):
        return parts.claim_trouble
    if parts.admission.trouble and any(one.held for one in parts.assignments):
        return parts.admission.trouble
    return parts.parking.trouble


# ---------------------------------------------------------------------------------------- the oldest record


def _blocked(parts: Parts) -> Blocked | None:
    """The record that has been in flight for longest, of all partitions."""
    now = parts.clock.monotonic()
    oldest = [(since, one, offset) for one in parts.assignments for offset, since in _oldest(one)]
    if not oldest:
        return None
    since, assignment, offset = min(oldest, key=lambda each: each[0])
    record, why = _found(parts, assignment, offset, now)
    key = record.message.key() if record else _held_key(assignment)
    return Blocked(
        partition=assignment.partition.number,
        offset=offset,
        key=cut((key or b"").decode("utf-8", "replace")),
        version=record.document.version if record and record.document else None,
        seconds=round(max(0.0, now - since), 1),
        why=cut(why),
    )


def _oldest(assignment: Assignment) -> Iterator[tuple[Offset, float]]:
    """The lowest unfinished offset and when it was received; none if there is none."""
    try:
        offset = assignment.tracker.oldest()
    except IndexError:  # it ended between two looks
        return
    since = [seen for first, seen in list(assignment.marks) if offset is not None and first <= offset]
    if offset is not None and since:
        yield offset, since[-1]


def _found(parts: Parts, assignment: Assignment, offset: Offset, now: float) -> tuple[Record | None, str]:
    """Where the record is, from the end of its way to the beginning, and why it is still there."""

    def is_it(record: Record) -> bool:
        return record.offset == offset and record.assignment is assignment and not record.parked

    for record in filter(is_it, parts.delivery.unwritten()):
        trouble = parts.sink.trouble() or parts.delivery.trouble
        return record, trouble.says if trouble else "waits to be written"
    for record in filter(is_it, parts.dispatch.unheard()):
        return record, "its handler ended, and the loop is busy"
    for record in filter(is_it, parts.dispatch.undecided()):
        return record, "it failed; that it is no outage is not decided yet"
    for lane in [*list(assignment.lanes.values()), *parts.dispatch.submitted()]:
        if lane.current and is_it(lane.current):
            return lane.current, f"its handler runs for {int(now - (lane.current_since or now))} s"
        for record in filter(is_it, list(lane.records)):
            return record, _waits(parts, lane, now)
    return None, _unread(parts, assignment)


def _waits(parts: Parts, lane: Run, now: float) -> str:
    """Why a record in a lane has not begun."""
    for one in parts.dispatch.at_work():
        if one.current and (one is lane or _is_first_of(one, lane)):
            ahead = one.current.document
            version = f"version {ahead.version}" if ahead else "a record"
            seconds = int(now - (one.current_since or now))
            return f"waits behind {version} of its lane, whose handler runs for {seconds} s"
    if isinstance(lane, Record):
        return "waits for a free handler"
    if lane.waiting:
        return "waits behind a record of its lane that failed"
    if parts.dispatch.is_stopped(lane):
        return "waits for the end of an outage"
    return "waits for a free handler"


def _is_first_of(run: Run, lane: Run) -> bool:
    """Whether it stood for the lane before that was made."""
    if isinstance(run, Lane) or isinstance(lane, Record):
        return False
    return run.assignment is lane.assignment and run.lane == lane.key


def _unread(parts: Parts, assignment: Assignment) -> str:
    """Why a record has not come to a lane."""
    if assignment.epoch is None:
        return parts.claim_trouble.says if parts.claim_trouble else "its partition is being claimed"
    trouble = parts.sink.trouble() or parts.admission.trouble
    return trouble.says if trouble else "waits to be looked up"


def _held_key(assignment: Assignment) -> bytes | None:
    first = next(iter(list(assignment.held)), None)
    return first.key() if first is not None else None
