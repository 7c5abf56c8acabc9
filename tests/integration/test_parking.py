"""Parked records on the real stack: kept through crashes and repartitioning, in order; outages; records that kill."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest
from confluent_kafka.admin import NewPartitions

from streams.contract import DocumentSaved, Increment, Retry, RetryLater, reader
from streams.core.partitioning import key_hash
from streams.runtime import dispatch, loop
from tests.rig import Command, Rig, catches_up, unique
from tests.support import eventually

ENDLESS = Retry(10**6, 0.02, 0.1)


def parked(rig: Rig, group: str) -> int:
    return int(rig.rows("SELECT count(*) FROM readers.parked WHERE reader = %s", group)[0][0])


def completed(rig: Rig, group: str, names: list[str], versions: int) -> bool:
    """Whether every version of each was applied. Out of order, a later one would have superseded an earlier."""
    query = """
        SELECT count(*) FROM readers.progress WHERE reader = %s AND document_id = ANY(%s) AND applied_version = %s
            AND completed = int8multirange(int8range(1, %s, '[]'))
    """
    return rig.rows(query, group, names, versions, versions) == [(len(names),)]


@pytest.mark.timeout(300)
def test_parked_records_keep_their_order_through_kill_9(rig: Rig, tmp_path: Path) -> None:
    prefix, gate, names = unique("crash") + "-", tmp_path / "gate", [unique("doc") for _ in range(5)]
    group, others = f"{prefix}gated", [unique("other") for _ in range(20)]
    rig.start_at_end(group)
    with rig.command(prefix, "gated", workers=2, TEST_GATE=str(gate)) as fleet:
        for version in range(1, 9):
            for name in names:
                rig.save(name, title="gated" if version in (1, 3) else "free")
            if version % 2:
                eventually(fleet.workers, 30)
                psutil.Process(random.choice(fleet.workers())).kill()
        for name in others:
            rig.save(name, title="free")
        catches_up(rig, group, dict.fromkeys(others, 1), 90)
        eventually(lambda: parked(rig, group) == 8 * len(names), 60, "all of the failing documents are parked")
        eventually(lambda: rig.lag(group) == 0, 30)
        gate.touch()
        eventually(lambda: completed(rig, group, names, 8), 60)
        eventually(lambda: parked(rig, group) == 0)
    assert {key: value["versions"] for key, value in rig.output(group).items() if key in names} == dict.fromkeys(
        names, 8
    )


@pytest.mark.timeout(300)
def test_parked_records_keep_their_order_when_partitions_are_added(rig: Rig) -> None:
    topic, group, gate, names = rig.topic(partitions=2), unique("more"), Event(), [f"doc-{n}" for n in range(8)]
    runs: list[tuple[str, int]] = []

    def handle(doc: DocumentSaved) -> Increment:
        if doc.version == 1 and not gate.is_set():
            raise RetryLater("not yet")
        runs.append((doc.document_id, doc.version))
        return Increment(doc.document_id, {"versions": 1})

    declared = reader(group=group, retry=ENDLESS)(handle)
    with rig.worker(declared, topic), rig.worker(declared, topic):
        for version in (1, 2, 3):
            for name in names:
                rig.put(topic, name, version)
        eventually(lambda: parked(rig, group) == 3 * len(names), 60)
        (added,) = rig.admin.create_partitions([NewPartitions(topic, 4)]).values()
        added.result()
        eventually(lambda: len(rig.admin.list_topics(topic, timeout=10).topics[topic].partitions) == 4)
        del rig.producer  # the next one knows the new partitions
        for name in names:
            rig.put(topic, name, 4)
        assert any(key_hash(name.encode()) % 4 > 1 for name in names), "no key goes elsewhere"
        eventually(lambda: parked(rig, group) == 4 * len(names), 90, "the fourth version parks, whoever reads it")
        gate.set()
        eventually(lambda: completed(rig, group, names, 4), 60)
    for name in names:
        assert [version for key, version in runs if key == name] == [1, 2, 3, 4]


def test_a_partition_in_order_as_a_whole_keeps_it_through_failures(rig: Rig) -> None:
    """Its records are of many documents, whose versions say nothing of one another."""
    topic, group, gate = rig.topic(), unique("whole"), Event()
    runs: list[tuple[str, int]] = []

    def handle(doc: DocumentSaved) -> Increment:
        if not gate.is_set():
            raise RetryLater("not yet")
        runs.append((doc.document_id, doc.version))
        return Increment("all", {"versions": 1})

    records = [("a", 5), ("b", 1), ("a", 6), ("c", 3), ("b", 2)]
    for name, version in records:
        rig.put(topic, name, version)
    with rig.worker(reader(group=group, order="partition", retry=ENDLESS)(handle), topic):
        eventually(lambda: parked(rig, group) == len(records), 30)
        gate.set()
        eventually(lambda: parked(rig, group) == 0 and rig.lag(group, topic) == 0, 30)
    assert runs == records
    assert rig.output(group) == {"all": {"versions": len(records)}}


def test_a_long_lane_goes_on_in_the_table(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that holds half of the log takes neither memory nor its neighbours' time."""
    monkeypatch.setattr(dispatch, "LANE_RECORDS_MAX", 50)
    monkeypatch.setattr(loop, "RECORDS_IN_FLIGHT_MAX", 200)
    topic, group, gate = rig.topic(), unique("spill"), Event()

    def handle(doc: DocumentSaved) -> Increment:
        if doc.document_id == "hot":
            gate.wait(60)
        return Increment(doc.document_id, {"versions": 1})

    records = [("hot", version) for version in range(1, 401)]
    records += [(f"other-{number}", 1) for number in range(400)]
    random.Random(7).shuffle(others := records[400:])
    mixed = [one for pair in zip(records[:400], others, strict=True) for one in pair]
    rig.produce(topic, *({"key": name, "value": rig.event(name, version)} for name, version in mixed))
    with rig.worker(reader(group=group, concurrency=4)(handle), topic):
        catches_up(rig, group, {f"other-{number}": 1 for number in range(400)}, 30)
        eventually(lambda: parked(rig, group) >= 340, 30)
        gate.set()
        eventually(lambda: completed(rig, group, ["hot"], 400), 90)
    assert rig.output(group)["hot"] == {"versions": 400}


