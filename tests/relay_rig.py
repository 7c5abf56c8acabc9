"""What the relay's tests share: a topic of their own, events through the outbox, the command line, the doctor."""

from __future__ import annotations

import io
import json
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from streams.cli.main import main
from streams.config import Settings
from streams.database import connect
from streams.kafka.published import PublishedEvents
from streams.kafka.topics_admin import TopicsAdmin
from streams.topics import Topic
from tests.support import eventually

PAYLOAD = b"\x00\x00\x00\x00\x01 an event of the relay's tests"


@dataclass
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def streams(command: str) -> Done:
    """Run a command line as the doctor prints it (`streams outbox skip 7`), by the entry point, in this process."""
    name, *words = shlex.split(command)
    assert name == "streams"
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *words])
        try:
            main()
        except SystemExit as end:
            return Done(int(end.code or 0), out.getvalue(), err.getvalue())
    return Done(0, out.getvalue(), err.getvalue())


@dataclass
class Diagnosis:
    """What one run of the doctor said."""

    exit_code: int
    commands: list[str]
    checks: list[dict[str, Any]]

    @property
    def faults(self) -> dict[str, str]:
        return {check["name"]: check["says"] for check in self.checks if check["state"] == "fault"}


def doctor() -> Diagnosis:
    done = streams("streams doctor --json")
    found = json.loads(done.stdout)
    assert found["healthy"] == (done.returncode == 0)
    return Diagnosis(done.returncode, found["commands"], found["checks"])


@dataclass
class Events:
    """Events of one test, in a topic of its own; `sent` has their ids in the order of their commits."""

    config: Settings
    topic: str
    sent: list[str] = field(default_factory=list)

    def emit(
        self, count: int = 1, *, key: str = "one", payload: bytes = PAYLOAD, topic: str | None = None
    ) -> list[str]:
        """Write events, each in a transaction; gives their ids."""
        with connect(self.config, autocommit=True) as connection:
            ids = [self._emit(connection, key, payload, topic or self.topic) for _ in range(count)]
        self.sent += ids
        return ids

    def _emit(self, connection: psycopg.Connection[Any], key: str, payload: bytes, topic: str) -> str:
        event_id = str(uuid4())
        connection.execute(
            "INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload) "
            "VALUES (%s, %s, %s, 'test', %s)",
            [event_id, topic, key, payload],
        )
        return event_id

    @contextmanager
    def flowing(self, pause_seconds: float = 0.05) -> Iterator[None]:
        """Events of one key all the while, from another thread."""
        stop, failed = Event(), []

        def write() -> None:
            try:
                while not stop.is_set():
                    self.emit(key="flow")
                    time.sleep(pause_seconds)
            except Exception as error:  # noqa: BLE001 - told to the test below
                failed.append(error)

        thread = Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not failed, failed

    def seq(self, event_id: str) -> int:
        with connect(self.config) as connection:
            row = connection.execute("SELECT min(seq) FROM app.outbox WHERE event_id = %s", [event_id]).fetchone()
        assert row is not None
        return int(row[0])

    def missing(self) -> set[str]:
        """Those of `sent` that are in no record of the topic."""
        with PublishedEvents(self.config) as published:
            return set(self.sent) - {event_id for event_id, _ in published.since({self.topic: datetime(1970, 1, 1)})}

    def all_arrive(self, seconds: float = 120.0) -> None:
        eventually(lambda: not self.missing(), seconds, f"the arrival of {len(self.sent)} events in {self.topic}")

    def records(self, key: str | None = None) -> list[Message]:
        """The topic's committed records in the order of the log (it has one partition)."""
        found = list(read_all(self.config, self.topic))
        return [record for record in found if key is None or record.key() == key.encode()]

    def ids(self, key: str | None = None) -> list[str]:
        return [header(record, "id") for record in self.records(key)]

    def came_in_order(self, key: str) -> bool:
        """Whether the key's events first came in the order in which they were sent."""
        came = list(dict.fromkeys(self.ids(key)))
        wanted = set(came)
        return came == [event_id for event_id in self.sent if event_id in wanted]


def header(record: Message, name: str) -> str:
    headers: dict[str, Any] = dict(record.headers() or [])
    return str(headers[name], "utf-8")


def read_all(config: Settings, topic: str) -> Iterator[Message]:
    """Every committed record of partition 0."""
    consumer = Consumer(
        {
            **config.kafka_client(),
            "group.id": "read-all",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while (message := consumer.poll(10)) is not None and message.error() is None:
            yield message
    finally:
        consumer.close()


def leave_running(events: Events) -> None:
    """Wait until the relay is past the topic, which it could not do without; a test that failed left it broken."""
    events.sent = events.emit()
    try:
        events.all_arrive()
    except AssertionError:
        streams("streams outbox repair")
        streams("streams setup")
        raise


@contextmanager
def own_topic(config: Settings, name: str) -> Iterator[Events]:
    """A topic of one partition that the outbox may name; gone afterwards, with its rows."""
    admin = TopicsAdmin(config)
    admin.create(Topic(name, partitions=1))
    with connect(config, autocommit=True) as connection:
        connection.execute("INSERT INTO app.topics VALUES (%s) ON CONFLICT DO NOTHING", [name])
    try:
        events = Events(config, name)
        yield events
        leave_running(events)
    finally:
        with connect(config, autocommit=True) as connection:
            connection.execute("DELETE FROM app.outbox WHERE topic = %s", [name])
            connection.execute("DELETE FROM app.topics WHERE name = %s", [name])
        admin.delete(name)
