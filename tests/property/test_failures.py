"""The waits of retries, and who is suspected of having killed a worker, over everything that can happen."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.contract import DocumentSaved, Retry
from streams.core.outcomes import Dead, Failure, Retrying, after_failure, backoff_seconds
from streams.runtime.ports import Partition
from tests.property.world import START, FakeSink, Group, Worker

HERE = Partition("t", 0)
POISON = "poison"

WAITS = st.floats(0, 1e6)
CHANCES = st.floats(0, 1, exclude_max=True)


# ------------------------------------------------------------------------------------------------------- retries


@given(
    attempts=st.integers(1, 10_000),
    first=WAITS,
    more=WAITS,
    chance=CHANCES,
    asked=st.none() | WAITS,
)
def test_a_wait_is_a_share_of_what_doubles_up_to_a_maximum_and_never_less_than_asked(
    attempts: int, first: float, more: float, chance: float, asked: float | None
) -> None:
    policy = Retry(backoff_seconds=first, backoff_seconds_max=first + more)
    wait = backoff_seconds(policy, attempts, Failure("E", "", "", after_seconds=asked), chance)
    doubled = min(first + more, first * 2.0 ** min(attempts - 1, 64))
    assert wait == max(asked or 0.0, chance * doubled)
    assert wait <= max(asked or 0.0, first + more)


@given(attempts=st.integers(1, 20), attempts_max=st.integers(1, 20), permanent=st.booleans(), chance=CHANCES)
def test_a_record_dies_of_its_last_attempt_or_of_a_permanent_failure_and_of_nothing_else(
    attempts: int, attempts_max: int, permanent: bool, chance: float
) -> None:
    failure = Failure("E", "", "", permanent=permanent)
    outcome = after_failure(Retry(attempts_max=attempts_max), failure, attempts, START, START, chance)
    assert isinstance(outcome, Dead if permanent or attempts >= attempts_max else Retrying)
    assert outcome.attempts == attempts


# -------------------------------------------------------------------------------------------------------- deaths


class Deaths:
    """One partition, one record of which kills whoever runs it in the worker; and workers that others kill too."""

    def __init__(self, before: int, behind: int, poisonous: bool) -> None:
        self.group, self.sink = Group(1), FakeSink()
        self.by_poison = 0
        self.apart: set[str] = set()  # run as suspect
        names = [f"before {n}" for n in range(before)] + [POISON] * poisonous + [f"behind {n}" for n in range(behind)]
        for name in names:
            self.group.append(HERE, DocumentSaved(name, "o", 1, "", "", START), gap=0)
        self.names = set(names)
        self.start()

    def start(self) -> None:
        self.worker = Worker(self.group, self.sink)
        self.worker.log.assign(HERE)

    def work(self, handlers: int) -> None:
        """Two rounds, and so many handlers; the poison's ends the worker unless it runs apart."""
        self.worker.step()
        for _ in range(min(handlers, len(self.worker.executor.lanes))):
            lane = self.worker.executor.lanes[0]
            (name,) = [record.lane for record in lane.records] or [""]
            if name == POISON and not lane.suspect:
                self.by_poison += 1
                self.start()
                return
            if lane.suspect:
                self.apart.add(name)
            self.worker.executor.advance(0)
        self.worker.step()


@settings(max_examples=100, deadline=None)
@given(
    before=st.integers(0, 6),
    behind=st.integers(0, 6),
    story=st.lists(st.integers(0, 5) | st.just("kill"), max_size=15),
)
def test_a_record_that_kills_its_worker_does_so_twice_and_then_runs_apart(
    before: int, behind: int, story: list[int | str]
) -> None:
    """Whatever else kills workers meanwhile. All others come to their end."""
    world = Deaths(before, behind, poisonous=True)
    for one in [*story, *([2] * 30)]:
        world.work(one) if isinstance(one, int) else world.start()
    assert world.by_poison <= 2
    assert POISON in world.apart
    assert {name for name, row in world.sink.rows.items() if row.state == "done"} == world.names


@settings(max_examples=100, deadline=None)
@given(names=st.integers(1, 12), story=st.lists(st.integers(0, 5) | st.just("kill"), max_size=30))
def test_deaths_of_workers_alone_give_no_record_up(names: int, story: list[int | str]) -> None:
    world = Deaths(names, 0, poisonous=False)
    for one in [*story, *([2] * 30)]:
        world.work(one) if isinstance(one, int) else world.start()
    assert not world.sink.dead
    assert not world.sink.parked
    assert {name for name, row in world.sink.rows.items() if row.state == "done"} == world.names
