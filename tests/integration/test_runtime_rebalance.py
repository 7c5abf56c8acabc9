"""Members that come and go, partitions that move, stay, come back or are added: nothing lost, nothing doubled."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from threading import Event, Thread
from typing import Any

import pytest

from streams.contract import DocumentSaved, Increment, Upsert, reader
from streams.kafka.consumer import KafkaLog
from streams.kafka.topics_admin import TopicsAdmin
from streams.runtime import loop
from streams.runtime.ports import Partition
from tests.rig import Rig, catches_up, unique
from tests.support import eventually


@pytest.fixture(scope="module", autouse=True)
def growing(_rig: Rig) -> Iterator[tuple[str, str, float]]:
    """A worker whose topic got a second partition while it ran: group, topic, and when. The last test looks at it."""
    with _rig.forgetting():
        topic, group = _rig.topic(partitions=1), unique("growing")
        with _rig.worker(reader(group=group)(lambda doc: Upsert(doc.document_id, {})), topic):
            _rig.put(topic, "before", partition=0)
            catches_up(_rig, group, {"before": 1})
            TopicsAdmin(_rig.config).grow(topic, 2)
            grown_at = time.monotonic()
            eventually(lambda: len(_rig.producer.list_topics(topic).topics[topic].partitions) == 2)
            _rig.put(topic, "after", partition=1)
            yield group, topic, grown_at


def counter(group: str, work: Callable[[DocumentSaved], object] = bool) -> Any:
    """A reader that counts versions: a lost one is missing from the sum, a doubled one too many."""

    def handle(doc: DocumentSaved) -> list[Upsert | Increment]:
        work(doc)
        return [Upsert(doc.document_id, {"version": doc.version}), Increment("all", {"versions": 1})]

    return reader(group=group)(handle)


def counted(rig: Rig, group: str) -> int:
    return int(rig.output(group).get("all", {}).get("versions", 0))


def test_members_come_and_go_every_two_seconds(rig: Rig) -> None:
    """Twenty seconds with saves all along: progress in every window of five, and each version counted once."""
    topic, group, over = rig.topic(partitions=4), unique("churn"), Event()
    versions: dict[str, int] = {}

    def save() -> None:
        number = 0
        while not over.wait(0.02):
            name = f"d{number % 40}"
            versions[name] = versions.get(name, 0) + 1
            rig.put(topic, name, versions[name])
            number += 1

    def work(_doc: DocumentSaved) -> None:
        time.sleep(0.005)

    began, samples = time.monotonic(), [(0.0, 0)]
    saver = Thread(target=save)
    with rig.worker(counter(group, work), topic):
        saver.start()
        while time.monotonic() - began < 20:
            with rig.worker(counter(group, work), topic):
                wait_and_sample(rig, group, began, samples)
            wait_and_sample(rig, group, began, samples)
        over.set()
        saver.join()
        catches_up(rig, group, versions)
        eventually(lambda: rig.lag(group, topic) == 0)
    assert counted(rig, group) == sum(versions.values())
    assert rig.dead_letters(group, "error_message") == []
    for moment, count in samples:
        later = [n for at, n in samples if moment < at <= moment + 5]
        assert not later or moment + 5 > samples[-1][0] or later[-1] > count, (moment, samples)


def wait_and_sample(rig: Rig, group: str, began: float, samples: list[tuple[float, int]]) -> None:
    """Two seconds, in steps."""
    until = time.monotonic() + 2
    while time.monotonic() < until:
        time.sleep(0.25)
        samples.append((time.monotonic() - began, counted(rig, group)))


def test_a_revoked_partitions_unstarted_records_run_at_the_new_owner(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former owner is stuck in handlers past its drain; what it says later changes nothing."""
    monkeypatch.setattr(loop, "DRAIN_SECONDS", 0.5)
    topic, group, gate = rig.topic(partitions=2), unique("moved"), Event()
    calls: list[tuple[str, str]] = []

    def named(name: str, stuck: bool) -> Any:
        def handle(doc: DocumentSaved) -> list[Upsert | Increment]:
            calls.append((name, doc.document_id))
            if stuck:
                gate.wait(60)
            return [Upsert(doc.document_id, {"by": name}), Increment("all", {"versions": 1})]

        return reader(group=group, concurrency=4)(handle)

    names = {f"{number}-{partition}": 1 for number in range(60) for partition in (0, 1)}
    for name in names:
        rig.put(topic, name, partition=int(name[-1]))
    with rig.worker(named("former", True), topic):
        eventually(lambda: len(calls) == 4)
        eventually(lambda: len(rig.committed(group, topic)) == 2)
        with rig.worker(named("successor", False), topic):
            eventually(lambda: len(rig.done(group)) == 60, 30)
            (moved,) = {name[-1] for name in rig.done(group)}
            eventually(lambda: rig.lag(group, topic) == 60)  # the half that stayed: none of it is finished
            gate.set()
            catches_up(rig, group, names)
            eventually(lambda: rig.lag(group, topic) == 0)
    rows = rig.output(group)
    assert rows.pop("all") == {"versions": 120}
    assert rows == {name: {"by": "successor" if name[-1] == moved else "former"} for name in names}
    assert sorted(name for who, name in calls if who == "successor") == sorted(n for n in names if n[-1] == moved)