def test_a_parked_record_counts_a_run_when_its_handler_begins_and_no_earlier(rig: Rig) -> None:
    """Loaded long before its time, it may wait through any number of deaths without being taken for their cause."""
    topic, group, gate, calls = rig.topic(), unique("begun"), Event(), list[str]()

    def handle(doc: DocumentSaved) -> None:
        calls.append(doc.document_id)
        if len(calls) == 1:
            raise RetryLater("later", after_seconds=1.9)
        gate.wait(60)

    def runs() -> list[tuple[int]]:
        return rig.rows("SELECT runs FROM readers.parked WHERE reader = %s", group)

    rig.put(topic, "doc")
    with rig.worker(reader(group=group)(handle), topic) as worker:
        eventually(lambda: worker.loop.status().waiting_lanes == 1)
        assert (runs(), len(calls)) == ([(0,)], 1)
        eventually(lambda: len(calls) == 2)
        assert runs() == [(1,)]
        gate.set()
        eventually(lambda: runs() == [])


class Provider:
    """What a handler depends on: there, or not."""

    def __init__(self) -> None:
        self.is_down = Event()
        self.calls: Counter[str] = Counter()

    def handle(self, doc: DocumentSaved) -> Increment:
        self.calls[doc.document_id] += 1
        if self.is_down.is_set():
            raise RetryLater("503")
        return Increment("all", {"versions": 1})


