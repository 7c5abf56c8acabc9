"""What every reader must do, whoever wrote it: each reader that is found here passes the same scenario.

duplicate → stale version → crash between sink and commit → full replay → deletion → full replay after it
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import count
from typing import Any

import pytest

from streams.config import Settings
from streams.contract import DocumentSaved, Reader
from streams.kafka.consumer import KafkaLog
from streams.ops import worker as ops_worker
from streams.readers.discovery import all_readers
from tests.readers_for_tests import plain
from tests.rig import Rig, unique
from tests.support import eventually

READERS = [*all_readers(), plain.record]


@dataclass
class Subject:
    """One reader in a group and a topic of its own, with a count of its handler's calls."""

    rig: Rig
    declared: Reader
    document_id: str
    calls: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.rig.topic()
        self.reader = replace(
            self.declared,
            group=unique(self.declared.group),
            handler=self._counting(self.declared.handler),
            on_delete=self._counting(self.declared.on_delete),
        )
        self._texts = count(1)

    def _counting(self, handler: Any) -> Any:
        @wraps(handler)  # so that it is seen to take what the handler takes
        def count_call(doc: DocumentSaved, *made: Any, **context: Any) -> Any:
            self.calls.append(doc.version)
            return handler(doc, *made, **context)

        @wraps(handler)
        async def count_async(doc: DocumentSaved, *made: Any, **context: Any) -> Any:
            return await count_call(doc, *made, **context)

        return count_async if inspect.iscoroutinefunction(handler) else count_call

    def put(self, version: int, **fields: Any) -> None:
        body = f"The number {version} is in this text. Rivers branch into distributaries before they reach the sea."
        event = {"title": f"Version {version}", "body": body, "owner_id": self.document_id} | fields
        self.rig.put(self.topic, self.document_id, version, **event)

    def run(self) -> list[int]:
        """A worker until all is committed; the versions that its handler was called with."""
        self.calls.clear()
        with self.rig.worker(self.reader, self.topic):
            eventually(lambda: self.rig.lag(self.reader.group, self.topic) == 0, 60)
        return list(self.calls)

    def back_to_start(self, metadata: str | None) -> None:
        self.rig.commit(self.reader.group, self.topic, {0: 0}, metadata)

    def metadata(self) -> str:
        return self.rig.committed(self.reader.group, self.topic)[0][1]

    def rows(self) -> list[Any]:
        """All that the reader has of the document, without what the database itself fills in by time."""
        name = self.reader.table.name
        where = f"document_id = '{self.document_id}'"
        where += f" AND reader = '{self.reader.group}'" if self.reader.table.shared else ""
        return [row for (row,) in self.rig.rows(f"SELECT to_jsonb(t) FROM readers.{name} t WHERE {where} ORDER BY t")]

    def progress(self) -> tuple[str, int, str]:
        query = "SELECT state, applied_version, completed::text FROM readers.progress WHERE reader = %s"
        ((state, applied, completed),) = self.rig.rows(query, self.reader.group)
        return state, applied, completed


@pytest.fixture(params=READERS, ids=lambda declared: declared.group)
def subject(rig: Rig, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Subject]:
    # Members without an instance id leave their group at once, so that the test can move its offsets.
    def member(config: Settings, topic: str, group: str, _instance: str) -> KafkaLog:
        return KafkaLog(config, topic, group, None)

    monkeypatch.setattr(ops_worker, "KafkaLog", member)
    made = Subject(rig, request.param, unique("conforms"))
    with rig.connect() as connection:
        query = "INSERT INTO app.saved_queries (owner_id, query) VALUES (%s, %s)"
        connection.cursor().executemany(query, [(made.document_id, text) for text in ("rivers", "the sea")])
        yield made
        connection.execute("DELETE FROM app.saved_queries WHERE owner_id = %s", [made.document_id])


def test_a_reader_conforms(subject: Subject) -> None:
    subject.put(1)
    assert subject.run() == [1]
    first = subject.rows()
    assert first
    assert {row["version"] for row in first} == {1}

    subject.put(1)  # a duplicate: the relay is at-least-once where the broker cannot do better
    assert subject.run() == []
    assert subject.rows() == first

    subject.put(3)
    assert subject.run() == [3]
    latest = subject.rows()
    assert latest
    assert {row["version"] for row in latest} == {3}

    subject.put(2)  # stale: re-emitted after a later one
    assert subject.run() == []
    assert subject.rows() == latest
    assert subject.progress() == ("done", 3, "{[1,2),[3,4)}")

    subject.back_to_start(subject.metadata())  # crash between sink and commit: the same pass reads it all again
    assert subject.run() == []
    assert subject.rows() == latest

    own_pass = subject.metadata()
    subject.back_to_start(None)  # full replay: a new pass computes the latest version again
    assert subject.run() == [3]
    assert subject.metadata() != own_pass
    assert subject.rows() == latest

    subject.put(4, type="deleted", title="", body="")
    assert subject.run() == [4]
    assert subject.rows() == []

    subject.back_to_start(None)  # and in a replay the deleted document does not come back
    assert subject.run() == [4]
    assert subject.rows() == []
    assert subject.progress() == ("done", 4, "{[1,2),[3,5)}")
    assert subject.rig.dead_letters(subject.reader.group, "error_message") == []
