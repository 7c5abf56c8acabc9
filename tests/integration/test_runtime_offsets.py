"""Where a reader begins and what it commits: gaps, other tools' commits, groups deleted, logs cut short."""

from __future__ import annotations

import logging
import random
import time
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Message, Producer, TopicPartition

from streams.contract import DocumentSaved, Increment, Upsert, reader
from tests.rig import Rig, catches_up, unique
from tests.support import eventually


def counter(group: str, calls: list[str]) -> Any:
    def handle(doc: DocumentSaved) -> list[Upsert | Increment]:
        calls.append(doc.document_id)
        return [Upsert(doc.document_id, {"version": doc.version}), Increment("all", {"versions": 1})]

    return reader(group=group)(handle)


def transaction(rig: Rig, topic: str, names: list[str], commit: bool, partition: int = 0) -> dict[int, str]:
    """One transaction; each ends with a control record, which takes an offset, and an aborted one's records too.

    Gives the names by offset.
    """
    by_offset: dict[int, str] = {}
    producer = Producer({**rig.config.kafka_client(), "transactional.id": str(uuid4())})
    producer.init_transactions(20)
    producer.begin_transaction()
    for name in names:

        def delivered(_error: object, message: Message, name: str = name) -> None:
            by_offset[message.offset() or 0] = name

        producer.produce(topic, rig.event(name), key=name, partition=partition, on_delivery=delivered)
    producer.flush(20)
    if commit:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)
    return by_offset


def test_commits_reach_the_end_over_gaps_and_trailing_markers(rig: Rig) -> None:
    topic, group, calls = rig.topic(partitions=3), unique("gaps"), list[str]()
    transaction(rig, topic, ["a", "b"], commit=True)
    transaction(rig, topic, ["never-1", "never-2"], commit=False)
    transaction(rig, topic, ["c"], commit=True)
    transaction(rig, topic, ["never-3"], commit=False)
    transaction(rig, topic, ["never-4"], commit=False, partition=1)  # a partition with nothing to read but markers
    eventually(lambda: rig.ends(topic) == {0: 10, 1: 2, 2: 0})  # the last markers may follow a moment later
    with rig.worker(counter(group, calls), topic):
        catches_up(rig, group, {"a": 1, "b": 1, "c": 1})
        eventually(lambda: rig.lag(group, topic) == 0, message="the commit is past the markers")
        transaction(rig, topic, ["never-5"], commit=False)
        eventually(lambda: rig.lag(group, topic) == 0, message="the commit is past markers that came alone")
        transaction(rig, topic, ["d"], commit=True)
        catches_up(rig, group, {"d": 1})
        eventually(lambda: rig.lag(group, topic) == 0)
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (found,) = rig.admin.list_consumer_group_offsets([request])[group].result().topic_partitions
    assert found.leader_epoch == 0  # of the records' leader: one that was cut back since is found out
    assert sorted(calls) == ["a", "b", "c", "d"]
    with rig.worker(counter(group, calls), topic):
        rig.put(topic, "e", partition=0)
        catches_up(rig, group, {"e": 1})
    assert sorted(calls) == ["a", "b", "c", "d", "e"]


def test_in_whatever_order_handlers_end_a_commit_passes_none_and_reaches_the_end(rig: Rig) -> None:
    """Over offsets that nobody sees, of aborted transactions and markers."""
    topic, group, chance = rig.topic(), unique("permuted"), random.Random(5)
    names: dict[int, str] = {}
    for number in range(12):
        transaction(rig, topic, [f"never-{number}"] * chance.randrange(1, 3), commit=False)
        names |= transaction(rig, topic, [f"{number}-{each}" for each in range(chance.randrange(2, 6))], commit=True)
    last = max(transaction(rig, topic, ["never"], commit=False))
    eventually(lambda: rig.ends(topic)[0] == last + 2)  # it and its marker
    ended, passed, seen = set[str](), list[str](), set[int]()

    def handle(doc: DocumentSaved) -> Upsert:
        time.sleep(chance.random())
        ended.add(doc.document_id)
        return Upsert(doc.document_id, {})

    def reaches_the_end() -> bool:
        """Looks at the commit first, then at what has ended."""
        position = rig.committed(group, topic).get(0, (0, ""))[0]
        seen.add(position)
        passed.extend(name for offset, name in names.items() if offset < position and name not in ended)
        return rig.lag(group, topic) == 0

    with rig.worker(reader(group=group, concurrency=16)(handle), topic):
        eventually(reaches_the_end, 30)
    assert passed == []
    assert ended == set(names.values())
    assert len(seen) > 3  # it was looked at on the way


