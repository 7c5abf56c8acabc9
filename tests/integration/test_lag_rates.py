"""Rates, shapes, health and advice on a real broker, with producers and consumers whose true rates are counted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import TopicPartition

from streams.config import Settings
from streams.core.flow import Shape
from streams.core.health import Health
from streams.core.outlook import Outlook
from streams.core.sentences import figure, sentence
from streams.errors import Unavailable
from streams.ops.lag_watch import LagWatch
from tests.integration.foreign import Foreign
from tests.integration.lag_load import Feed, Work
from tests.support import eventually

STREAMS = [sys.executable, "-m", "streams.cli.main"]
PARTITIONS = 4


@pytest.fixture(scope="module")
def foreign(stack: Settings) -> Foreign:
    return Foreign(stack)


@contextmanager
def _watching(stack: Settings, *groups: str) -> Iterator[Callable[[], list[Outlook]]]:
    """Takes a sample a second, whenever it is asked."""
    with LagWatch(stack, groups) as watch:
        next_at = time.monotonic()

        def sample() -> list[Outlook]:
            nonlocal next_at
            time.sleep(max(0.0, next_at - time.monotonic()))
            next_at = max(next_at + 1, time.monotonic())
            try:
                return watch.measure()
            except Unavailable as error:  # a broker on a busy machine; `streams lag --watch` goes on too
                raise AssertionError(error) from error

        yield sample


def _until(sample: Callable[[], list[Outlook]], holds: Callable[[Outlook], bool], seconds: float = 40) -> Outlook:
    def check() -> Outlook | None:
        (seen,) = sample()
        assert holds(seen), sentence(seen)
        return seen

    return eventually(check, seconds, "the group to be judged so")


def test_a_burst_decays_as_fast_as_what_is_done_exceeds_what_comes(stack: Settings, foreign: Foreign):
    """200 a second come, 600 are done; 5,000 more at once take 12.5 s."""
    group, topic = foreign.group(), foreign.topic(PARTITIONS)
    feed, work = Feed(stack, topic, PARTITIONS, 200), Work(stack, group, topic, 600)
    with feed.feeding(), work.working(), _watching(stack, group) as sample:
        eventually(lambda: work.total > 400, 40, "it reads")
        _until(sample, lambda seen: seen.shape is Shape.FLAT and seen.flow.keeps_up)
        started = time.time()
        feed.burst(5_000)
        seen = _until(sample, lambda seen: seen.shape is Shape.SPIKE_DECAY)
        said_at = time.time()
        begun = said_at - seen.flow.seconds
        assert begun >= started - 1.5  # of the burst's time alone
        assert seen.flow.rate_in_per_second == pytest.approx(200, rel=0.25)
        assert seen.flow.rate_out_per_second == pytest.approx(work.since(begun), rel=0.2)
        assert seen.flow.backlog_records == pytest.approx(feed.total - work.total, rel=0.3, abs=400)
        assert "spike-decay" in sentence(seen)
        eventually(lambda: feed.total - work.total < 200, 40, "it is done")
        assert seen.drain_seconds == pytest.approx(time.time() - said_at, rel=0.35, abs=2.5)


def test_too_few_workers_are_a_ramp_of_the_right_shortfall_and_the_advice_closes_it(stack: Settings, foreign: Foreign):
    """100 a second come, two workers do 30 each: 40 a second too few, which is a worker and a third."""
    group, topic = foreign.group(), foreign.topic(PARTITIONS)
    feed = Feed(stack, topic, PARTITIONS, 100)
    feed.burst(400)  # so that they are busy from the start
    with ExitStack() as running:
        running.enter_context(feed.feeding())
        workers = [Work(stack, group, topic, 30) for _ in range(2)]
        for one in workers:
            running.enter_context(one.working())
        eventually(lambda: all(one.total for one in workers), 40, "both have work")
        with _watching(stack, group) as sample:
            seen = _until(
                sample,
                lambda seen: seen.shape is Shape.RAMP and seen.flow.samples > 12 and bool(seen.advice.more_workers),
            )
            since = time.time() - seen.flow.seconds
        done = sum(one.since(since) for one in workers)
        short = feed.since(since) - done
        assert seen.flow.shortfall_per_second == pytest.approx(short, rel=0.1, abs=2)
        assert seen.advice.seconds_per_job == pytest.approx(2 / done, rel=0.1)
        assert seen.advice.more_workers == 2
        assert sentence(seen).startswith(f"{group}: ramp, falls ")
        assert sentence(seen).endswith(f" short; 2 more workers at {figure(seen.advice.seconds_per_job)} s a job")
        _assert_commands_agree(group)
        for _ in range(seen.advice.more_workers):
            running.enter_context(Work(stack, group, topic, 30).working())
        with _watching(stack, group) as sample:
            _until(sample, lambda seen: seen.lag.members == 4 and seen.shape in (Shape.SPIKE_DECAY, Shape.FLAT))


def _assert_commands_agree(group: str) -> None:
    """What the command line says of the same group at the same time."""
    args = [*STREAMS, "lag", "--group", group, "--measure", "5"]
    seen = json.loads(subprocess.run([*args, "--json"], capture_output=True, text=True, check=True).stdout)[0]
    assert seen["shape"] == "ramp"
    assert seen["rate_in_per_second"] > seen["rate_out_per_second"] > 0
    assert seen["drain_seconds"] is None
    assert seen["parked_records"] is None  # it is no reader of ours
    out = subprocess.run([*args, "--explain"], capture_output=True, text=True, check=True).stdout
    assert "  SHAPE ramp: +" in out
    assert " jobs/s, by the median slope of all pairs of " in out
    size = [*args, "--size", "--rate", "300"]
    said = subprocess.run(size, capture_output=True, text=True, check=True).stdout
    assert said.startswith("300 jobs/s at 0.03")
    assert said.endswith("but 4 partitions let only 4 work at once: more partitions are needed\n")


def test_a_worker_that_went_is_a_stop_and_one_that_stands_is_a_stall(stack: Settings, foreign: Foreign):
    gone, stuck, topic = foreign.group(), foreign.group(), foreign.topic(1)
    feed = Feed(stack, topic, 1, 50)
    with ExitStack() as running:
        running.enter_context(feed.feeding())
        eventually(lambda: feed.total > 100)
        foreign.commit(stuck, TopicPartition(topic, 0, 10))
        running.enter_context(foreign.member(stuck, topic))  # it reads nothing more, and stays
        work = Work(stack, gone, topic, 20)
        sample = running.enter_context(_watching(stack, *sorted([gone, stuck])))
        with work.working():
            eventually(lambda: work.total > 20 and sample(), 40)
        seen: dict[str, Outlook] = {}

        def both() -> bool:
            seen.update({one.lag.group: one for one in sample()})
            assert [seen[one].health for one in (gone, stuck)] == [Health.STOP, Health.STALL]
            return True

        eventually(both, 40)
    assert sentence(seen[gone]).startswith(f"{gone}: STOP, nobody reads; ")
    assert sentence(seen[stuck]).startswith(f"{stuck}: STALL, it has 1 worker and nothing gets done; ")
    assert sentence(seen[stuck]).endswith(" jobs/s come")


def test_markers_are_not_counted_as_jobs(stack: Settings, foreign: Foreign):
    """Each record here has a marker of its own, so offsets move twice as fast as jobs."""
    group, topic = foreign.group(), foreign.topic(PARTITIONS)
    feed, work = Feed(stack, topic, PARTITIONS, 20), Work(stack, group, topic, 200)
    with feed.feeding(), work.working(), _watching(stack, group) as sample:
        eventually(lambda: work.total > 20, 40, "it reads")
        seen = _until(sample, lambda seen: bool(seen.flow) and seen.flow.samples > 10)
        true = feed.since(time.time() - seen.flow.seconds)
    known = [(one.at, sum(place.end for place in one.places.values())) for one in seen.samples if one.places]
    assert (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0]) > 1.5 * true
    assert seen.flow.rate_in_per_second == pytest.approx(true, rel=0.15)
    assert seen.flow.rate_out_per_second == pytest.approx(true, rel=0.15)
