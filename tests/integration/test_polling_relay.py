"""The polling relay on the real stack: Debezium's records byte for byte, nothing lost, a document's order kept."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console

from streams.cdc import connector
from streams.cdc.connect import Connect, ConnectorState
from streams.config import Settings
from streams.database import connect
from streams.errors import RelayError, Unavailable
from streams.kafka.topics_admin import TopicsAdmin
from streams.ops import polling
from streams.stack import local
from streams.topics import Topic
from tests.api_process import environment
from tests.api_process import streams as command_line
from tests.relay_rig import PAYLOAD, Events, doctor, own_topic, streams
from tests.support import eventually

pytestmark = pytest.mark.timeout(300)

END_SECONDS_MAX = 10.0  # what a container is given


@dataclass
class Relay:
    """A running `streams outbox relay`."""

    process: subprocess.Popen[bytes]
    log: Path

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def end(self) -> int:
        """Ask it to end; gives the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(END_SECONDS_MAX)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


Start = Callable[..., Relay]


@pytest.fixture
def start(stack: Settings, tmp_path: Path) -> Iterator[Start]:
    """Start a relay; what runs at the test's end is killed, and what it said is shown beside a failure."""
    running: list[Relay] = []

    def begin(*options: str, until: str = "this relay works") -> Relay:
        log = tmp_path / f"relay-{len(running)}"
        command = command_line("outbox", "relay", "--interval", "0.05", *options)
        with log.open("wb") as file:
            running.append(Relay(subprocess.Popen(command, env=environment({}), stdout=file, stderr=file), log))
        eventually(lambda: running[-1].says(until), 60, f"a relay that says {until!r}")
        return running[-1]

    yield begin
    for relay in running:
        relay.kill()
        print(relay.log.name, relay.log.read_text(), sep="\n")


@pytest.fixture(scope="module")
def without_debezium(stack: Settings) -> Iterator[str]:
    """A topic for the module's tests, while the connector is stopped; then the repair hands the outbox back."""
    with own_topic(stack, f"test-polling-{os.urandom(3).hex()}") as events:
        with Connect(stack) as worker:
            worker.stop(connector.NAME)
            connector.wait_until_stopped(worker)
        yield events.topic
        done = streams("streams outbox repair")
        assert done.returncode == 0, done.stderr


@pytest.fixture
def events(stack: Settings, without_debezium: str) -> Events:
    return Events(stack, without_debezium)


# ------------------------------------------------------------------------------- beside Debezium, from it and back


def test_it_refuses_to_run_beside_debezium(stack: Settings) -> None:
    done = subprocess.run(
        command_line("outbox", "relay"), env=environment({}), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 6
    assert done.stderr.startswith("error: Debezium relays this outbox")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def wide_topic(stack: Settings) -> Iterator[str]:
    """Of several partitions."""
    name, admin = f"test-twins-{os.urandom(3).hex()}", TopicsAdmin(stack)
    admin.create(Topic(name, partitions=5))
    with connect(stack, autocommit=True) as connection:
        connection.execute("INSERT INTO app.topics VALUES (%s)", [name])
        yield name
        connection.execute("DELETE FROM app.outbox WHERE topic = %s", [name])
        connection.execute("DELETE FROM app.topics WHERE name = %s", [name])
    admin.delete(name)


def twins(connection: psycopg.Connection[Any], topic: str) -> None:
    """Rows of all kinds: keys, sizes, times, with and without what may be NULL."""
    keys = ["one", "two", "schlüssel-☃", "", "x" * 900, "key with spaces", "0"]
    sizes = [6, 7, 2_000, 100_000, 1_500_000, 6, 33]
    for number, (key, size) in enumerate(zip(keys, sizes, strict=True)):
        connection.execute(
            "INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload, traceparent, created_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [
                str(uuid4()),
                topic,
                key,
                "gelöscht" if number % 2 else "saved",
                os.urandom(size),
                "00-trace-01" if number % 3 else None,
                datetime(2001 + number, 2, 3, 4, 5, 6, 789_000) + timedelta(days=9_000 * (number % 2)),
            ],
        )


