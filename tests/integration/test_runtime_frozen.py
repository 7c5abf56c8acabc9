"""A worker frozen by SIGSTOP in the middle of a batch's transaction, past every timeout, and then continued."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from streams.contract import DocumentSaved, Increment, Upsert, reader
from streams.sinks.postgres import PostgresSink
from streams.topics import DOCUMENTS_SAVED
from tests.rig import Rig, catches_up, unique
from tests.support import eventually

CLAIM_SECONDS_MAX = 12.0


def test_a_frozen_worker_holds_its_successor_only_briefly_and_changes_nothing_afterwards(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two statements, and inside executemany: side by side, since each waits for the same timeouts."""
    waits: dict[str, list[float]] = {"between": [], "inside": []}
    claim = PostgresSink.claim

    def timed(sink: PostgresSink, *arguments: Any) -> Any:
        began = time.monotonic()
        try:
            return claim(sink, *arguments)
        finally:
            waits[sink._reader.group.rsplit("-", 1)[-1]].append(time.monotonic() - began)

    monkeypatch.setattr(PostgresSink, "claim", timed)
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(freeze_and_continue, rig, where) for where in waits]:
            done.result()
    for where, seconds in waits.items():
        assert 0.5 < max(seconds) <= CLAIM_SECONDS_MAX, where  # it did wait for the frozen one's transaction


def freeze_and_continue(rig: Rig, where: str) -> None:
    prefix = unique("frozen") + "-"
    group = prefix + where
    document_id = unique(where)
    rig.start_at_end(group)
    with rig.command(prefix, where, TEST_FREEZE="1") as frozen:
        rig.save(document_id, title="first")
        catches_up(rig, group, {document_id: 1}, 120)
        rig.save(document_id, title=f"freeze {where}")
        rig.save(document_id, title="behind")
        process = psutil.Process(*frozen.workers())
        eventually(lambda: process.status() == psutil.STATUS_STOPPED, 30, "the worker froze")
        with rig.worker(successor(group)):
            catches_up(rig, group, {document_id: 3}, 90)
            eventually(lambda: rig.lag(group) == 0)
            before = rows(rig, group, document_id)
            assert before[f"of {document_id}"] == {"versions": 3}
            assert before[document_id] == {"version": 3, "by": "successor"}
            committed = positions(rig, group)
            began = frozen.said().count(": reads ")
            process.resume()
            eventually(lambda: frozen.said().count(": reads ") > began, 60, "it is a member again")
            assert rows(rig, group, document_id) == before
            now = positions(rig, group)  # the successor may go on past trailing markers; a stale commit would go back
            assert all(now[number] >= position for number, position in committed.items()), (now, committed)
            other = unique("after")
            rig.save(other)
            catches_up(rig, group, {other: 1})
        assert frozen.end() == 0
    assert rows(rig, group, document_id) == before


def rows(rig: Rig, group: str, document_id: str) -> dict[str, Any]:
    return {key: value for key, value in rig.output(group).items() if document_id in key}


def positions(rig: Rig, group: str) -> dict[int, int]:
    """What is committed. The pass beside it may change: a first reading of a partition notes its own."""
    return {number: position for number, (position, _) in rig.committed(group, DOCUMENTS_SAVED.name).items()}


def successor(group: str) -> Any:
    """The same reader in another release: it writes the same rows, and that it was here."""

    def handle(doc: DocumentSaved) -> list[Upsert | Increment]:
        count = 400 if doc.title == "freeze inside" else 1
        value = {"version": doc.version, "by": "successor"}
        keys = [doc.document_id, *(f"{doc.document_id} {number}" for number in range(count))]
        return [Increment(f"of {doc.document_id}", {"versions": 1}), *(Upsert(key, value) for key in keys)]

    return reader(group=group)(handle)
