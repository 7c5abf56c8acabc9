"""Failed attempts on the real stack: order, backoff, dead letters, restarts, expiry, slow handlers."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from fastapi.testclient import TestClient

from streams.api.app import create_app
from streams.contract import DocumentSaved, Effect, Reject, Retry, RetryLater, Upsert, reader
from streams.runtime.handling import TRACEBACK_CHARACTERS_MAX
from streams.topics import BODY_BYTES_MAX
from tests.rig import Rig, catches_up, unique
from tests.support import eventually

QUICK = Retry(backoff_seconds=0.05, backoff_seconds_max=0.1)


class Calls:
    """What a handler was called with, and when."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int, float]] = []

    def note(self, doc: DocumentSaved) -> int:
        """Note a call; gives how many there were for this version, this one included."""
        self.made.append((doc.document_id, doc.version, time.monotonic()))
        return self.versions(doc.document_id).count(doc.version)

    def versions(self, document_id: str) -> list[int]:
        return [version for name, version, _ in self.made if name == document_id]

    def times(self, document_id: str) -> list[float]:
        return [moment for name, _, moment in self.made if name == document_id]

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for name, *_ in self.made:
            found[name] += 1
        return dict(found)


Handle = Callable[[DocumentSaved], Effect | None]


def as_async(handle: Handle) -> Callable[[DocumentSaved], Any]:
    async def handler(doc: DocumentSaved) -> Any:
        await asyncio.sleep(0)
        return handle(doc)

    return handler


@pytest.mark.parametrize("kind", [lambda handle: handle, as_async], ids=["threads", "coroutines"])
def test_a_key_waits_for_its_retries_and_no_other_does(rig: Rig, kind: Callable[[Handle], Any]) -> None:
    topic, group, calls, others_done = rig.topic(), unique("retry"), Calls(), Event()

    def handle(doc: DocumentSaved) -> Upsert:
        attempt = calls.note(doc)
        if (doc.document_id, doc.version) == ("failing", 1) and (attempt <= 2 or not others_done.is_set()):
            raise RetryLater("not yet")
        return Upsert(doc.document_id, {"version": doc.version})

    for version in (1, 2, 3):
        rig.put(topic, "failing", version)
        for name in ("b", "c", "d"):
            rig.put(topic, name, version)
    policy = Retry(attempts_max=10**6, backoff_seconds=0.02, backoff_seconds_max=0.05)
    with rig.worker(reader(group=group, retry=policy)(kind(handle)), topic):
        catches_up(rig, group, {"b": 3, "c": 3, "d": 3})
        eventually(lambda: rig.progress(group).get("failing") == ("retrying", 1))
        eventually(lambda: rig.lag(group, topic) == 0)  # it is parked, so its place in the log is let go
        others_done.set()
        catches_up(rig, group, {"failing": 3})
        eventually(lambda: rig.lag(group, topic) == 0)
    made = calls.versions("failing")
    assert made.count(1) >= 3
    assert made[-3:] == [1, 2, 3]
    assert made[:-3] == [1] * (len(made) - 3)
    assert {name: calls.versions(name) for name in "bcd"} == {name: [1, 2, 3] for name in "bcd"}


def test_after_five_attempts_a_dead_letter_and_the_job_says_why(rig: Rig) -> None:
    group, calls, poison, fine = unique("five"), Calls(), unique("poison"), unique("fine")

    def handle(doc: DocumentSaved) -> Upsert:
        calls.note(doc)
        if doc.document_id == poison and doc.version == 1:
            raise ConnectionError("the model's host is gone")
        return Upsert(doc.document_id, {"version": doc.version})

    rig.start_at_end(group)
    with rig.worker(reader(group=group, retry=QUICK)(handle)), TestClient(create_app(rig.config)) as api:
        first, second, other = rig.save(poison), rig.save(poison), rig.save(fine)
        catches_up(rig, group, {poison: 2, fine: 1})

        def job(job_id: Any) -> dict[str, Any]:
            state: dict[str, Any] = api.get(f"/jobs/{job_id}").json()["readers"][group]
            return state

        assert job(first.job_id) == {
            "state": "dead",
            "attempts": 5,
            "error": "ConnectionError: the model's host is gone",
        }
        assert [job(saved.job_id)["state"] for saved in (second, other)] == ["done", "done"]
    assert calls.versions(poison) == [1, 1, 1, 1, 1, 2]
    ((event_id, error, trace),) = rig.dead_letters(group, "event_id, error_message, traceback")
    assert (event_id, error) == (first.job_id, "the model's host is gone")
    assert "raise ConnectionError" in trace


