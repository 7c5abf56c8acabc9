"""Readers in trouble: slow ones, and ones that stop their own process in the middle of a transaction."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from streams import DocumentSaved, Increment, Replace, Table, Upsert, reader
from streams.contract import Key, Row
from tests.readers_for_tests import PREFIX


@reader(group=f"{PREFIX}sleeper", concurrency=1)
def sleep(doc: DocumentSaved) -> Upsert:
    """Takes as many seconds as the title says, and says when it begins."""
    print(f"sleeps over {doc.document_id}", flush=True)
    time.sleep(float(doc.title))
    return Upsert(doc.document_id, {"version": doc.version})


class Freezing(dict[Any, Any]):
    """Stops the process by SIGSTOP when it is looked into, once."""

    def items(self) -> Any:
        if os.environ.get("TEST_FREEZE"):
            del os.environ["TEST_FREEZE"]
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().items()


def row(doc: DocumentSaved) -> dict[str, Any]:
    return {"version": doc.version, "pid": os.getpid()}


@reader(group=f"{PREFIX}between")
def freeze_between(doc: DocumentSaved) -> list[Replace | Increment]:
    """Freezes when the sink asks for the rows: the record's progress is written by then, its effects are not."""
    rows: dict[Key, Row] = {doc.document_id: row(doc)}
    return [
        Replace(Freezing(rows) if doc.title == "freeze between" else rows),
        Increment(f"of {doc.document_id}", {"versions": 1}),
    ]


@reader(group=f"{PREFIX}inside")
def freeze_inside(doc: DocumentSaved) -> list[Upsert | Increment]:
    """Freezes when the client makes the JSON of row 300 of 400: inside executemany, many rows sent, some not."""
    value = row(doc) | {"padding": "x" * 2_000}
    count = 400 if doc.title == "freeze inside" else 1
    upserts = [Upsert(f"{doc.document_id} {number}", value) for number in range(count)]
    if count > 1:
        upserts[300] = Upsert(f"{doc.document_id} 300", value | {"nested": Freezing(frozen=True)})
    return [Increment(f"of {doc.document_id}", {"versions": 1}), *upserts]


@reader(group=f"{PREFIX}misfit", table=Table("no_such_table", ("document_id",)))
def misfit(doc: DocumentSaved) -> Upsert:
    """Writes to a table that is not there."""
    return Upsert(doc.document_id, {})