def test_its_records_are_debeziums_byte_for_byte_and_nothing_is_lost_in_between(
    stack: Settings, start: Start, wide_topic: str
) -> None:
    """From Debezium to the polling relay and back, with rows on their way each time."""
    with connect(stack, autocommit=True) as connection:
        twins(connection, wide_topic)
        theirs = await_records(stack, wide_topic, 7)
        relay = start("--take-over")
        again = "INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload, traceparent, created_at) "
        again += "SELECT event_id, topic, message_key, event_type, payload, traceparent, created_at FROM app.outbox "
        connection.execute(f"{again} WHERE topic = %s ORDER BY seq", [wide_topic])
        both = await_records(stack, wide_topic, 14)
        assert sorted(both) == sorted(theirs * 2)
        assert "the polling relay runs" in streams("streams outbox repair").stderr
        assert relay.end() == 0
        twins(connection, wide_topic)  # while no relay runs
        done = streams("streams outbox repair")
        assert done.returncode == 0, done.stderr
        await_records(stack, wide_topic, 21)  # what was saved in between, once


def await_records(config: Settings, topic: str, count: int) -> list[tuple[Any, ...]]:
    def look() -> list[tuple[Any, ...]]:
        found = records(config, topic)
        assert len(found) == count
        return found

    return eventually(look, 60)


def records(config: Settings, topic: str) -> list[tuple[Any, ...]]:
    """All that a record has but its offset, of every partition."""
    consumer = Consumer(
        {**config.kafka_client(), "group.id": "read-all", "enable.partition.eof": True, "fetch.wait.max.ms": 20}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(5)])
    found, ends = [], 0
    while ends < 5:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            ends += 1
            continue
        headers = [(name, b"NULL" if value is None else value) for name, value in list[Any](message.headers() or ())]
        found.append((message.partition(), message.key(), message.value(), headers, message.timestamp()))
    consumer.close()
    return found


# -------------------------------------------------------------------------------------------------------------- alone


def insert(connection: psycopg.Connection[Any], events: Events, key: str) -> str:
    event_id = events._emit(connection, key, PAYLOAD, events.topic)
    events.sent.append(event_id)
    return event_id


