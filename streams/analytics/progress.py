"""How far one partition is: the position below which every event is in the table for good. Pure.

The position moves past an event when the event was handled, all before it were, and what was sent for them to the
changelog was acknowledged. It is claimed only of events that came without a hole: each names the event before it, as
it was fetched. One that Faust lost on its way (it drops what it holds when the group changes, and skips what it takes
for old) leaves a hole, which nothing passes until the partition is read again from its position.

Called by the keeper; calls nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol


class Sent(Protocol):
    """What was sent and is not acknowledged yet: a future."""

    def done(self) -> bool: ...

    def result(self) -> object: ...


@dataclass(slots=True)
class _Step:
    """An event that was handled. `position` is behind it, None if it vouches for nothing; `obsolete` is a row's key."""

    position: int | None
    sent: Sent | None
    obsolete: bytes | None


class Progress:
    """One partition's. `position` is None before anything is known."""

    def __init__(self) -> None:
        self.position: int | None = None
        self.has_hole = False
        self._last: int | None = None
        self._steps: deque[_Step] = deque()

    def learn(self, position: int) -> None:
        """The changelog says that this much is done, whoever did it."""
        self.position = max(position, self.position or 0)

    def begin(self, position: int) -> None:
        """It is read from `position` on. What was sent before must still arrive."""
        self.learn(position)
        self._last, self.has_hole = position - 1, False

    def handled(self, offset: int, before: int | None, sent: Sent | None = None, obsolete: bytes | None = None) -> None:
        """Note an event. `before` is the offset of the one fetched before it, `begin`'s position - 1 for the first."""
        follows = self._last is not None and before == self._last
        if follows:
            self._last = offset
        elif self._last is None or offset > self._last:
            self.has_hole = True
        self._steps.append(_Step(offset + 1 if follows else None, sent, obsolete))

    def settle(self) -> list[bytes]:
        """Move past what is acknowledged; gives the keys of rows that are obsolete now. Raises what sending did."""
        obsolete: list[bytes] = []
        while self._steps and (self._steps[0].sent is None or self._steps[0].sent.done()):
            step = self._steps.popleft()
            if step.sent is not None:
                step.sent.result()
            if step.position is not None:
                self.learn(step.position)
            if step.obsolete is not None:
                obsolete.append(step.obsolete)
        return obsolete

    @property
    def unsettled(self) -> int:
        """How many events were handled and are not settled."""
        return len(self._steps)
