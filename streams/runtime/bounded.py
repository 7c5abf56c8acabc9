"""A log of which only a window comes, no faster than a rate: what a bounded replay reads.

A `ports.Log` around another, so the loop runs on it as on any; made by `streams.ops.replay_worker`, which asks it how
far it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streams.core import groups
from streams.core.bounded import Pace, Window
from streams.core.offsets import Position
from streams.runtime.clock import Clock
from streams.runtime.ports import Checkpoint, Committed, Log, Message, Partition


class Bounded:
    """What it does not change, it hands on. `reached`: what is committed of each partition; `read`: how many came."""

    def __init__(self, log: Log, window: Window, rate_per_second: float | None, clock: Clock) -> None:
        self._log = log
        self._window = window
        self._clock = clock
        self._pace = Pace(rate_per_second, clock.monotonic())
        self._ended: set[Partition] = set()
        self.reached: dict[Partition, Position] = {}
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @property
    def is_through(self) -> bool:
        """Whether every record of the window is done, parked or dead, and committed."""
        return all(self.reached.get(Partition(*one), -1) >= bound.end for one, bound in self._window.bounds.items())

    def poll(self, records_max: int, seconds: float) -> Sequence[Message]:
        allowed = self._pace.allowed(records_max, self._clock.monotonic())
        if allowed < 1:  # a second at most: the group's word can wait so long
            self._clock.sleep(min(seconds, self._pace.wait_seconds))
            return []
        found = self._log.poll(allowed, seconds)
        inside = [one for one in found if self._window.holds(_place(one), one.offset(), one.timestamp()[1])]
        self._pace.took(len(inside))
        self.read += len(inside)
        self._stop_behind(found)
        return inside

    def _stop_behind(self, found: Sequence[Message]) -> None:
        """What lies behind a bound need not even be fetched."""
        behind = {Partition(*_place(one)) for one in found if one.offset() >= self._end(_place(one))}
        if behind:
            self._ended |= behind
            self._log.pause(behind)

    def resume(self, partitions: Iterable[Partition]) -> None:
        self._log.resume(one for one in partitions if one not in self._ended)

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, Committed]:
        found = self._log.committed(partitions)
        self.reached |= {one: said.position for one, said in found.items() if said.position is not None}
        return found

    def position(self, partition: Partition) -> Position | None:
        at = self._log.position(partition)
        return None if at is None else min(at, self._end(groups.Partition(*partition)))

    def commit(self, checkpoints: Mapping[Partition, Checkpoint], *, wait: bool) -> None:
        self._log.commit(checkpoints, wait=wait)
        self.reached |= {one: point.position for one, point in checkpoints.items()}

    def _end(self, partition: groups.Partition) -> Position:
        """0 for a partition that was added since."""
        bound = self._window.bounds.get(partition)
        return Position(0) if bound is None else bound.end


def _place(message: Message) -> groups.Partition:
    return groups.Partition(message.topic(), message.partition())
