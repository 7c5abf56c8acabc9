"""Which records may have killed their worker. Pure.

A worker that is killed from outside dies anywhere; one that is killed by a record dies at that record again. So a
partition's owner leaves a trace for the next one, and two deaths in a row whose records overlap make the records of the
second suspect: they run in a child process. That convicts nobody: only the child's own death, which its worker sees,
does. Called by the runtime's loop; kept by the sink.
"""

from __future__ import annotations

from typing import NamedTuple

from streams.core.offsets import Position


class Trace(NamedTuple):
    """What an owner of a partition leaves for the next one."""

    received_to: Position | None = None  # records before it may have been at work; None: the owner let go
    died_from: Position | None = None  # the records of an earlier owner's death, until a commit has passed them
    died_to: Position | None = None


def inherit(left: Trace, committed: Position) -> tuple[Trace, Position]:
    """What a new owner leaves in its turn, and the position before which the records are suspect (0: none is)."""
    earlier = left._replace(received_to=None) if (left.died_to or 0) > committed else Trace()
    if left.received_to is None or left.received_to <= committed:
        return earlier, Position(0)
    overlaps = earlier.died_from is not None and earlier.died_from < left.received_to
    return Trace(None, committed, left.received_to), left.received_to if overlaps else Position(0)
