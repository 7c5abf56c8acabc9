"""A producer and a group of workers, simulated record by record: what `streams lag` says can be held to what is so.

Each partition is a row of offsets that are records or markers. Nothing here knows how lag is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streams.core.density import Density, Reading, Span
from streams.core.groups import Group, Partition
from streams.core.lag import GroupLag, PartitionLag, group_lag
from streams.core.outlook import Outlook, outlook
from streams.core.series import Sample, after

STEP_SECONDS = 0.2
RECORD, MARKER = 1, 0


@dataclass
class Log:
    """One partition: what stands at each offset, how far its reader is, and how far it has committed."""

    entries: bytearray = field(default_factory=bytearray)
    position: int = 0
    committed: int = 0
    backlog: int = 0  # records after the position
    uncommitted: int = 0  # records after the commit
    owed: float = 0.0  # parts of a record that a step's rate has left over
    budget: float = 0.0

    def append(self, records: float) -> None:
        """Records in one transaction, which ends with a marker."""
        self.owed += records
        whole = int(self.owed)
        self.owed -= whole
        if whole:
            self.entries += bytes([RECORD]) * whole + bytes([MARKER])
            self.backlog += whole
            self.uncommitted += whole

    def read(self, records: float) -> float:
        """Work off up to so many records; gives what was not needed."""
        left = records
        while self.position < len(self.entries):
            is_record = self.entries[self.position]
            if is_record and left < 1:
                break
            left -= is_record
            self.position += 1
            self.backlog -= is_record
        return left

    def commit(self) -> None:
        self.committed, self.uncommitted = self.position, self.backlog

    def go_to(self, position: int) -> None:
        """Set the reader and its commit to a place, as a replay does."""
        self.position, self.backlog = position, sum(self.entries[position:])
        self.commit()


@dataclass
class World:
    """`comes(t, partition)` and `works(t)` are records per second: of a partition, and of each worker."""

    comes: Callable[[float, int], float]
    works: Callable[[float], float]
    partitions: int = 12
    workers: Callable[[float], int] = lambda _: 4
    commit_seconds: float = 0.2
    transaction_seconds: float = STEP_SECONDS
    sample_seconds: float = 2.0
    bursts: dict[float, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at = 0.0
        self.logs = [Log(owed=number / self.partitions) for number in range(self.partitions)]
        self.samples: list[Sample] = []
        self.densities = [Density() for _ in self.logs]
        self.capacities: dict[int, float] = {}
        self._steps = 0

    def run(self, seconds: float) -> Outlook:
        """Go on for so long; what is said at the end."""
        for _ in range(round(seconds / STEP_SECONDS)):
            self._step()
        return self._look()

    def seconds_until_done(self, seconds_max: float = 3600.0) -> float:
        """How long it takes from now until no more than a step's work waits, by doing it."""
        start = self.at
        while self.backlog > self.workers(self.at) * self.works(self.at) * 2 * STEP_SECONDS:
            self._step()
            assert self.at - start < seconds_max, "it is never done"
        return self.at - start

    @property
    def backlog(self) -> int:
        return sum(log.backlog for log in self.logs)

    def _step(self) -> None:
        self._steps += 1
        self.at = round(self._steps * STEP_SECONDS, 6)
        for number, log in enumerate(self.logs):
            log.owed += self.comes(self.at, number) * STEP_SECONDS
            if self._every(self.transaction_seconds):
                log.append(0)
            if self.at in self.bursts:
                log.append(self.bursts[self.at] / self.partitions)
        self._work()
        if self._every(self.sample_seconds):
            self._sample()

    def _work(self) -> None:
        """Partitions are spread over the workers; what one partition does not need, its worker gives the others."""
        workers = self.workers(self.at)
        for worker in range(workers):
            mine = self.logs[worker::workers]
            left = self.works(self.at) * STEP_SECONDS + (mine[0].budget if mine else 0.0)
            for count, log in enumerate(sorted(mine, key=lambda one: one.backlog)):
                share = left / (len(mine) - count)
                left -= share - log.read(share)
            for log in mine:
                left = log.read(left)
            if mine:
                mine[0].budget = min(left, 1.0)
        if workers and self._every(self.commit_seconds):
            for log in self.logs:
                log.commit()

    def _every(self, seconds: float) -> bool:
        return self._steps % round(seconds / STEP_SECONDS) == 0

    def _sample(self) -> None:
        lag = self._lag()
        for number, row in enumerate(lag.partitions):
            for span in self.densities[number].unknown(row.log_end - row.lag_records, 0, row.log_end):
                self.densities[number] = self.densities[number].with_reading(self._read(number, span))
        before = self.samples[-1] if self.samples else None
        self.samples.append(after(before, lag, lambda one: self.densities[one.number], self.at))
        self.last = lag
        if len(self.samples) % 10 == 0:
            self._look()

    def _look(self) -> Outlook:
        seen = outlook(self.last, self.samples, capacities=self.capacities)
        if seen.flow and seen.flow.capacity_per_second and self.last.members:
            self.capacities[self.last.members] = seen.flow.capacity_per_second
        return seen

    def _lag(self) -> GroupLag:
        members = tuple(f"worker-{number}" for number in range(self.workers(self.at)))
        rows = [_row(number, log) for number, log in enumerate(self.logs)]
        owners = {Partition("t", number): members[number % len(members)] for number in range(len(rows)) if members}
        return group_lag(Group("g", "Stable" if members else "Empty", members, owners), rows)

    def _read(self, number: int, span: Span) -> Reading:
        entries = self.logs[number].entries
        return Reading(span, [offset for offset in range(*span) if entries[offset] == RECORD])


def _row(number: int, log: Log) -> PartitionLag:
    end = len(log.entries)
    lag = end - log.committed if log.uncommitted else 0
    return PartitionLag("t", number, log.committed, 0, end, lag, 0, 0.0 if lag == 0 else 1.0)


def hottest(partition: Partition) -> Callable[[float, int], float]:
    """Fifty records a second for one partition, five for each other."""
    return lambda _, number: 50.0 if number == partition.number else 5.0