def test_a_deleted_group_starts_at_the_beginning_and_counts_nothing_twice(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group, calls = rig.topic(), unique("deleted"), list[str]()
    for name in ("a", "b"):
        rig.put(topic, name, 1)
        rig.put(topic, name, 2)
    with rig.worker(counter(group, calls), topic):
        catches_up(rig, group, {"a": 2, "b": 2})
        eventually(lambda: rig.lag(group, topic) == 0)

    def deleted() -> bool:
        try:
            rig.admin.delete_consumer_groups([group])[group].result()
        except KafkaException:  # a static member is in its group until its session of 6 s is over
            return False
        return True

    eventually(deleted, 20)
    calls.clear()
    rig.put(topic, "c")
    with caplog.at_level(logging.INFO), rig.worker(counter(group, calls), topic):
        catches_up(rig, group, {"a": 2, "b": 2, "c": 1})
        eventually(lambda: rig.lag(group, topic) == 0)
    assert f"{group}: reads {topic} from 0@start" in caplog.text
    assert sorted(calls) == ["a", "b", "c"]  # a new reading: the last version of each is computed again, and no older
    assert rig.output(group) == {"a": {"version": 2}, "b": {"version": 2}, "c": {"version": 1}, "all": {"versions": 5}}


def test_a_position_that_another_tool_moved_is_read_again(rig: Rig) -> None:
    topic, group, calls = rig.topic(), unique("seek"), list[str]()
    for name in ("a", "b", "c", "d"):
        rig.put(topic, name)
    with rig.worker(counter(group, calls), topic):
        eventually(lambda: rig.lag(group, topic) == 0 and len(calls) == 4)
    ((_, own),) = rig.committed(group, topic).values()
    eventually(lambda: moved(rig, group, topic, 2), 20)
    calls.clear()
    with rig.worker(counter(group, calls), topic):
        eventually(lambda: sorted(calls) == ["c", "d"] and rig.lag(group, topic) == 0)
    ((_, new),) = rig.committed(group, topic).values()
    assert int(new.removeprefix("pass:")) > int(own.removeprefix("pass:"))
    assert rig.output(group)["all"] == {"versions": 4}


def moved(rig: Rig, group: str, topic: str, position: int) -> bool:
    """Whether the group could be moved: not while it has a member."""
    try:
        rig.commit(group, topic, {0: position})
    except KafkaException:
        return False
    return True


@pytest.mark.parametrize("position", [0, 1_000_000], ids=["before what is left", "past the end"])
def test_a_position_that_is_not_in_the_log_becomes_its_start(rig: Rig, position: int) -> None:
    topic, group, calls = rig.topic(), unique("outside"), list[str]()
    for name in ("a", "b", "c"):
        rig.put(topic, name)
    rig.commit(group, topic, {0: position})
    cut = rig.admin.delete_records([TopicPartition(topic, 0, 1)])
    assert [answer.result().low_watermark for answer in cut.values()] == [1]
    with rig.worker(counter(group, calls), topic):
        catches_up(rig, group, {"b": 1, "c": 1})
        eventually(lambda: rig.committed(group, topic)[0][0] == 3)
    assert sorted(calls) == ["b", "c"]
