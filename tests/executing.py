"""Executors without a loop: lanes of documents, and what an executor makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psutil

from streams.contract import DocumentSaved, Reader
from streams.core.outcomes import Done, Failure
from streams.runtime.executors import Executor, executor_for
from streams.runtime.handling import Attempt
from streams.runtime.ports import Partition
from streams.runtime.records import Assignment, Lane, Record
from tests.property.world import FakeMessage
from tests.support import eventually

PARTITION = Partition("t", 0)


def document(document_id: str = "d", version: int = 1, title: str = "", body: str = "", **fields: Any) -> DocumentSaved:
    given = {"owner_id": "o", "saved_at": datetime.now(UTC)} | fields
    return DocumentSaved(document_id=document_id, version=version, title=title, body=body, **given)


def record(doc: DocumentSaved) -> Record:
    message = FakeMessage(PARTITION, doc.version, doc)
    return Record(Assignment(PARTITION), message, doc, doc.document_id, 0)


def lane(*documents: DocumentSaved) -> Lane:
    made = Lane(Assignment(PARTITION), documents[0].document_id)
    made.records.extend(map(record, documents))
    return made


def children() -> list[psutil.Process]:
    """The processes of handlers that this process has started and that are still there."""
    found = psutil.Process().children()
    return [one for one in found if "streams.runtime.children" in " ".join(one.cmdline())]


@contextmanager
def executing(reader: Reader) -> Iterator[Executor]:
    """The reader's executor, started, and stopped at the end."""
    executor = executor_for(reader)
    executor.start()
    try:
        yield executor
    finally:
        executor.stop()


def run(executor: Executor, *lanes: Lane) -> list[tuple[str, int, Attempt]]:
    """Submit lanes and collect what came of them."""
    executor.submit(lanes)
    return collect(executor, *lanes)


def collect(executor: Executor, *lanes: Lane) -> list[tuple[str, int, Attempt]]:
    """(document id, version, attempt) of each record that ran, in the order of the results, once all lanes ended."""
    found: list[tuple[str, int, Attempt]] = []
    running = {id(one) for one in lanes}

    def have_ended() -> bool:
        while executor.results:
            subject, attempt = executor.results.popleft()
            if isinstance(subject, Lane):
                running.remove(id(subject))  # each ends once
            else:
                assert attempt is not None
                assert subject.document is not None
                found.append((subject.document.document_id, subject.document.version, attempt))
        return not running

    eventually(have_ended, 60, "the end of all lanes")
    return found


def attempts(executor: Executor, *documents: DocumentSaved) -> list[Attempt]:
    """The attempt of each document, each in a lane of its own, all submitted at once."""
    by_id = {name: attempt for name, _, attempt in run(executor, *map(lane, documents))}
    return [by_id[doc.document_id] for doc in documents]


def row(attempt: Attempt) -> Any:
    """The value of the one row that a handler gave."""
    assert isinstance(attempt, Done), attempt
    (effect,) = attempt.effects
    return effect.value  # type: ignore[union-attr]


def failure(attempt: Attempt) -> tuple[str, str, bool]:
    """A failed attempt's class, message, and whether it is permanent."""
    assert isinstance(attempt, Failure), attempt
    return attempt.error_class, attempt.message, attempt.permanent
