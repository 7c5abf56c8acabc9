"""The reader's loop: the one thread that owns the consumer and the sink.

    intake → admit (decode, look up, lane) → executor's threads → collect → deliver (one transaction) → checkpoint

Called by streams/ops/worker.py. Each step is short and never waits for a handler, so the group always hears of us.
What it promises is listed, rule by rule, in docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from streams.contract import Reader
from streams.errors import Unavailable
from streams.runtime.admission import Admission, Decode
from streams.runtime.checkpoint import Checkpoints
from streams.runtime.clock import Clock
from streams.runtime.delivery import Delivery
from streams.runtime.dispatch import Dispatch
from streams.runtime.executors import Executor
from streams.runtime.ports import Listener, Log, Message, Partition, PartitionsLost, Sink, SinkBusy
from streams.runtime.records import Assignment

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
    """One worker of one reader. `run` returns when it was asked to stop and everything finished is committed."""

    def __init__(
        self, reader: Reader, records: Log, sink: Sink, decode: Decode, executor: Executor, clock: Clock
    ) -> None:
        self._reader = reader
        self._log = records
        self._clock = clock
        self._sink = sink
        self._assignments: dict[Partition, Assignment] = {}
        self._dispatch = Dispatch(reader, executor, clock)
        self._admission = Admission(reader, sink, decode, clock)
        self._delivery = Delivery(sink, clock)
        self._checkpoints = Checkpoints(records, clock)
        self._full_since: float | None = None
        self._polled_at = 0.0
        self._paused: set[Partition] = set()
        self._stopping = False

    def stop(self) -> None:
        """Ask the loop to drain and return; safe in a signal handler."""
        self._stopping = True

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
        self._admit()
        self._finish_round()

    def _finish_round(self) -> None:
        """From the handlers' results to the commit."""
        self._delivery.add(self._dispatch.collect())
        self._deliver()
        if not self._delivery.pending:  # no attempt before the last failure is on record: an outage burns none
            self._dispatch.wake()
        self._checkpoints.commit_due(self._assignments.values())

    # --------------------------------------------------------------------------------------- reading

    def _intake(self) -> None:
        by_partition: dict[Partition, list[Message]] = {}
        for message in self._read_full() if self._is_full() else self._read():
            by_partition.setdefault(Partition(message.topic(), message.partition()), []).append(message)
        for partition, received in by_partition.items():
            assignment = self._assignments.get(partition)
            if assignment is not None and not assignment.reread:
                assignment.receive(received)

    def _is_full(self) -> bool:
        """Over the bound of records or bytes; once paused, until both are down to half."""
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
        except (SinkBusy, Unavailable) as error:
            log.warning("%s: cannot take its partitions yet: %s", self._reader.group, error)
            for assignment in due:
                assignment.claim_after = now + 0.5

    def _claim_now(self, due: list[Assignment]) -> None:
        partitions = [assignment.partition for assignment in due]
        epochs = self._sink.claim(partitions)
        committed = self._log.committed(partitions)
        for assignment in due:
            at = committed[assignment.partition]
            if assignment.reread:
                self._log.seek(assignment.partition, at.position)
                assignment.reread = False
                self._log.resume({assignment.partition} - self._paused)
            own_pass = self._checkpoints.pass_of(at)
            # Without our pass in it the position is committed anew: a restart must find the pass of this reading.
            assignment.committed = at.position if own_pass else None
            assignment.pass_number = own_pass or self._sink.new_pass()
            assignment.epoch = epochs[assignment.partition]
        starts = ", ".join(f"{p.number}@{committed[p].position or 'start'}" for p in sorted(partitions))
        log.info("%s: reads %s from %s", self._reader.group, partitions[0].topic, starts)

    def _admit(self) -> None:
        """Look up what was received and hand it to its lanes."""
        admitted = self._admission.admit(self._assignments.values())
        self._delivery.add(admitted.unreadable)
        self._dispatch.enqueue(admitted.records)

    # -------------------------------------------------------------------------------------- writing

    def _deliver(self) -> None:
        try:
            self._delivery.deliver(self._assignments)
        except PartitionsLost as error:
            log.warning("%s: %s; what was read of them is dropped", self._reader.group, error)
            for partition in error.partitions & self._assignments.keys():
                self._reread(partition)

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
            self._deliver()
            if not self._delivery.pending and not any(assignment.running for assignment in leaving):
                break
            self._clock.sleep(BUSY_SECONDS)
        with suppress(Unavailable):  # not committed: the successor reads it again, and the guard knows it
            self._checkpoints.commit(leaving, wait=True)
