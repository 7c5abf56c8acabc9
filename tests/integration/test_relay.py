"""The relay on the real stack: what a row becomes, in which order, and what it survives."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from threading import Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from rich.console import Console

from streams.config import Settings
from streams.database import connect
from streams.stack import local
from tests.relay_rig import PAYLOAD, Events, header, own_topic
from tests.support import eventually

pytestmark = pytest.mark.timeout(600)

PAYLOAD_BYTES_MAX = 6 * 1024 * 1024  # what the outbox takes


@pytest.fixture
def events(stack: Settings) -> Iterator[Events]:
    with own_topic(stack, f"test-relay-{os.urandom(3).hex()}") as events:
        yield events


def insert(connection: psycopg.Connection[Any], events: Events, key: str) -> str:
    event_id = str(uuid4())
    connection.execute(
        "INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload, traceparent) "
        "VALUES (%s, %s, %s, 'saved', %s, '00-trace')",
        [event_id, events.topic, key, PAYLOAD],
    )
    return event_id


def test_a_row_becomes_a_record(events: Events) -> None:
    """Key and value are the row's bytes, ids stand in headers, and the record's time is the row's."""
    with connect(events.config) as connection:
        event_id = insert(connection, events, "schlüssel-☃")
        row = connection.execute("SELECT created_at FROM app.outbox WHERE event_id = %s", [event_id]).fetchone()
    (record,) = eventually(events.records, 60)
    assert record.key() == "schlüssel-☃".encode()
    assert record.value() == PAYLOAD
    assert {name: header(record, name) for name in ("id", "type", "traceparent")} == {
        "id": event_id,
        "type": "saved",
        "traceparent": "00-trace",
    }
    assert row is not None
    assert record.timestamp() == (TIMESTAMP_CREATE_TIME, milliseconds(row[0]))


def milliseconds(moment: Any) -> int:
    return int((moment - type(moment)(1970, 1, 1)).total_seconds() * 1000)


@pytest.mark.parametrize("size_bytes", [6, PAYLOAD_BYTES_MAX])
def test_the_smallest_and_the_largest_payload_pass_unchanged(events: Events, size_bytes: int) -> None:
    payload = os.urandom(size_bytes)
    events.emit(payload=payload)
    (record,) = eventually(events.records, 60)
    assert record.value() == payload


@pytest.mark.parametrize("payload", [None, b"12345", bytes(PAYLOAD_BYTES_MAX + 1)])
def test_the_outbox_refuses_what_would_be_no_event(events: Events, payload: bytes | None) -> None:
    with pytest.raises(psycopg.errors.IntegrityError):
        events.emit(payload=payload)  # type: ignore[arg-type]


def test_the_outbox_refuses_a_topic_that_does_not_exist(events: Events) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        events.emit(topic="not-a-topic")


def test_what_is_rolled_back_is_never_published(events: Events) -> None:
    with connect(events.config) as connection:
        insert(connection, events, "one")
        connection.rollback()
    events.emit()
    events.all_arrive()
    assert events.ids() == events.sent


def test_the_order_is_that_of_the_commits(events: Events) -> None:
    """Two transactions that commit in the other order than they began."""
    with connect(events.config) as first, connect(events.config) as second:
        began_first, began_second = insert(first, events, "a"), insert(second, events, "b")
        second.commit()
        first.commit()
    eventually(lambda: events.ids() == [began_second, began_first], 60, "both, by commit")


def test_a_deletion_from_the_outbox_is_no_event(events: Events) -> None:
    events.emit(2)
    with connect(events.config) as connection:
        connection.execute("DELETE FROM app.outbox WHERE topic = %s", [events.topic])
    events.emit()
    events.all_arrive()
    assert events.ids() == events.sent


def test_traffic_survives_changes_to_the_table(events: Events) -> None:
    with events.flowing(0.01), connect(events.config, autocommit=True) as connection:
        connection.execute("ALTER TABLE app.outbox ADD COLUMN note text DEFAULT 'x'")
        events.emit(3)
        connection.execute("VACUUM FULL app.outbox")
        events.emit(3)
        connection.execute("ALTER TABLE app.outbox DROP COLUMN note")
        events.emit(3)
    events.all_arrive()
    assert sorted(events.ids()) == sorted(events.sent)


def test_a_killed_worker_neither_loses_nor_doubles(stack: Settings, events: Events) -> None:
    """kill -9 of Connect, twice, under saves: exactly once, in order."""
    with events.flowing(0.01):
        for _ in range(2):
            events.emit(20)
            parts = {part["name"]: part for part in local.status(stack)["parts"]}
            os.kill(parts["connect"]["pid"], signal.SIGKILL)
            local.up(stack, Console(stderr=True))
            events.emit(20)
    events.all_arrive(120)
    assert events.came_in_order("flow")
    assert len(events.ids()) == len(events.sent)


def test_saves_side_by_side_all_arrive(events: Events) -> None:
    threads = [Thread(target=events.emit, kwargs={"count": 50, "key": f"key-{n}"}) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events.all_arrive()
    assert sorted(events.ids()) == sorted(events.sent)