def test_failures_of_every_kind(rig: Rig) -> None:
    """Reject and effects that are none are dead at once; whatever else a handler raises is tried again."""
    topic, group, calls = rig.topic(), unique("kinds"), Calls()

    def exits() -> None:
        raise SystemExit(3)

    def fails(error: BaseException) -> Callable[[], None]:
        def fail() -> None:
            raise error

        return fail

    kinds: dict[str, Callable[[], Any]] = {
        "reject": fails(Reject("never")),
        "text": lambda: "some text",
        "dict": lambda: {"words": 3},
        "mixed": lambda: [Upsert("mixed", {}), "text"],
        "undecodable": b"\xff".decode,
        "exit": exits,
        "interrupt": fails(KeyboardInterrupt()),
        "stop": fails(StopIteration()),
        "surrogate": fails(ValueError("\ud800 and \0")),
        "speechless": fails(Speechless()),
    }

    def handle(doc: DocumentSaved) -> Any:
        calls.note(doc)
        return kinds[doc.document_id]() if doc.document_id in kinds else Upsert(doc.document_id, {})

    for name in [*kinds, "fine"]:
        rig.put(topic, name)
    with rig.worker(reader(group=group, retry=Retry(3, 0.01, 0.02))(handle), topic):
        eventually(lambda: rig.states(group) == {"dead": len(kinds), "done": 1} and rig.lag(group, topic) == 0, 30)
    once = ("reject", "text", "dict", "mixed", "undecodable", "fine")
    assert calls.counts() == {name: 1 if name in once else 3 for name in [*kinds, "fine"]}
    found = dict(rig.dead_letters(group, "document_id, error_class || ': ' || error_message"))
    assert found == {
        "reject": "Reject: never",
        "text": "Reject: the handler returned str, not effects",
        "dict": "Reject: the handler returned dict, not effects",
        "mixed": "Reject: the handler returned list, not effects",
        "undecodable": "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        "exit": "SystemExit: 3",
        "interrupt": "KeyboardInterrupt: ",
        "stop": "StopIteration: ",
        "surrogate": "ValueError: \\ud800 and \\0",
        "speechless": "Speechless: <the error has no text: ZeroDivisionError>",
    }
    assert rig.output(group) == {"fine": {}}


