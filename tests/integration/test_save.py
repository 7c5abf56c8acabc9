"""The save on the real stack: one transaction or nothing, versions without gaps, and what comes into the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from threading import Barrier, Event
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from streams.database import pool
from streams.errors import InvalidField, NotFound, SchemaError
from streams.kafka.published import PublishedEvents
from streams.outbox.save import Document, Origin, Saved, delete, save
from streams.topics import DOCUMENTS_SAVED
from tests.rig import Rig, unique
from tests.support import eventually

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def outbox(rig: Rig, document_id: str) -> list[tuple[Any, ...]]:
    """The document's outbox rows in the log's order: event id, type, event, traceparent, created_at."""
    columns = "event_id, event_type, payload, traceparent, created_at"
    found = rig.rows(f"SELECT {columns} FROM app.outbox WHERE message_key = %s ORDER BY seq", document_id)
    return [(one, kind, rig.codec.decode(DOCUMENTS_SAVED, frame), *rest) for one, kind, frame, *rest in found]


def everything(rig: Rig, document_id: str) -> list[list[tuple[Any, ...]]]:
    """All that is known of a document."""
    return [
        rig.rows("SELECT * FROM app.documents WHERE document_id = %s", document_id),
        rig.rows("SELECT * FROM app.jobs WHERE document_id = %s", document_id),
        rig.rows("SELECT * FROM app.outbox WHERE message_key = %s", document_id),
    ]


def save_as(rig: Rig, document: Document, **origin: Any) -> Saved:
    with rig.connect() as connection:
        return save(connection, rig.codec.encode, document, Origin(**origin))


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """The results of the calls, all begun at the same moment; an error is a result too."""
    start = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return call()
        except (InvalidField, NotFound) as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


# ------------------------------------------------------------------------------------------------ one save


def test_a_save_is_a_document_a_job_and_an_event_of_one_instant(rig: Rig) -> None:
    name = unique("doc")
    before = datetime.now(UTC) - timedelta(seconds=2)
    saved = save_as(rig, Document(name, "ada", "Tïtle", "Body 😀"), traceparent=TRACEPARENT)
    [(owner, title, body, version, saved_at, deleted_at)] = rig.rows(
        "SELECT owner_id, title, body, version, saved_at, deleted_at FROM app.documents WHERE document_id = %s", name
    )
    assert (owner, title, body, version, deleted_at) == ("ada", "Tïtle", "Body 😀", 1, None)
    assert before < saved_at < datetime.now(UTC) + timedelta(seconds=2)
    assert rig.rows("SELECT * FROM app.jobs WHERE document_id = %s", name) == [(saved.job_id, name, 1, saved_at)]
    [(event_id, event_type, event, traceparent, created_at)] = outbox(rig, name)
    assert (event_id, event_type, traceparent) == (saved.job_id, "saved", TRACEPARENT)
    assert event == {
        "document_id": name,
        "owner_id": "ada",
        "version": 1,
        "title": "Tïtle",
        "body": "Body 😀",
        "saved_at": saved_at,
        "type": "saved",
    }
    assert created_at.replace(tzinfo=UTC) == saved_at
    assert saved_at.microsecond % 1000 == 0


def test_a_deletion_is_a_version_and_a_later_save_revives_the_document(rig: Rig) -> None:
    name = unique("doc")
    versions = [rig.save(name).version, rig.save(name, body="second").version, rig.delete(name).version]
    with pytest.raises(NotFound, match=name):
        rig.delete(name)
    [(title, body, deleted)] = rig.rows(
        "SELECT title, body, deleted_at IS NOT NULL FROM app.documents WHERE document_id = %s", name
    )
    assert (title, body, deleted) == ("", "", True)
    versions.append(rig.save(name, owner="bob").version)
    assert versions == [1, 2, 3, 4]
    assert rig.rows("SELECT deleted_at FROM app.documents WHERE document_id = %s", name) == [(None,)]
    events = [event for _, _, event, _, _ in outbox(rig, name)]
    assert [(event["version"], event["type"], event["owner_id"]) for event in events] == [
        (1, "saved", "rig"),
        (2, "saved", "rig"),
        (3, "deleted", "rig"),
        (4, "saved", "bob"),
    ]
    assert (events[2]["title"], events[2]["body"]) == ("", "")


def test_what_was_never_saved_cannot_be_deleted(rig: Rig) -> None:
    name = unique("doc")
    with pytest.raises(NotFound, match=name):
        rig.delete(name)
    assert everything(rig, name) == [[], [], []]


def test_a_save_that_fails_leaves_nothing(rig: Rig) -> None:
    def broken(*_: Any) -> bytes:
        raise SchemaError("the event does not fit")

    name, key = unique("doc"), unique("key")
    for _ in range(2):
        before = everything(rig, name)
        with rig.connect() as connection, pytest.raises(SchemaError):
            save(connection, broken, Document(name, "ada", "t", "b"), Origin(key, b"hash"))
        assert everything(rig, name) == before
        assert rig.rows("SELECT FROM app.idempotency_keys WHERE key = %s", key) == []
        rig.save(name)


# --------------------------------------------------------------------------------------------- many saves


def test_a_hundred_saves_of_one_new_document_at_once_have_versions_without_gaps(rig: Rig) -> None:
    name = unique("doc")
    with pool(rig.config, size_max=40, wait_seconds_max=30) as connections:

        def save_it() -> Saved:
            with connections.connection() as connection:
                return save(connection, rig.codec.encode, Document(name, "ada", "t", "b"), Origin())

        results = at_once(*[save_it] * 100)
    assert sorted(saved.version for saved in results) == list(range(1, 101))
    rows = outbox(rig, name)
    assert [event["version"] for _, _, event, _, _ in rows] == list(range(1, 101))
    times = [created_at for *_, created_at in rows]
    assert times == sorted(times)
    jobs = dict(rig.rows("SELECT version, event_id FROM app.jobs WHERE document_id = %s", name))
    assert jobs == {saved.version: saved.job_id for saved in results}


def test_saves_and_deletions_at_once_follow_each_other(rig: Rig) -> None:
    name = unique("doc")
    rig.save(name)
    results = at_once(*[lambda: rig.save(name), lambda: rig.delete(name)] * 20)
    done = [saved for saved in results if isinstance(saved, Saved)]
    rows = outbox(rig, name)
    assert [event["version"] for _, _, event, _, _ in rows] == list(range(1, len(done) + 2))
    times = [created_at for *_, created_at in rows]
    assert times == sorted(times)
    kinds = [event["type"] for _, _, event, _, _ in rows]
    assert ("deleted", "deleted") not in list(pairwise(kinds))


def test_one_document_waits_for_its_other_save_and_no_other_document_does(rig: Rig) -> None:
    name, other = unique("doc"), unique("doc")
    saved = Event()

    def save_and_hold(until: Event) -> None:
        with rig.connect() as connection, connection.transaction():
            save(connection, rig.codec.encode, Document(name, "ada", "t", "first"), Origin())
            saved.set()
            assert until.wait(20)

    with ThreadPoolExecutor(2) as threads:
        release = Event()
        try:
            first = threads.submit(save_and_hold, release)
            assert saved.wait(10)
            second = threads.submit(rig.save, name, body="second")
            assert rig.save(other).version == 1
            assert not second.done()
        finally:
            release.set()
        first.result(10)
        assert second.result(10).version == 2
    times = [created_at for *_, created_at in outbox(rig, name)]
    assert times == sorted(times)


# ------------------------------------------------------------------------------------------ idempotency key


def test_the_same_request_under_a_key_is_one_save(rig: Rig) -> None:
    name, key = unique("doc"), unique("key")
    first = save_as(rig, Document(name, "ada", "t", "b"), idempotency_key=key, request_hash=b"one")
    again = save_as(rig, Document(name, "ada", "t", "b"), idempotency_key=key, request_hash=b"one")
    assert first == again
    with pytest.raises(InvalidField, match="Idempotency-Key"):
        save_as(rig, Document(name, "ada", "t", "other"), idempotency_key=key, request_hash=b"two")
    assert len(outbox(rig, name)) == 1


def test_requests_under_one_key_at_once_are_one_save(rig: Rig) -> None:
    names, key = [unique("doc") for _ in range(20)], unique("key")
    # As when the API makes up the id: another document each time, but the same request.
    saves = [
        lambda name=name: save_as(rig, Document(name, "ada", "t", "b"), idempotency_key=key, request_hash=b"one")
        for name in names
    ]
    answers = at_once(*saves)
    assert len(set(answers)) == 1
    assert sum(len(outbox(rig, name)) for name in names) == 1


def test_a_deletion_under_a_key_has_one_answer(rig: Rig) -> None:
    name, origin = unique("doc"), Origin(unique("key"), b"delete")
    rig.save(name)
    with rig.connect() as connection:
        first = delete(connection, rig.codec.encode, name, origin)
        assert delete(connection, rig.codec.encode, name, Origin(origin.idempotency_key, b"delete")) == first


# -------------------------------------------------------------------------------------------------- the log


def log_since(rig: Rig, start: datetime) -> dict[str, Message]:
    """The committed records of the log from a time on, by event id."""
    consumer = Consumer(
        {
            **rig.config.kafka_client(),
            "group.id": unique("test"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 8_388_608,
        }
    )
    moment = int(start.timestamp() * 1000)
    partitions = [TopicPartition(DOCUMENTS_SAVED.name, one, moment) for one in range(DOCUMENTS_SAVED.partitions)]
    starts = [one for one in consumer.offsets_for_times(partitions, timeout=10) if one.offset >= 0]
    consumer.assign(starts)
    found: dict[str, Message] = {}
    ended: set[int | None] = set()
    while len(ended) < len(starts):
        message = consumer.poll(10)
        assert message is not None, "the broker gave nothing"
        if message.error() is None:
            found[headers(message)["id"].decode()] = message
        else:
            ended.add(message.partition())
    consumer.close()
    return found


def in_log(rig: Rig, start: datetime, saved: Saved) -> Message:
    """The record of a save, once it is there."""

    def record() -> Message:
        found = log_since(rig, start)
        assert str(saved.job_id) in found
        return found[str(saved.job_id)]

    return eventually(record, 20)


def headers(message: Message) -> Mapping[str, bytes]:
    return dict(message.headers() or [])  # type: ignore[arg-type]


def published(rig: Rig, start: datetime) -> set[UUID]:
    with PublishedEvents(rig.config) as events:
        return {UUID(one) for one, _ in events.since({DOCUMENTS_SAVED.name: start.replace(tzinfo=None)})}


def test_a_save_comes_into_the_log_as_it_was(rig: Rig) -> None:
    name, start = unique("dóc"), datetime.now(UTC) - timedelta(seconds=1)
    saved = save_as(rig, Document(name, "ada", "t", "b"), traceparent=TRACEPARENT)
    message = in_log(rig, start, saved)
    assert message.key() == name.encode()
    assert headers(message) == {
        "id": str(saved.job_id).encode(),
        "type": b"saved",
        "traceparent": TRACEPARENT.encode(),
    }
    [(_, _, event, _, created_at)] = outbox(rig, name)
    assert rig.codec.decode(DOCUMENTS_SAVED, message.value()) == event
    assert message.timestamp()[1] == round(created_at.replace(tzinfo=UTC).timestamp() * 1000)


def test_the_largest_body_comes_into_the_log(rig: Rig) -> None:
    start = datetime.now(UTC) - timedelta(seconds=1)
    body = "\U0001f600" * (1024 * 1024)
    saved = save_as(rig, Document(unique("doc"), "ada", "ئ" * 10_000, body))
    message = in_log(rig, start, saved)
    assert rig.codec.decode(DOCUMENTS_SAVED, message.value())["body"] == body


def test_a_transaction_that_rolls_back_publishes_nothing(rig: Rig) -> None:
    name, start = unique("doc"), datetime.now(UTC) - timedelta(seconds=1)
    with rig.connect() as connection, connection.transaction(force_rollback=True):
        undone = save(connection, rig.codec.encode, Document(name, "ada", "t", "b"), Origin())
        assert undone.version == 1
    marker = rig.save(name)
    assert marker.version == 1
    # The log has the order of commits, and a document one partition: were it published, it would be by now.
    eventually(lambda: marker.job_id in published(rig, start), 20)
    assert undone.job_id not in published(rig, start)


def test_transactions_that_commit_in_another_order_are_all_published(rig: Rig) -> None:
    start = datetime.now(UTC) - timedelta(seconds=1)
    with rig.connect() as slow, slow.transaction():
        early = save(slow, rig.codec.encode, Document(unique("doc"), "ada", "t", "b"), Origin())
        late = [rig.save(unique("doc")) for _ in range(3)]
        # What a relay that reads the table by number would take for the end of the table.
        eventually(lambda: {one.job_id for one in late} <= published(rig, start), 20)
        assert early.job_id not in published(rig, start)
    eventually(lambda: early.job_id in published(rig, start), 20)