def test_partitions_that_stay_keep_flowing_while_others_move(rig: Rig) -> None:
    topic, group, joined = rig.topic(partitions=4), unique("stay"), Event()
    handled: list[tuple[float, int]] = []

    def work(doc: DocumentSaved) -> None:
        handled.append((time.monotonic(), int(doc.document_id[-1])))
        time.sleep(0.01)

    over, versions = Event(), dict.fromkeys((f"d{number}" for number in range(4)), 0)

    def save() -> None:
        while not over.wait(0.02):
            for number, name in enumerate(versions):
                versions[name] += 1
                rig.put(topic, name, versions[name], partition=number)

    saver = Thread(target=save)
    with rig.worker(counter(group, work), topic):
        saver.start()
        eventually(lambda: {partition for _, partition in handled} == {0, 1, 2, 3})
        with rig.worker(counter(group), topic):
            joined.set()
            owners = f"SELECT partition FROM readers.owners WHERE reader = '{group}' AND epoch = %s"
            eventually(lambda: len(rig.rows(owners, 2)) == 2, 30)
            moved_at = time.monotonic()
            stayed = {partition for (partition,) in rig.rows(owners, 1)}
            eventually(lambda: all(flows(handled, partition, moved_at) for partition in stayed))
            over.set()
            saver.join()
            catches_up(rig, group, versions)
    assert len(stayed) == 2
    for partition in stayed:
        moments = [at for at, where in handled if where == partition]
        assert max(b - a for a, b in pairwise(moments)) < 3
    assert counted(rig, group) == sum(versions.values())


def flows(handled: Sequence[tuple[float, int]], partition: int, since: float) -> bool:
    return sum(1 for at, where in handled if where == partition and at > since) > 20


class Listening:
    """What the group told a member."""

    def __init__(self) -> None:
        self.owned: set[Partition] = set()

    def assigned(self, partitions: Sequence[Partition]) -> None:
        self.owned |= set(partitions)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        self.owned -= set(partitions)

    lost = revoked


def test_a_partition_that_was_paused_when_it_left_flows_when_it_comes_back(rig: Rig) -> None:
    topic, group = rig.topic(partitions=2), unique("paused")
    everything = {Partition(topic, 0), Partition(topic, 1)}
    for number in (0, 1):
        rig.put(topic, f"d{number}", partition=number)
    first, second = KafkaLog(rig.config, topic, group, None), KafkaLog(rig.config, topic, group, None)
    one, other = Listening(), Listening()
    first.subscribe(one)
    eventually(lambda: first.poll(10, 0.1) or one.owned == everything, 20)
    first.pause(everything)
    second.subscribe(other)
    eventually(lambda: (first.poll(10, 0.05), second.poll(10, 0.05), len(other.owned) == len(one.owned) == 1)[-1], 20)
    (moved,) = other.owned
    second.close()
    eventually(lambda: (first.poll(10, 0.05), one.owned == everything)[-1], 20)
    rig.put(topic, "new", partition=moved.number)
    eventually(lambda: any(message.partition() == moved.number for message in first.poll(10, 0.1)), 20)
    first.close()


