"""What is committed, and when: never past an unfinished record, never backwards, the pass in the metadata.

Called by the loop; calls the log. The order of a checkpoint: results written → records finished → position read →
commit. A commit that trails costs nothing but a look-up: progress in the sink already knows the records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from streams.core.offsets import Position
from streams.runtime.clock import Clock
from streams.runtime.ports import Checkpoint, Committed, Log, Partition
from streams.runtime.records import Assignment

COMMIT_SECONDS = 0.2
_PASS = re.compile(r"pass:(\d{1,18})")


class Checkpoints:
    """The commits of one worker."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._next_at = 0.0

    def pass_of(self, committed: Committed) -> int | None:
        """The pass that a commit of ours names; None where there is none, or another tool made it."""
        found = _PASS.fullmatch(committed.metadata) if committed.position is not None else None
        return int(found[1]) if found else None

    def commit_due(self, assignments: Iterable[Assignment]) -> None:
        """Commit without waiting, every COMMIT_SECONDS, what moved or was refused before."""
        now = self._clock.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + COMMIT_SECONDS
        refused = self._log.refused()
        current = list(assignments)
        for assignment in current:
            if assignment.partition in refused:
                assignment.committed = None
        self.commit(current, wait=False)

    def commit(self, assignments: Iterable[Assignment], *, wait: bool) -> None:
        """Commit what moved. Raises Unavailable if `wait` and it failed."""
        points: dict[Partition, Checkpoint] = {}
        for assignment in assignments:
            position = self._position(assignment)
            if position is not None and assignment.epoch is not None and position != assignment.committed:
                points[assignment.partition] = Checkpoint(
                    position, assignment.leader_epoch, f"pass:{assignment.pass_number}"
                )
                assignment.committed = position
        if points:
            self._log.commit(points, wait=wait)

    def _position(self, assignment: Assignment) -> Position | None:
        """Where a successor must begin; None while nothing was read."""
        unfinished = assignment.tracker.oldest()
        if unfinished is not None:
            return Position(unfinished)
        return None if assignment.reread else self._log.position(assignment.partition)
