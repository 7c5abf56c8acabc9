"""Readers of each kind; a document's title says what the handler does with it, the body is its argument."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streams import Context, DocumentSaved, Reject, Upsert, reader
from tests.readers_for_tests import PREFIX

AGE_SECONDS_MAX = 3600.0
Given = Upsert | Exception


def act(doc: DocumentSaved) -> Upsert:
    """Do what the title says, if it says anything; the version's row tells who did it and when."""
    value: dict[str, Any] = {"document_id": doc.document_id, "version": doc.version, "pid": os.getpid()}
    value["began"] = time.monotonic_ns()
    ACTIONS.get(doc.title, len)(doc.body)
    value["ended"] = time.monotonic_ns()
    if doc.title == "give a lock":
        value["lock"] = threading.Lock()
    if doc.title == "give a stranger":
        value["stranger"] = Stranger()
    return Upsert(f"{doc.document_id} {doc.version}", value)


class Stranger:
    """Pickles, and does not unpickle in a process that has another idea of it."""

    def __reduce__(self) -> Any:
        return _only_in, (os.getpid(),)


def _only_in(pid: int) -> Stranger:
    if os.getpid() != pid:
        raise LookupError("not here")
    return Stranger()


def _exit_once(marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(7)


def _note_and(do: Any) -> Any:
    """Write this process's id into the file that the body names, then do it."""

    def noting(path: str) -> None:
        Path(path).write_text(str(os.getpid()))
        do()

    return noting


def _hold_the_interpreter() -> None:
    """No thread of this process runs from here on: the search does not let go of the interpreter for hours."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def _fork_and_die(path: str) -> None:
    """Leave a process behind that holds all that this one had open."""
    if (pid := os.fork()) == 0:
        time.sleep(600)
    Path(path).write_text(str(pid))
    os._exit(9)


def _start_another(path: str) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(path).write_text(str(other.pid))
    other.wait()


def _reject(_: str) -> None:
    raise Reject("told so")


ACTIONS: dict[str, Any] = {
    "exit": lambda code: os._exit(int(code)),
    "exit once": _exit_once,
    "crash": lambda _: os.kill(os.getpid(), signal.SIGSEGV),
    "leave": lambda code: sys.exit(int(code)),
    "fork and die": _fork_and_die,
    "note and sleep": _note_and(lambda: time.sleep(600)),
    "note and hold": _note_and(_hold_the_interpreter),
    "start another": _start_another,
    "print": print,
    "print and sleep": lambda seconds: (print(f"sleeps for {seconds}"), time.sleep(float(seconds))),
    "log": lambda text: logging.getLogger(__name__).warning(text),
    "asyncio.run": lambda _: asyncio.run(asyncio.sleep(0)),
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "reject": _reject,
}


@reader(group=f"{PREFIX}process", kind="process", concurrency=2, max_age_seconds=AGE_SECONDS_MAX)
def in_process(doc: DocumentSaved) -> Upsert:
    return act(doc)


@reader(group=f"{PREFIX}as-many", kind="process")
def as_many_as_processors(doc: DocumentSaved) -> Upsert:
    return act(doc)


@reader(group=f"{PREFIX}echoing", kind="process", concurrency=1)
def echoing(doc: DocumentSaved) -> Upsert:
    return Upsert(doc.document_id, {"body": doc.body * 4})


@reader(group=f"{PREFIX}in-thread", concurrency=1)
def in_thread(doc: DocumentSaved) -> Upsert:
    return act(doc)


@reader(group=f"{PREFIX}hasty", kind="process", concurrency=1, timeout_seconds=0.5)
def hasty(doc: DocumentSaved) -> Upsert:
    return act(doc)


@reader(group=f"{PREFIX}hasty-async", concurrency=1, timeout_seconds=0.5)
async def hasty_async(doc: DocumentSaved) -> Upsert:
    if doc.title == "sleep":
        await asyncio.sleep(float(doc.body))
    return act(doc)


@reader(group=f"{PREFIX}told", kind="process", concurrency=1, timeout_seconds=60)
def told(doc: DocumentSaved, *, ctx: Context) -> Upsert:
    """What the context says, as it arrives in the process."""
    assert ctx.deadline is not None
    seen = {"attempt": ctx.attempt, "key": ctx.idempotency_key, "replay": ctx.is_replay, "until": ctx.deadline}
    return Upsert(doc.document_id, seen)


class Ticker:
    """Counts on the event loop that made it, also while no handler runs."""

    def __init__(self) -> None:
        self.ticks = 0
        self.loop = asyncio.get_running_loop()
        self.task = asyncio.create_task(self.tick())

    async def tick(self) -> None:
        while True:
            self.ticks += 1
            await asyncio.sleep(0.01)


async def make_ticker() -> Ticker:
    return Ticker()


@reader(group=f"{PREFIX}ticking", kind="process", concurrency=1, setup=make_ticker)
async def ticking(doc: DocumentSaved, ticker: Ticker) -> Upsert:
    await asyncio.sleep(0)
    assert asyncio.get_running_loop() is ticker.loop
    return Upsert(doc.document_id, {"ticks": ticker.ticks})


class Unportable(Exception):
    """An error that does not unpickle: it is made of other things than it keeps."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def make_trouble() -> int:
    """As the file says that TEST_SETUP names; how often it was called, if that is not there."""
    told = Path(os.environ["TEST_SETUP"])
    match told.read_text().split():
        case ["raise"]:
            raise ConnectionRefusedError("the model's host is down")
        case ["unportable"]:
            raise Unportable("no", "way")
        case ["exit", code]:
            os._exit(int(code))
    return os.getpid()


@reader(group=f"{PREFIX}set-up", kind="process", concurrency=2, setup=make_trouble)
def set_up(doc: DocumentSaved, pid: int) -> Upsert:
    assert pid == os.getpid(), "setup ran in another process"
    return act(doc)


def act_on_all(docs: Sequence[DocumentSaved]) -> list[Given]:
    """Each document's row, or what went wrong with it; `raise all` fails the call, `lose one` gives too little."""
    if any(doc.title == "raise all" for doc in docs):
        raise ValueError(f"all {len(docs)} of them")
    given: list[Given] = []
    for doc in docs:
        try:
            row = act(doc)
            given.append(Upsert(row.key, {**row.value, "together": len(docs)}))
        except Reject as error:
            given.append(error)
    return given[1:] if any(doc.title == "lose one" for doc in docs) else given


@reader(group=f"{PREFIX}batch", batch=4, concurrency=1, max_age_seconds=AGE_SECONDS_MAX)
def in_batches(docs: list[DocumentSaved]) -> list[Given]:
    return act_on_all(docs)


@reader(group=f"{PREFIX}batch-async", batch=4, concurrency=1, max_age_seconds=AGE_SECONDS_MAX)
async def in_batches_async(docs: list[DocumentSaved]) -> list[Given]:
    await asyncio.sleep(0)
    return act_on_all(docs)


@reader(
    group=f"{PREFIX}batch-process",
    kind="process",
    batch=4,
    concurrency=1,
    max_age_seconds=AGE_SECONDS_MAX,
    timeout_seconds=2,
)
def in_batches_in_process(docs: list[DocumentSaved]) -> list[Given]:
    return act_on_all(docs)