def test_a_worker_that_lost_its_epoch_unnoticed_begins_anew(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fenced in the sink while the group still says that the partition is ours: read again from the commit."""
    monkeypatch.setattr(loop, "RECLAIM_SECONDS", 1.0)
    topic, group, gate = rig.topic(partitions=2), unique("fenced"), Event()

    def work(doc: DocumentSaved) -> None:
        if doc.version == 2:
            gate.wait(60)

    with rig.worker(counter(group, work), topic):
        for number in range(10):
            rig.put(topic, f"d{number}", 1, partition=number % 2)
        catches_up(rig, group, {f"d{number}": 1 for number in range(10)})
        eventually(lambda: rig.lag(group, topic) == 0)
        for number in range(10):
            rig.put(topic, f"d{number}", 2, partition=number % 2)
        rig.do("UPDATE readers.owners SET epoch = epoch + 1 WHERE reader = %s AND partition = 0", group)
        gate.set()
        catches_up(rig, group, {f"d{number}": 2 for number in range(10)})
        eventually(lambda: rig.lag(group, topic) == 0)
        for number in range(10):
            rig.put(topic, f"d{number}", 3, partition=number % 2)
        catches_up(rig, group, {f"d{number}": 3 for number in range(10)})
    assert counted(rig, group) == 30


def test_added_partitions_are_picked_up_within_a_minute(rig: Rig, growing: tuple[str, str, float]) -> None:
    group, topic, grown_at = growing
    catches_up(rig, group, {"before": 1, "after": 1}, seconds=max(1.0, 60 - (time.monotonic() - grown_at)))
    eventually(lambda: rig.lag(group, topic) == 0)


# A worker that is killed when it is told to give partitions up, before it can say that it has.
DIES_WHEN_IT_GIVES_UP = """
import os, sys
from streams.config import settings
from streams.contract import reader
from streams.ops.worker import Wiring, assembled
group, topic = sys.argv[1:]
with assembled(settings(), reader(group=group)(lambda doc: None), Wiring(topic)) as loop:
    loop.revoked = lambda _partitions: os._exit(9)
    loop.run()
"""


# One that took over while the group was about to hand partitions out, and joined after that.
ASKED_TOO_EARLY = """
import sys
from streams.config import settings
from streams.contract import reader
from streams.kafka import membership
from streams.ops import worker
group, topic = sys.argv[1:]
worker.take_over = lambda *_: None
membership.LOOK_SECONDS = 2.0
worker.work(settings(), reader(group=group)(lambda doc: None), lambda: True, None, worker.Wiring(topic))
"""


@pytest.mark.parametrize("asked_too_early", [False, True])
def test_what_a_killed_member_gave_up_and_did_not_say_so_is_not_left_to_nobody(rig: Rig, asked_too_early: bool) -> None:
    """Its successor comes back under its name within the session: Kafka alone would leave half of the topic unread."""
    topic, group = rig.topic(partitions=4), unique("gave-up")
    rig.groups.add(group)
    names = {f"d{number}": 1 for number in range(4)}
    for number, name in enumerate(names):
        rig.put(topic, name, partition=number)
    with process(DIES_WHEN_IT_GIVES_UP, group, topic) as first:
        eventually(lambda: rig.lag(group, topic) == 0, 60)
        with rig.worker(counter(group), topic):
            assert first.wait(30) == 9
            if asked_too_early:
                with process(ASKED_TOO_EARLY, group, topic) as second:
                    assert second.wait(60) == 0
            with rig.worker(counter(group), topic):
                for number, name in enumerate(names):
                    rig.put(topic, name, 2, partition=number)
                catches_up(rig, group, dict.fromkeys(names, 2))


@contextmanager
def process(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Python, killed at the end."""
    running = subprocess.Popen([sys.executable, "-c", program, *arguments])
    try:
        yield running
    finally:
        running.kill()
        running.wait()
