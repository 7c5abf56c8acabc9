"""Kinds of handlers on the real stack: order and dead letters of processes and batches, signals, what `ctx` says."""

from __future__ import annotations

import random
import signal
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaException

from streams.contract import Context, DocumentSaved, Reader, Retry, RetryLater, Upsert, idempotency_key, reader
from tests.executing import children
from tests.readers_for_tests import kinds
from tests.rig import Rig, catches_up, unique
from tests.support import eventually

START_SECONDS_MAX = 120.0  # of a process on a machine that is busy with others
KEYS, VERSIONS = 40, 8
DIES = ("exit", "5", "WorkerDied", "the handler's process ended with exit code 5, 3 time(s) in a row")
REFUSES = ("reject", "", "Reject", "told so")


@pytest.mark.parametrize(
    ("declared", "poison"),
    [
        (kinds.in_process, DIES),
        (kinds.in_batches_in_process, DIES),
        (kinds.in_batches, REFUSES),
        (kinds.in_batches_async, REFUSES),
    ],
    ids=lambda value: value.group if isinstance(value, Reader) else "",
)
def test_hundreds_of_records_in_order_and_one_poison_alone(rig: Rig, declared: Reader, poison: Any) -> None:
    topic, (title, body, error_class, error_message) = rig.topic(partitions=3), poison
    keys, bad = [unique("key") for _ in range(KEYS)], unique("poison")
    records = [(key, version, {}) for version in range(1, VERSIONS + 1) for key in random.sample(keys, KEYS)]
    records.insert(100, (bad, 1, {"title": title, "body": body}))
    records.append((bad, 2, {}))
    values = ({"key": key, "value": rig.event(key, version, **fields)} for key, version, fields in records)
    rig.produce(topic, *values)
    with rig.worker(declared, topic):
        catches_up(rig, declared.group, {**dict.fromkeys(keys, VERSIONS), bad: 2}, 90)
        eventually(lambda: rig.lag(declared.group, topic) == 0)
    assert not children()

    letters = rig.dead_letters(declared.group, "error_class, error_message, attempts, document_id")
    assert [letter[:3] for letter in letters if letter[3] == bad] == [(error_class, error_message, 1)]
    assert len([letter for letter in letters if letter[3] in {*keys, bad}]) == 1
    ran: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for value in rig.output(declared.group).values():
        ran[value["document_id"]].append((value["version"], value["began"], value["ended"]))
    for key in keys:
        calls = sorted(ran[key])
        assert [version for version, *_ in calls] == list(range(1, VERSIONS + 1))
        assert all(earlier[2] <= later[1] for earlier, later in pairwise(calls)), calls
    if declared.batch > 1:
        assert max(value["together"] for value in rig.output(declared.group).values()) == declared.batch


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_lets_a_handler_finish(rig: Rig, number: signal.Signals) -> None:
    """Ctrl-C, or a service manager that stops a service, may tell every process at once."""
    prefix, slow = unique("drain") + "-", unique("slow")
    group = f"{prefix}process"
    rig.start_at_end(group)
    with rig.command(prefix, "process") as command:
        rig.save(slow, title="print and sleep", body="3")
        eventually(lambda: "sleeps for 3" in command.said(), START_SECONDS_MAX)
        family = [psutil.Process(command.process.pid), *psutil.Process(command.process.pid).children()]
        for one in family:
            one.send_signal(number)
        assert command.process.wait(40) == 0
        assert not any(map(psutil.Process.is_running, family[1:]))
    assert rig.done(group) == {slow: 1}


def test_a_reader_whose_setup_fails_stops_with_its_reason(rig: Rig) -> None:
    prefix = unique("unready") + "-"
    (rig.scratch / "setup").write_text("exit 3")
    with rig.command(prefix, "set-up", TEST_SETUP=str(rig.scratch / "setup")) as command:
        assert command.process.wait(START_SECONDS_MAX) == 4
    assert f"reader '{prefix}set-up': its process ended at its start: exit code 3" in command.said()


def test_a_context_over_attempts_a_restart_and_a_replay(rig: Rig) -> None:
    topic, group, name = rig.topic(), unique("told"), unique("ö b")
    seen: list[Context] = []

    def handle(doc: DocumentSaved, ctx: Context) -> Upsert:
        seen.append(ctx)
        if ctx.attempt < 3:
            raise RetryLater("not yet", 3600 if len(seen) == 1 else None)
        return Upsert(doc.document_id, {"attempt": ctx.attempt})

    told = reader(group=group, retry=Retry(backoff_seconds=0.01), timeout_seconds=60)(handle)
    rig.put(topic, name, 1)
    with rig.worker(told, topic):
        eventually(lambda: rig.progress(group) == {name: ("retrying", 1)})
    rig.do("UPDATE readers.parked SET next_attempt_at = now() WHERE reader = %s", group)
    with rig.worker(told, topic):
        catches_up(rig, group, {name: 1})
        eventually(lambda: rig.lag(group, topic) == 0)
    assert [(ctx.attempt, ctx.is_replay) for ctx in seen] == [(1, False), (2, False), (3, False)]

    def moved_back() -> bool:
        with suppress(KafkaException):  # a static member is in its group until its session of 6 s is over
            rig.commit(group, topic, {0: 0})
            return True
        return False

    eventually(moved_back, 20)
    with rig.worker(told, topic):
        eventually(lambda: len(seen) == 6)
        eventually(lambda: rig.lag(group, topic) == 0)
    assert [(ctx.attempt, ctx.is_replay) for ctx in seen[3:]] == [(1, True), (2, True), (3, True)]
    key = idempotency_key(group, DocumentSaved(name, "rig", 1, "", "", seen[0].deadline))  # type: ignore[arg-type]
    assert {ctx.idempotency_key for ctx in seen} == {key}
    assert rig.dead_letters(group, "error_message") == []