@contextmanager
def in_a_thread(config: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A relay that closes gaps all the while."""
    monkeypatch.setattr(polling, "SETTLE_SECONDS", 0.05)
    ended = Event()
    thread = Thread(target=polling.relay, args=(config, polling.Pace(interval_seconds=0.02, rows_max=3), ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_SECONDS_MAX)
    assert not thread.is_alive()


def test_a_row_that_is_committed_late_is_not_passed_over(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that is rolled back hold the others up, or keep the outbox from being pruned."""
    with in_a_thread(events.config, monkeypatch), connect(events.config) as late, connect(events.config) as never:
        insert(late, events, "late")
        never.execute("SELECT nextval(pg_get_serial_sequence('app.outbox', 'seq'))")
        insert(never, events, "never")
        never.rollback()
        gone = events.sent.pop()
        for _ in range(8):
            events.emit(key="others")
            eventually(lambda: len(events.ids("others")) == len(events.sent) - 1, 30, "the arrival of the others")
        assert settled(events.config) < events.seq(events.sent[1])
        assert events.missing() == {events.sent[0]}
        late.commit()
        events.all_arrive(30)
        newest = events.seq(events.sent[-1])
        eventually(lambda: settled(events.config) >= newest, 30, "the closing of all gaps")
        assert "kept 0 that old" in streams("streams outbox prune --older-than 0s").stdout
    assert gone not in events.ids()
    assert len(events.ids("others")) == 8


def settled(config: Settings) -> int:
    """Up to which seq the relay has nothing more to expect."""
    with connect(config) as connection:
        row = connection.execute("SELECT coalesce(lower(waiting) - 1, 0) FROM app.outbox_polled").fetchone()
    assert row is not None
    return int(row[0])


def test_a_relay_that_is_killed_loses_nothing_and_keeps_the_order(events: Events, start: Start) -> None:
    """kill -9 twice under saves of several documents, many at once."""
    keys = [f"document-{number}" for number in range(4)]

    def save(key: str) -> None:
        for _ in range(75):
            events.emit(key=key)

    relay, savers = start("--batch", "20"), [Thread(target=save, args=[key]) for key in keys]
    for saver in savers:
        saver.start()
    for wanted in (50, 150):
        eventually(lambda: len(events.ids(keys[0])) * 4 > wanted, 60)  # noqa: B023 - it is called at once
        relay.kill()
        relay = start("--batch", "20")
    for saver in savers:
        saver.join()
    events.all_arrive()
    for key in keys:
        assert events.came_in_order(key)
        assert len(set(events.ids(key))) == 75


def test_one_works_and_another_waits_to_take_over(events: Events, start: Start) -> None:
    first = start()
    second = start(until="this one waits")
    assert not second.says("this relay works")
    assert streams("streams outbox status").stdout.startswith("relay        polling")
    found = doctor()
    assert (found.exit_code, found.faults) == (0, {})
    assert "polled" in streams("streams lag --group relay").stdout
    assert "left to the polling relay" in streams("streams setup").stderr
    events.emit(key="first")
    events.all_arrive(30)
    first.kill()
    events.emit(key="second")
    events.all_arrive(30)
    assert second.says("this relay works")
    assert second.end() == 0


def test_it_ends_in_time_also_while_the_broker_is_frozen(stack: Settings, events: Events, start: Start) -> None:
    relay, broker = start(), pids(stack)["kafka"]
    events.emit(key="frozen")
    events.all_arrive(30)
    os.kill(broker, signal.SIGSTOP)
    try:
        events.emit(20, key="frozen")
        time.sleep(1)  # for it to send them: what is sent is not acknowledged
        assert relay.end() == 0
    finally:
        os.kill(broker, signal.SIGCONT)
    start()
    events.all_arrive(60)
    assert events.came_in_order("frozen")


@pytest.mark.parametrize(("then", "raised"), [("STOPPED", None), ("RUNNING", RelayError), ("UNASSIGNED", Unavailable)])
def test_what_connect_has_not_handed_out_yet_is_waited_for(
    stack: Settings, without_debezium: str, then: str, raised: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each return of the broker Connect says for a moment that its connector belongs to no worker."""
    states = iter(["UNASSIGNED", "UNASSIGNED"])
    monkeypatch.setattr(Connect, "state", lambda *_: ConnectorState(next(states, then)))
    monkeypatch.setattr(connector, "_HANDED_OUT_SECONDS_MAX", 1.0)
    with pytest.raises(raised) if raised else nullcontext():
        polling._refuse_two_relays(stack)


def test_it_outlasts_servers_that_are_killed(stack: Settings, events: Events, start: Start) -> None:
    relay = start()
    with events.flowing():
        events.all_arrive(30)
        os.kill(pids(stack)["kafka"], signal.SIGSTOP)
        events.emit(5)
    for server in ("kafka", "postgres"):
        os.kill(pids(stack)[server], signal.SIGKILL)
    local.up(stack, Console(stderr=True))
    events.emit(5, key="flow")
    events.all_arrive(60)
    assert relay.says("nothing is relayed")
    assert events.came_in_order("flow")
    assert relay.process.poll() is None


def pids(config: Settings) -> dict[str, int]:
    return {part["name"]: part["pid"] for part in local.status(config)["parts"]}


def test_a_row_that_the_broker_refuses_is_named_and_skipped(events: Events, start: Start) -> None:
    """It stands in the middle of a batch; what is before it goes, what is behind it waits."""
    small = f"{events.topic}-small"
    relay = start()
    with own_topic(events.config, small) as narrow:
        TopicsAdmin(events.config).alter(small, {"max.message.bytes": "5000"})
        with connect(events.config) as connection:
            before = [narrow._emit(connection, "one", PAYLOAD, small) for _ in range(3)]
            poison = narrow._emit(connection, "one", os.urandom(6_000), small)
            after = [narrow._emit(connection, "one", PAYLOAD, small) for _ in range(3)]
        seq = narrow.seq(poison)
        eventually(lambda: relay.says(f"row {seq} cannot be published"), 60, "the row's name")
        assert narrow.ids() == before
        done = streams(f"streams outbox skip {seq}")
        assert done.returncode == 0, done.stderr
        eventually(lambda: narrow.ids() == [*before, *after], 60, "the arrival of all others, in order")
