"""`streams lag` on groups of a foreign application, against an oracle that reads the whole log."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
from confluent_kafka import TopicPartition

from streams.config import Settings
from streams.core.lag import GroupLag, Mark
from streams.errors import Unavailable, UnknownGroup
from streams.ops.lag import LagSampler
from tests.integration.foreign import PROTOCOLS, Foreign
from tests.support import eventually, free_port_base

STREAMS = [sys.executable, "-m", "streams.cli.main"]
NOW_MS = int(time.time() * 1000)


def _times(count: int, first_age_seconds: int = 1_000) -> list[int]:
    """Times of records, one second apart."""
    return [NOW_MS - (first_age_seconds - n) * 1000 for n in range(count)]


@pytest.fixture(scope="module")
def foreign(stack: Settings) -> Foreign:
    return Foreign(stack)


@pytest.fixture
def sampler(stack: Settings):
    with LagSampler(stack) as one:
        yield one


@dataclass(frozen=True)
class Scene:
    """A group on a topic, and what makes it special."""

    group: str
    topic: str


def _plain(foreign: Foreign) -> Scene:
    """One partition half read, one never committed, one empty."""
    scene = Scene(foreign.group(), foreign.topic(3))
    foreign.produce(scene.topic, 0, _times(20))
    foreign.produce(scene.topic, 1, _times(20))
    foreign.commit(scene.group, TopicPartition(scene.topic, 0, 5))
    return scene


def _caught_up(foreign: Foreign) -> Scene:
    scene = Scene(foreign.group(), foreign.topic())
    foreign.produce(scene.topic, 0, _times(20))
    foreign.commit(scene.group, TopicPartition(scene.topic, 0, 20))
    return scene


def _truncated(foreign: Foreign) -> Scene:
    """Retention took records before, at and after the commits, and all of a partition."""
    scene = Scene(foreign.group(), foreign.topic(4))
    for partition, before in enumerate((12, 12, 12, -1)):
        foreign.produce(scene.topic, partition, _times(20))
        foreign.truncate(scene.topic, partition, before)
    commits = {0: 4, 1: 15, 3: 4}
    foreign.commit(scene.group, *(TopicPartition(scene.topic, n, at) for n, at in commits.items()))
    return scene


def _transactions(foreign: Foreign) -> Scene:
    """Markers and aborted records in the middle, at the end, and as all that is left."""
    scene = Scene(foreign.group(), foreign.topic(4))
    for partition in range(4):
        foreign.transactions(scene.topic, partition, ("commit", _times(5)), ("abort", _times(5)), ("commit", _times(5)))
    foreign.transactions(scene.topic, 3, ("abort", _times(5)))
    # 0-4 data, 5 marker, 6-10 aborted, 11 marker, 12-16 data, 17 marker; in partition 3 also 18-22 aborted, 23 marker.
    commits = {0: 3, 1: 6, 2: 17, 3: 18}
    foreign.commit(scene.group, *(TopicPartition(scene.topic, n, at) for n, at in commits.items()))
    return scene


def _foreign_metadata(foreign: Foreign) -> Scene:
    """Committed with metadata of another kind, the longest that the client can send."""
    scene = Scene(foreign.group(), foreign.topic())
    foreign.produce(scene.topic, 0, _times(20))
    foreign.commit(scene.group, TopicPartition(scene.topic, 0, 5, "m" * 4095))
    return scene


def _grown(foreign: Foreign) -> Scene:
    """Partitions that were added after the group committed."""
    scene = Scene(foreign.group(), foreign.topic())
    foreign.produce(scene.topic, 0, _times(3))
    foreign.commit(scene.group, TopicPartition(scene.topic, 0, 3))
    foreign.add_partitions(scene.topic, 3)
    foreign.produce(scene.topic, 2, _times(4))
    return scene


SCENES = (_plain, _caught_up, _truncated, _transactions, _foreign_metadata, _grown)


@pytest.fixture(scope="module", params=SCENES, ids=lambda scene: scene.__name__.strip("_"))
def scene(request: pytest.FixtureRequest, foreign: Foreign) -> Scene:
    return request.param(foreign)


def _assert_as_expected(seen: dict, foreign: Foreign, scene: Scene, reset: str = "earliest") -> None:
    expected = foreign.oracle(scene.group, scene.topic, reset)
    assert seen["state"] == "Empty"
    assert [row["partition"] for row in seen["partitions"]] == sorted(expected)
    for row in seen["partitions"]:
        wanted = expected[row["partition"]]
        figures = {name: row[name] for name in ("committed", "log_start", "log_end", "lag_records", "lost_records")}
        assert figures == {name: getattr(wanted, name) for name in figures}, row
        _assert_age(row["age_seconds"], wanted.oldest_ms)
    assert seen["lag_records"] == sum(one.lag_records for one in expected.values())
    _assert_age(seen["age_seconds"], min((one.oldest_ms for one in expected.values() if one.oldest_ms), default=None))


def _assert_age(seconds: float, oldest_ms: int | None) -> None:
    if oldest_ms is None:
        assert seconds == 0
    else:  # the sample was taken a moment ago, up to a minute on a busy machine
        age_now = time.time() - oldest_ms / 1000
        assert age_now - 60 < seconds <= age_now


def test_json_of_a_foreign_group_equals_the_oracle(stack: Settings, foreign: Foreign, scene: Scene):
    out = subprocess.run(
        [*STREAMS, "lag", "--json", "--group", scene.group], capture_output=True, text=True, check=True
    )
    (seen,) = json.loads(out.stdout)
    assert seen["group"] == scene.group
    _assert_as_expected(seen, foreign, scene)


def test_readers_that_start_at_the_end_have_no_lag_where_they_have_no_commit(stack: Settings, foreign: Foreign):
    scene = _plain(foreign)
    args = ["lag", "--json", "--group", scene.group, "--reset", "latest"]
    out = subprocess.run([*STREAMS, *args], capture_output=True, text=True, check=True)
    _assert_as_expected(json.loads(out.stdout)[0], foreign, scene, "latest")


def _one(sampler: LagSampler, group: str) -> GroupLag:
    (seen,) = sampler.sample([group])
    return seen


def test_an_open_transaction_is_not_caught_up_and_ages(foreign: Foreign, sampler: LagSampler):
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _times(5))
    foreign.commit(group, TopicPartition(topic, 0, 5))
    with foreign.open_transaction(topic, 0, _times(3, first_age_seconds=300)) as producer:
        (row,) = _one(sampler, group).partitions
        assert (row.lag_records, row.log_end, row.marks) == (0, 5, (Mark.OPEN_TRANSACTION,))
        _assert_age(row.age_seconds, _times(1, 300)[0])
        foreign.commit(group, TopicPartition(topic, 0, 2))
        (row,) = _one(sampler, group).partitions
        assert (row.lag_records, row.marks) == (3, (Mark.OPEN_TRANSACTION,))
        _assert_age(row.age_seconds, _times(3)[2])
        producer.commit_transaction(20)
        producer.begin_transaction()
        (row,) = _one(sampler, group).partitions
        assert (row.lag_records, row.log_end, row.marks) == (7, 9, ())  # three records and the marker


def test_an_aborted_transaction_leaves_nothing_to_wait_for(foreign: Foreign, sampler: LagSampler):
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _times(5))
    foreign.commit(group, TopicPartition(topic, 0, 5))
    with foreign.open_transaction(topic, 0, _times(3)):
        pass
    (row,) = _one(sampler, group).partitions
    assert (row.lag_records, row.log_end, row.age_seconds, row.marks) == (0, 9, 0.0, ())


def test_a_live_group_without_commits_shows_what_it_is_assigned(foreign: Foreign, sampler: LagSampler):
    group, topic = foreign.group(), foreign.topic(2)
    foreign.produce(topic, 0, _times(7))
    with foreign.member(group, topic):
        seen = eventually(lambda: (one := _one(sampler, group)).state == "Stable" and one, seconds=30)
    assert [(row.committed, row.lag_records) for row in seen.partitions] == [(None, 7), (None, 0)]
    assert seen.lag_records == 7


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_of_both_protocols_are_seen_with_their_members(foreign: Foreign, sampler: LagSampler, protocol: str):
    group, topic = foreign.group(), foreign.topic(2)
    foreign.produce(topic, 0, _times(7))
    with foreign.member(group, topic, **{"group.protocol": protocol}) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        seen = eventually(lambda: (one := _one(sampler, group)).state == "Stable" and one, seconds=30)
        assert [(row.committed, row.lag_records) for row in seen.partitions] == [(4, 3), (None, 0)]


def test_a_group_keeps_its_series_when_its_members_have_left(foreign: Foreign, sampler: LagSampler):
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _times(7))
    with foreign.member(group, topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    seen = eventually(lambda: (one := _one(sampler, group)).state == "Empty" and one, seconds=30)
    assert seen.lag_records == 3


def test_a_commit_past_the_end_is_unknown_and_not_zero(foreign: Foreign, sampler: LagSampler):
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _times(5))
    foreign.commit(group, TopicPartition(topic, 0, 900))
    seen = _one(sampler, group)
    assert (seen.lag_records, seen.age_seconds) == (None, None)
    assert seen.partitions[0].marks == (Mark.PAST_THE_END,)


def test_a_deleted_topic_is_not_a_lag_of_zero(foreign: Foreign, sampler: LagSampler):
    group, kept, gone = foreign.group(), foreign.topic(), foreign.topic()
    for topic in (kept, gone):
        foreign.produce(topic, 0, _times(5))
        foreign.commit(group, TopicPartition(topic, 0, 2))
    foreign.delete_topic(gone)
    seen = _one(sampler, group)
    assert seen.lag_records == 3
    for row in seen.partitions:  # brokers differ in how soon they forget the commits of a deleted topic
        assert row.topic == kept or (row.lag_records, row.age_seconds, row.marks) == (None, None, (Mark.DELETED,))


def test_an_unknown_group_is_an_error_with_the_nearest_names(foreign: Foreign, sampler: LagSampler):
    group, topic = foreign.group(), foreign.topic()
    foreign.commit(group, TopicPartition(topic, 0, 0))
    with pytest.raises(UnknownGroup, match=group):
        sampler.sample([group[:-1]])
    out = subprocess.run([*STREAMS, "lag", "--group", group[:-1]], capture_output=True, text=True, check=False)
    assert (out.returncode, out.stdout) == (8, "")
    assert out.stderr.startswith(f"error: there is no consumer group {group[:-1]}; the nearest names are")


def test_all_groups_are_listed_by_name(foreign: Foreign, sampler: LagSampler):
    topic = foreign.topic()
    groups = sorted(foreign.group() for _ in range(3))
    for group in groups:
        foreign.commit(group, TopicPartition(topic, 0, 0))
    seen = [one.group for one in sampler.sample()]
    assert seen == sorted(seen)
    assert set(groups) <= set(seen)


def test_the_table_names_the_columns_that_people_know(stack: Settings, foreign: Foreign):
    scene = _truncated(foreign)
    out = subprocess.run([*STREAMS, "lag", "--group", scene.group], capture_output=True, text=True, check=True)
    heads, *rows = out.stdout.splitlines()
    assert heads.split()[:8] == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "AGE",
        "LOST",
    ]
    assert rows[0].split()[:6] == [scene.group, scene.topic, "0", "4", "20", "8"]


def test_watch_samples_again_and_ends_cleanly_on_ctrl_c(stack: Settings, foreign: Foreign):
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _times(9))
    foreign.commit(group, TopicPartition(topic, 0, 2))
    args = [*STREAMS, "lag", "--json", "--watch", "--group", group]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        assert json.loads(watch.stdout.readline())[0]["lag_records"] == 7
        foreign.commit(group, TopicPartition(topic, 0, 6))
        eventually(lambda: json.loads(watch.stdout.readline())[0]["lag_records"] == 3, seconds=30)
        watch.send_signal(signal.SIGINT)
        assert (watch.wait(20), watch.stderr.read()) == (0, "")


def test_heads_that_were_read_are_remembered_while_they_are_the_next_ones(foreign: Foreign, sampler: LagSampler):
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _times(9))
    foreign.commit(group, TopicPartition(topic, 0, 2))
    first = _one(sampler, group).age_seconds
    sampler._heads.clear()  # nothing can be read any more
    assert _one(sampler, group).age_seconds >= first
    foreign.commit(group, TopicPartition(topic, 0, 3))
    assert _one(sampler, group).age_seconds is None


def test_a_broker_that_is_down_is_one_sentence_within_ten_seconds(stack: Settings):
    nobody = f"127.0.0.1:{free_port_base()}"
    started = time.monotonic()
    with (
        LagSampler(stack.model_copy(update={"bootstrap_servers": nobody})) as sampler,
        pytest.raises(Unavailable) as error,
    ):
        sampler.sample()
    assert str(error.value).startswith(f"Kafka at {nobody} does not answer")
    assert time.monotonic() - started < 10


def test_twenty_groups_on_two_hundred_partitions_all_have_ages(foreign: Foreign, stack: Settings):
    topic = foreign.topic(200)
    for partition in range(200):
        foreign.produce(topic, partition, _times(3))
    groups = [foreign.group() for _ in range(20)]
    for number, group in enumerate(groups):
        foreign.commit(group, *(TopicPartition(topic, n, number % 3) for n in range(200)))
    with LagSampler(stack) as sampler:
        seen = eventually(lambda: _all_known(sampler.sample(groups)), seconds=20)
    assert sorted(one.lag_records for one in seen) == sorted(200 * (3 - n % 3) for n in range(20))


def _all_known(seen: list[GroupLag]) -> list[GroupLag] | None:
    return seen if all(one.age_seconds is not None for one in seen) else None
