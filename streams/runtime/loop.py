"""The reader's loop: the one thread that owns the consumer and the sink.

    intake → admit (decode, look up, lane) → executor's threads → collect → deliver (one transaction) → checkpoint

Called by streams/ops/worker.py. Each step is short and never waits for a handler, so the group always hears of us.
What it promises is listed, rule by rule, in docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from operator import methodcaller
from typing import cast

from streams.contract import Reader
from streams.core.offsets import Position
from streams.core.suspicion import inherit
from streams.errors import Unavailable
from streams.runtime.admission import RETRY_SECONDS, Admission, Decode
from streams.runtime.checkpoint import Checkpoints
from streams.runtime.clock import Clock
from streams.runtime.delivery import Delivery
from streams.runtime.dispatch import Dispatch
from streams.runtime.executors import Executor
from streams.runtime.observing import Parts, Timed, observe
from streams.runtime.parking import Parking
from streams.runtime.ports import Claimed, Listener, Log, Message, Partition, PartitionsLost, Sink, SinkBusy
from streams.runtime.records import Assignment
from streams.runtime.status import Pause, Status, trouble

log = logging.getLogger(__name__)

RECORDS_IN_FLIGHT_MAX = 10_000
BYTES_IN_FLIGHT_MAX = 64 * 1024 * 1024
POLL_RECORDS_MAX = 1_000
IDLE_SECONDS = 0.05  # how long an idle loop waits for a record: bounds the reaction to signals
BUSY_SECONDS = 0.002  # the same while handlers are at work: bounds the wait of their results
THROTTLED_SECONDS = 0.1  # how often a full loop polls
PAUSE_AFTER_SECONDS = 2.0  # full for longer than this: pause. Each resume costs a flat second and the prefetch
DRAIN_SECONDS = 10.0  # for handlers at work when a partition is revoked or the worker stops
# Fenced, yet never told by the group: read the partition again after two session timeouts of 6 s.
RECLAIM_SECONDS = 12.0


class Loop(Listener):
    """One worker of one reader. `run` returns when it was asked to stop and everything finished is committed.

    `replaying`: what handlers are told of whether it is a replay; None: as the reader's progress says of each record.
    """

    def __init__(
        self,
        reader: Reader,
        records: Log,
        sink: Sink,
        decode: Decode,
        executor: Executor,
        clock: Clock,
        name: str = "",
        replaying: bool | None = None,
    ) -> None:
        self._reader = reader
        self._name = name  # of this worker
        self._log = records
        self._clock = clock
        self._timed = Timed(sink, clock)
        sink = cast(Sink, self._timed)
        self._sink = sink
        self._assignments: dict[Partition, Assignment] = {}
        self._dispatch = Dispatch(reader, executor, sink, clock)
        self._admission = Admission(reader, sink, decode, clock, replaying)
        self._delivery = Delivery(sink, clock)
        self._checkpoints = Checkpoints(records, clock)
        self._parking = Parking(reader, records, sink, decode, clock, replaying)
        self._full_since: float | None = None
        self._polled_at = 0.0
        self._paused: set[Partition] = set()
        self._stopping = False
        self._claim_trouble: Pause | None = None
        self._note_after = 0.0

    def stop(self) -> None:
        """Ask the loop to drain and return; safe in a signal handler."""
        self._stopping = True

    def status(self) -> Status:
        """What it does now, and what holds it up; another thread may ask."""
        return observe(
            Parts(
                reader=self._reader.group,
                worker=self._name,
                clock=self._clock,
                sink=self._timed,
                assignments=list(self._assignments.values()),
                admission=self._admission,
                dispatch=self._dispatch,
                delivery=self._delivery,
                parking=self._parking,
                claim_trouble=self._claim_trouble,
                is_full=self._full_since is not None,
                stopping=self._stopping,
            )
        )

    def run(self) -> None:
        """Read until told to stop. Raises what ends a worker: SinkBroken, Unavailable, the error of `setup`."""
        self._dispatch.start()
        self._log.subscribe(self)
        try:
            while not self._stopping:
                self.step()
            self._drain(list(self._assignments))
        finally:
            self.lost(list(self._assignments))  # drained, or broken: nothing more may be written or committed
            self._log.close()
            self._dispatch.stop()

    def step(self) -> None:
        """One round of everything."""
        self._intake()
        self._claim()
        self._load_parked()
        self._admit()
        self._finish_round()

    def _finish_round(self) -> None:
        """From the handlers' results to the commit."""
        self._delivery.add(self._dispatch.collect())
        self._deliver()
        if not self._delivery.pending:  # no attempt before the last failure is on record: an outage burns none
            self._delivery.add(self._dispatch.wake())
        self._checkpoints.commit_due(self._assignments.values())

    # --------------------------------------------------------------------------------------- reading

    def _intake(self) -> None:
        messages = self._read_full() if self._is_full() else self._read()
        for number, group in groupby(messages, key=methodcaller("partition")):
            received = list(group)
            assignment = self._assignments.get(Partition(received[0].topic(), number))
            if assignment is not None and not assignment.reread:
                assignment.receive(received, self._clock.monotonic())

    def _is_full(self) -> bool:
        """In an outage, or over the bound of records or bytes; once paused, until both are down to half."""
        if self._dispatch.is_outage:
            return True
        records = sum(len(one.tracker) for one in self._assignments.values())
        size = sum(one.bytes_in_flight for one in self._assignments.values())
        share = 0.5 if self._paused else 1.0
        return records >= RECORDS_IN_FLIGHT_MAX * share or size >= BYTES_IN_FLIGHT_MAX * share

    def _read(self) -> Sequence[Message]:
        self._full_since = None
        if self._paused:
            self._log.resume(one for one in self._paused if not self._assignments[one].reread)
            self._paused.clear()
        ready = self._delivery.is_due or self._dispatch.has_results
        wait = 0 if ready else BUSY_SECONDS if self._dispatch.is_busy else IDLE_SECONDS
        return self._log.poll(POLL_RECORDS_MAX, wait)

    def _read_full(self) -> Sequence[Message]:
        """Serve the group without taking more, but for the single record that a poll may give."""
        now = self._clock.monotonic()
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since > PAUSE_AFTER_SECONDS and self._assignments.keys() - self._paused:
            self._log.pause(self._assignments.keys() - self._paused)
            self._paused |= self._assignments.keys()
        if now - self._polled_at < THROTTLED_SECONDS:
            self._clock.sleep(BUSY_SECONDS)
            return []
        self._polled_at = now
        if not self._dispatch.is_outage:
            self._delivery.add(self._dispatch.spill(self._assignments.values()))
        return self._log.poll(1, 0)

    # -------------------------------------------------------------------------------------- claiming

    def _claim(self) -> None:
        """Make newly assigned partitions ours in the sink before any of their records runs."""
        now = self._clock.monotonic()
        due = [one for one in self._assignments.values() if one.epoch is None and one.claim_after <= now]
        if not due:
            return
        try:
            self._claim_now(due)
            self._claim_trouble = None
        except (SinkBusy, Unavailable) as error:
            log.warning("%s: cannot take its partitions yet: %s", self._reader.group, error)
            for assignment in due:
                assignment.claim_after = now + RETRY_SECONDS
            self._claim_trouble = trouble(error)

    def _claim_now(self, due: list[Assignment]) -> None:
        partitions = [assignment.partition for assignment in due]
        claimed = self._sink.claim(partitions)
        committed = self._log.committed(partitions)
        for assignment in due:
            at = committed[assignment.partition]
            if assignment.reread:
                self._log.seek(assignment.partition, at.position)
                assignment.reread = False
                self._log.resume({assignment.partition} - self._paused)
            own_pass = self._checkpoints.pass_of(at)
            assignment.committed = at.position if own_pass else None
            assignment.pass_is_noted = own_pass is not None
            assignment.pass_number = own_pass or self._sink.new_pass()
            assignment.admitted_to = at.position or Position(0)
            self._inherit(assignment, claimed[assignment.partition])
        self._parking.ask()
        starts = ", ".join(f"{p.number}@{committed[p].position or 'start'}" for p in sorted(partitions))
        log.info("%s: reads %s from %s", self._reader.group, partitions[0].topic, starts)

    def _inherit(self, assignment: Assignment, claimed: Claimed) -> None:
        """Begin with what the former owner left: perhaps it died of one of the next records."""
        assignment.epoch = claimed.epoch
        assignment.trace, assignment.suspect_to = inherit(claimed.left, assignment.admitted_to)
        if assignment.suspect_to:
            log.warning(
                "%s: two workers died at the same records: %s:%s to %s run in a child process, each by itself",
                self._reader.group,
                assignment.partition.number,
                assignment.admitted_to,
                assignment.suspect_to,
            )

    def _note_passes(self) -> None:
        """Commit a new pass before anything of it is done: a successor that did not know it would do it all again."""
        now = self._clock.monotonic()
        begun = [one for one in self._assignments.values() if one.held and one.epoch is not None]
        new = [one for one in begun if not one.pass_is_noted]
        if not new or now < self._note_after:
            return
        for assignment in new:
            assignment.committed = None
        try:
            self._checkpoints.commit(new, wait=True)
        except Unavailable as error:
            log.warning("%s: cannot begin to read yet: %s", self._reader.group, error)
            self._note_after = now + RETRY_SECONDS
        else:
            for assignment in new:
                assignment.pass_is_noted = True

    def _admit(self) -> None:
        """Look up what was received and hand it to its lanes."""
        self._note_passes()
        admitted = self._admission.admit(one for one in self._assignments.values() if one.pass_is_noted)
        self._delivery.add(admitted.unreadable)
        self._delivery.add(self._dispatch.enqueue(admitted.records, admitted.parked))

    def _load_parked(self) -> None:
        """Bring back parked records; not in an outage, nor while the table lags behind what we know."""
        if self._delivery.pending or self._dispatch.is_outage:
            return
        loaded = self._parking.load(self._assignments)
        self._delivery.add(loaded.settled)
        for record, wait_seconds in loaded.retries:
            self._dispatch.retry(record, wait_seconds)

    # -------------------------------------------------------------------------------------- writing

    def _deliver(self) -> None:
        try:
            self._delivery.deliver(self._assignments)
        except PartitionsLost as error:
            log.warning("%s: %s; what was read of them is dropped", self._reader.group, error)
            for partition in error.partitions & self._assignments.keys():
                self._reread(partition)
        if parked := self._delivery.take_parked():
            self._dispatch.written(parked)
            self._parking.ask()

    def _reread(self, partition: Partition) -> None:
        """Another owns it in the sink. If the group still says it is ours much later, begin it anew."""
        self._drop(partition)
        again = Assignment(partition, claim_after=self._clock.monotonic() + RECLAIM_SECONDS, reread=True)
        self._assignments[partition] = again
        self._log.pause([partition])

    def _drop(self, partition: Partition) -> None:
        self._paused.discard(partition)
        assignment = self._assignments.pop(partition, None)
        if assignment is not None:
            assignment.alive = False
            assignment.forget_unstarted()
            self._delivery.drop(assignment)

    # ------------------------------------------------------------------- the group's word, inside poll

    def assigned(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            self._drop(partition)
            self._assignments[partition] = Assignment(partition)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        try:
            self._drain(partitions)
        except Exception:  # the client would lose dequeued records; what is not committed is read again
            log.exception("%s: could not drain %s", self._reader.group, partitions)
        finally:
            for partition in partitions:
                self._drop(partition)

    def lost(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            self._drop(partition)

    def _drain(self, partitions: Sequence[Partition]) -> None:
        """Let handlers at work finish, write their results, commit: the client lets go when this returns."""
        leaving = [self._assignments[one] for one in partitions if one in self._assignments]
        for assignment in leaving:
            assignment.forget_unstarted()
        deadline = self._clock.monotonic() + DRAIN_SECONDS
        while self._clock.monotonic() < deadline:
            self._delivery.add(self._dispatch.collect())
            self._delivery.add(self._dispatch.settle(leaving))
            self._deliver()
            if not self._delivery.pending and not any(assignment.is_running for assignment in leaving):
                break
            self._clock.sleep(BUSY_SECONDS)
        with suppress(Unavailable):  # not committed: the successor reads it again, and the guard knows it
            self._checkpoints.commit(leaving, wait=True)
        with suppress(SinkBusy):  # then the successor takes it for a death, which alone means nothing
            self._let_go(leaving)

    def _let_go(self, leaving: list[Assignment]) -> None:
        """Tell the successor that nobody died."""
        traces = {
            one.partition: Claimed(one.epoch, one.trace._replace(received_to=None))
            for one in leaving
            if one.epoch is not None and one.alive
        }
        if traces:
            self._sink.leave(traces)
