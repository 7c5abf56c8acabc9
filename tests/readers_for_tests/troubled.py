"""Readers in trouble: slow ones, and ones that stop their own process in the middle of a transaction."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from streams import DocumentSaved, Increment, Reject, Replace, Retry, RetryLater, Table, Upsert, reader
from streams.contract import Key, Row
from tests.readers_for_tests import PREFIX


@reader(group=f"{PREFIX}sleeper", concurrency=1)
def sleep(doc: DocumentSaved) -> Upsert:
    """Takes as many seconds as the title says, and says when it begins."""
    print(f"sleeps over {doc.document_id}", flush=True)
    time.sleep(float(doc.title))
    return Upsert(doc.document_id, {"version": doc.version})


@reader(group=f"{PREFIX}picky", retry=Retry(10**6, 600, 600))
def refuse(doc: DocumentSaved) -> Upsert:
    """Takes nothing that is titled "never", and nothing titled "later" for minutes."""
    if doc.title == "never":
        raise Reject("it will not do")
    if doc.title == "later":
        raise RetryLater("not now", after_seconds=600)
    return Upsert(doc.document_id, {"version": doc.version})


@reader(group=f"{PREFIX}counted", concurrency=4)
def count_runs(doc: DocumentSaved) -> Upsert:
    """Says that it runs, and takes as many seconds as the title says."""
    os.write(1, f"runs {doc.document_id}\n".encode())  # whole, whatever other threads write
    time.sleep(float(doc.title))
    return Upsert(doc.document_id, {"version": doc.version})


@reader(group=f"{PREFIX}fresh", max_age_seconds=60)
def only_fresh(doc: DocumentSaved) -> Upsert:
    """What is older than a minute expires."""
    return Upsert(doc.document_id, {"version": doc.version})


@reader(group=f"{PREFIX}gated", retry=Retry(10**6, 0.02, 0.1))
def wait_for_gate(doc: DocumentSaved) -> Increment:
    """Cannot do what is titled "gated" until the file TEST_GATE is there; counts the versions of each document."""
    if doc.title == "gated" and not os.path.exists(os.environ["TEST_GATE"]):
        raise RetryLater("the gate is closed")
    return Increment(doc.document_id, {"versions": 1})


@reader(group=f"{PREFIX}killed", retry=Retry(5, 0.02, 0.1))
def die(doc: DocumentSaved) -> Upsert:
    """Ends its process at what is titled "kill", and at "kill later" from the second attempt on; notes who died."""
    if doc.title == "kill" or (doc.title == "kill later" and _tried_before(doc)):
        with open(os.environ["TEST_DEATHS"], "a") as deaths:
            deaths.write("worker\n" if "streams.cli.main" in sys.orig_argv else "child\n")
        os._exit(9)
    if doc.title == "kill later":
        raise RetryLater("next time")
    return Upsert(doc.document_id, {"version": doc.version})


def _tried_before(doc: DocumentSaved) -> bool:
    mark = f"{os.environ['TEST_DEATHS']}.{doc.document_id}"
    found = os.path.exists(mark)
    open(mark, "w").close()
    return found


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