class Speechless(Exception):
    def __str__(self) -> str:
        return str(1 // 0)


def test_retry_after_is_the_least_wait(rig: Rig) -> None:
    topic, group, calls = rig.topic(), unique("later"), Calls()

    def handle(doc: DocumentSaved) -> None:
        if calls.note(doc) == 1 and doc.document_id == "later":
            raise RetryLater("busy", after_seconds=1.5)

    for name in ("later", "other"):
        rig.put(topic, name)
    with rig.worker(reader(group=group, retry=QUICK)(handle), topic):
        eventually(lambda: rig.progress(group).get("later") == ("retrying", 1))
        ((due,),) = rig.rows("SELECT next_attempt_at FROM readers.progress WHERE reader = %s AND attempts = 1", group)
        assert timedelta(0) < due - datetime.now(UTC) <= timedelta(seconds=1.5)
        catches_up(rig, group, {"later": 1, "other": 1})
    first, second = calls.times("later")
    assert 1.5 <= second - first < 4


@pytest.mark.parametrize("metadata", [None, "", "x" * 4095, "pass:" + "9" * 40])
def test_attempts_survive_a_restart_whoever_committed_before(rig: Rig, metadata: str | None) -> None:
    """Also when the group's first position is another tool's: none, empty, or the longest metadata."""
    topic, group, calls = rig.topic(), unique("survive"), Calls()
    for name in ("skipped", "failing", "fine"):
        rig.put(topic, name)
    if metadata is not None:
        rig.commit(group, topic, {0: 1}, metadata or None)

    def handle(doc: DocumentSaved) -> None:
        calls.note(doc)
        if doc.document_id == "failing":
            raise TimeoutError("no answer")

    def attempts() -> int:
        found = rig.rows("SELECT attempts FROM readers.progress WHERE reader = %s AND document_id = 'failing'", group)
        return int(found[0][0]) if found else 0

    policy = Retry(attempts_max=4, backoff_seconds=0.01, backoff_seconds_max=0.01)
    slow = Retry(attempts_max=4, backoff_seconds=3, backoff_seconds_max=3)
    for attempt in (1, 2):
        with rig.worker(reader(group=group, retry=slow)(handle), topic):
            eventually(lambda wanted=attempt: attempts() >= wanted, 30)  # type: ignore[misc]
            eventually(lambda: rig.committed(group, topic).get(0, (0, ""))[1].startswith("pass:"))
    with rig.worker(reader(group=group, retry=policy)(handle), topic):
        eventually(lambda: rig.dead_letters(group, "document_id") == [("failing",)], 30)
    assert calls.counts() == {"failing": 4, "fine": 1} | ({"skipped": 1} if metadata is None else {})
    assert rig.dead_letters(group, "document_id, attempts") == [("failing", 4)]


def test_old_events_expire_but_deletions_never(rig: Rig) -> None:
    topic, group, calls = rig.topic(), unique("expiry"), Calls()
    old = datetime.now(UTC) - timedelta(hours=1)

    def handle(doc: DocumentSaved) -> Upsert:
        calls.note(doc)
        return Upsert(doc.document_id, {"version": doc.version})

    rig.put(topic, "old", 1, saved_at=old)
    rig.put(topic, "fresh", 1)
    rig.put(topic, "gone", 1)
    rig.put(topic, "gone", 2, saved_at=old, type="deleted", title="", body="")
    with rig.worker(reader(group=group, max_age_seconds=600)(handle), topic):
        eventually(lambda: rig.lag(group, topic) == 0 and len(rig.progress(group)) == 3, 30)
    assert rig.progress(group) == {"old": ("expired", 1), "fresh": ("done", 1), "gone": ("done", 2)}
    assert rig.output(group) == {"fresh": {"version": 1}}
    assert calls.counts() == {"fresh": 1, "gone": 1}


def test_a_large_document_with_a_huge_error_is_one_small_dead_letter(rig: Rig) -> None:
    topic, group = rig.topic(), unique("huge")
    body = "ü" * (BODY_BYTES_MAX // 2)

    def handle(doc: DocumentSaved) -> None:
        if doc.document_id == "huge":
            raise RuntimeError("x" * 100_000)

    rig.put(topic, "huge", body=body)
    rig.put(topic, "huge", 2, body="small now", type="deleted")
    rig.put(topic, "behind")
    with rig.worker(reader(group=group, retry=QUICK)(handle), topic):
        catches_up(rig, group, {"behind": 1, "huge": 2})
    columns = "octet_length(value), length(error_message), length(traceback), attempts"
    ((value, message, trace, attempts),) = rig.dead_letters(group, columns)
    assert value == len(rig.event("huge", body=body))
    assert (message, attempts) == (4096, 5)
    assert 0 < trace <= TRACEBACK_CHARACTERS_MAX


def test_a_handler_longer_than_the_session_keeps_its_group(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Eight seconds against a session of six: the member stays, others flow, nothing runs twice."""
    topic, group, calls = rig.topic(partitions=2), unique("long"), Calls()

    def handle(doc: DocumentSaved) -> None:
        calls.note(doc)
        if doc.document_id == "long":
            time.sleep(8)

    rig.put(topic, "long", partition=0)
    with rig.worker(reader(group=group)(handle), topic):
        eventually(lambda: calls.versions("long"))
        for number in range(20):
            rig.put(topic, f"other-{number}", partition=number % 2)
        catches_up(rig, group, {f"other-{number}": 1 for number in range(20)}, seconds=6)
        assert "long" not in rig.progress(group)
        catches_up(rig, group, {"long": 1})
        eventually(lambda: rig.lag(group, topic) == 0)
    assert calls.counts() == {"long": 1} | {f"other-{number}": 1 for number in range(20)}
    assert rig.rows("SELECT DISTINCT epoch FROM readers.owners WHERE reader = %s", group) == [(1,)]


def test_while_postgres_is_silent_results_wait(rig: Rig) -> None:
    topic, group, calls = rig.topic(), unique("silent"), Calls()

    def handle(doc: DocumentSaved) -> Upsert:
        calls.note(doc)
        return Upsert(doc.document_id, {"version": doc.version})

    with rig.worker(reader(group=group, retry=QUICK)(handle), topic):
        rig.put(topic, "before")
        catches_up(rig, group, {"before": 1})
        with rig.frozen("postgres"):
            for number in range(100):
                rig.put(topic, f"during-{number}")
        catches_up(rig, group, {f"during-{number}": 1 for number in range(100)})
        eventually(lambda: rig.lag(group, topic) == 0)
    assert set(calls.counts().values()) == {1}
    assert rig.dead_letters(group, "error_message") == []


def test_an_outage_of_postgres_burns_no_attempts(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    topic, group, calls, gate = rig.topic(), unique("outage"), Calls(), Event()

    def handle(doc: DocumentSaved) -> None:
        attempt = calls.note(doc)
        gate.wait(60)
        if attempt < 3:
            raise RetryLater("not yet")

    rig.put(topic, "failing")
    with rig.worker(reader(group=group, retry=Retry(3, 0.01, 0.01))(handle), topic):
        eventually(lambda: calls.versions("failing"), 30)
        with rig.refusing():
            gate.set()
            eventually(lambda: caplog.text.count("writing waits") >= 4, 30)
            assert calls.versions("failing") == [1]
        catches_up(rig, group, {"failing": 1})
    assert calls.versions("failing") == [1, 1, 1]


def test_an_earlier_document_deleted_while_it_fails(rig: Rig) -> None:
    """The deletion waits behind the failing version, and then nothing of the document is left."""
    topic, group, calls = rig.topic(), unique("deleted"), Calls()

    def handle(doc: DocumentSaved) -> Upsert:
        if calls.note(doc) < 3:
            raise RetryLater("not yet")
        return Upsert(doc.document_id, {})

    rig.put(topic, "d", 1)
    rig.put(topic, "d", 2, type="deleted")
    with rig.worker(reader(group=group, retry=QUICK)(handle), topic):
        catches_up(rig, group, {"d": 2})
    assert rig.output(group) == {}
    assert calls.versions("d") == [1, 1, 1]
