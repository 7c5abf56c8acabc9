"""An outage at ten records a second or more burns no attempt and parks nothing, whenever and however it begins."""

from __future__ import annotations

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from streams.contract import DocumentSaved
from streams.core.outcomes import Failure
from streams.runtime.dispatch import UNSUSPECTED_SECONDS
from streams.runtime.ports import Partition
from tests.property.world import START, FakeSink, Group, Worker

HERE = Partition("t", 0)
LATER = Failure("Timeout", "later", "")
OUTAGE_SECONDS, RECOVERY_SECONDS = 60, 10
# With these the breaker opens at the last moment, when records are with the handlers, or only after that.
OPENS_LATE = [0.0] * 26 + [0.0625, 0.0703125] + [0.0859375] * 5 + [0.046875] * 3 + [0.015625, 0.0234375, 0.0]
OPENS_AFTER = (
    [0.0] * 25 + [0.0625] * 3 + [0.078125] * 3 + [0.0859375] + [0.03125] * 2 + [0.046875] * 2 + [0.015625, 0, 0.015625]
)
GAPS = st.lists(st.floats(0.0, 0.09), min_size=30, max_size=60)


class Provider:
    """A worker whose handlers succeed while `is_up`, but for those of poisoned documents."""

    def __init__(self) -> None:
        self.group, self.sink = Group(1), FakeSink()
        self.worker = Worker(self.group, self.sink)
        self.worker.log.assign(HERE)
        self.is_up = True
        self.saved: dict[str, int] = {}

    def save(self, document_id: str) -> None:
        version = self.saved[document_id] = self.saved.get(document_id, 0) + 1
        self.group.append(HERE, DocumentSaved(document_id, "o", version, "", "", START), gap=0)

    def work(self, seconds: float) -> None:
        """Time goes on, and all handlers at work come to their end."""
        self.worker.step(seconds)
        executor = self.worker.executor
        while executor.lanes:
            first = executor.lanes[0].records
            poisoned = bool(first) and first[0].document.document_id.startswith("poisoned")
            executor.advance(0, LATER if poisoned or not self.is_up else None)
        self.worker.step()

    @property
    def waiting(self) -> list[str]:
        return [name for name, version in self.saved.items() if self.applied(name) < version]

    def applied(self, document_id: str) -> int:
        row = self.sink.rows.get(document_id)
        return row.applied if row else 0


@settings(max_examples=40, deadline=None)
@example(before=2, gaps=OPENS_LATE, keys=30, poisoned=0)
@example(before=4, gaps=OPENS_AFTER, keys=30, poisoned=0)
@given(before=st.integers(0, 30), gaps=GAPS, keys=st.sampled_from([30, 100]), poisoned=st.integers(0, 2))
def test_an_outage_burns_no_attempt_and_ends_soon(before: int, gaps: list[float], keys: int, poisoned: int) -> None:
    assume(before or not poisoned)  # poison that nothing but an outage follows looks like it, and may be taken for it
    world = Provider()
    for number in range(poisoned):
        world.save(f"poisoned {number}")
    for number in range(before):
        world.save(f"before {number}")
        world.work(0.05)
    world.is_up = False
    for number, gap in enumerate(gaps):
        world.save(f"doc {number % keys}")
        world.work(gap)
    world.work(1.0)  # what is with the handlers until the breaker opens still runs
    before_probes = len(world.worker.executor.runs)
    for _ in range(OUTAGE_SECONDS):
        world.work(1.0)
    probes = world.worker.executor.runs[before_probes:]
    assert OUTAGE_SECONDS // 2 <= len(probes) <= OUTAGE_SECONDS + 1
    assert len(set(probes[:10])) == 10  # each of another document
    kept = [one.row.lane for one in world.sink.parked.values() if not one.row.lane.startswith("poisoned")]
    assert kept == []
    assert {at for at in world.sink.dead if not _document(world, at).startswith("poisoned")} == set()
    tried = [name for name, _ in world.worker.executor.runs if name.startswith("doc")]
    assert len(tried) > len(gaps) // 4  # it was an outage: handlers did fail
    world.is_up = True
    for _ in range(RECOVERY_SECONDS * 4):
        world.work(0.25)
    assert [name for name in world.waiting if not name.startswith("poisoned")] == []
    assert all(row.state == "done" for name, row in world.sink.rows.items() if not name.startswith("poisoned"))


def _document(world: Provider, at: tuple[str, int, int]) -> str:
    (found,) = [message for message in world.group.log[HERE] if message.number == at[2]]
    return found.document.document_id


def test_a_single_failure_is_parked_after_half_a_second_and_its_backoff_runs_from_the_failure() -> None:
    world = Provider()
    world.is_up = False
    world.save("doc")
    world.work(0.0)
    failed_at = world.worker.clock.now()
    world.work(UNSUSPECTED_SECONDS - 0.1)
    assert not world.sink.parked
    world.work(0.1)
    (parked,) = world.sink.parked.values()
    assert parked.attempts == 1
    assert parked.next_attempt_at is not None
    assert (parked.next_attempt_at - failed_at).total_seconds() <= 0.25  # half of the first backoff, by the fake chance


def test_a_failure_beside_records_that_go_well_is_parked_at_once() -> None:
    world = Provider()
    world.save("poisoned")
    world.work(0.0)
    world.save("well")
    world.work(0.0)
    world.work(0.0)
    assert [one.attempts for one in world.sink.parked.values()] == [1]
    assert world.worker.clock.seconds < UNSUSPECTED_SECONDS / 2