@pytest.mark.timeout(240)
def test_an_outage_burns_no_attempts(rig: Rig) -> None:
    """At 20 records a second, where a document's attempts are used up before the breaker can know."""
    topic, group, provider = rig.topic(partitions=3), unique("outage"), Provider()
    names = [f"doc-{number}" for number in range(600)]
    stop = Event()

    def save() -> None:
        for number, name in enumerate(names):
            rig.put(topic, name)
            if stop.wait(max(0.0, began + number / 20 - time.monotonic())):
                return

    saving = Thread(target=save)
    with rig.worker(reader(group=group, retry=Retry(2, 0.01, 0.01))(provider.handle), topic):
        began = time.monotonic()
        saving.start()
        try:
            eventually(lambda: len(rig.done(group)) >= 40)
            provider.is_down.set()
            eventually(lambda: sum(provider.calls.values()) > 60 and rig.lag(group, topic) > 200, 40)
            before = parked(rig, group)
            time.sleep(5)  # nothing to wait for: what is asked is that nothing happens
            assert parked(rig, group) == before <= 60
            provider.is_down.clear()
            back = time.monotonic()
            eventually(lambda: parked(rig, group) == 0 and rig.lag(group, topic) < 60, 10, "it recovers")
            assert time.monotonic() - back < 10
        finally:
            stop.set()
            saving.join()
        eventually(lambda: rig.lag(group, topic) == 0 and parked(rig, group) == 0, 30)
    assert rig.dead_letters(group, "document_id") == []


def test_three_poison_records_at_low_traffic_are_no_outage(rig: Rig) -> None:
    topic, group, calls = rig.topic(), unique("poison"), Counter[str]()

    def handle(doc: DocumentSaved) -> Increment:
        calls[doc.document_id] += 1
        if doc.document_id.startswith("bad"):
            raise TimeoutError("no answer")
        return Increment("all", {"versions": 1})

    for name in ("bad-1", "bad-2", "bad-3"):
        rig.put(topic, name)
    with rig.worker(reader(group=group, retry=Retry(3, 0.2, 0.4))(handle), topic):
        eventually(lambda: calls["bad-1"] and calls["bad-2"] and calls["bad-3"])
        rig.put(topic, "good")
        catches_up(rig, group, {"good": 1}, 2)
        eventually(lambda: len(rig.dead_letters(group, "document_id")) == 3, 40)
    assert calls == Counter({"bad-1": 3, "bad-2": 3, "bad-3": 3, "good": 1})


def deaths(path: Path) -> Counter[str]:
    return Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("title", ["kill", "kill later"])
def test_a_record_that_kills_its_worker_ends_as_a_dead_letter(rig: Rig, tmp_path: Path, title: str) -> None:
    """At its first attempt, or at a retry, when it is parked; its neighbours do not suffer."""
    prefix, killer, log = unique("killer") + "-", unique("killer"), tmp_path / "deaths"
    group, others = f"{prefix}killed", [unique("other") for _ in range(30)]
    rig.start_at_end(group)
    with rig.command(prefix, "killed", workers=2, TEST_DEATHS=str(log)) as fleet:
        for name in others[:15]:
            rig.save(name)
        rig.save(killer, title=title)
        for name in others[15:]:
            rig.save(name)
        catches_up(rig, group, dict.fromkeys(others, 1), 120)
        eventually(lambda: rig.dead_letters(group, "document_id") == [(killer,)], 120)
        eventually(lambda: rig.lag(group) == 0, 30)
        assert fleet.process.poll() is None
    died = deaths(log)
    assert died["child"] == 3
    assert 1 <= died["worker"] <= 2
    ((error, message),) = rig.dead_letters(group, "error_class, error_message")
    assert error == "WorkerDied"
    assert "9" in message


@pytest.mark.timeout(300)
def test_random_kill_9_convicts_nobody(rig: Rig) -> None:
    prefix, names = unique("innocent") + "-", [unique("doc") for _ in range(300)]
    group = f"{prefix}recorder"
    rig.start_at_end(group)
    with rig.command(prefix, "recorder", workers=3) as fleet:
        saver = Thread(target=lambda: [rig.save(name) for name in names])
        saver.start()
        kill_at_random(fleet, 25)
        saver.join()
        catches_up(rig, group, dict.fromkeys(names, 1), 120)
    assert rig.dead_letters(group, "document_id") == []


def kill_at_random(fleet: Command, kills: int) -> None:
    """So many times, every 0.3 s, one of the workers."""
    chance = random.Random(11)
    while kills:
        workers = fleet.workers()
        if workers:
            psutil.Process(chance.choice(workers)).kill()
            kills -= 1
        time.sleep(0.3)
