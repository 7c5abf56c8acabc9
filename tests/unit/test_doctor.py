"""The doctor's judgement: a table of facts, what is named, and the one command; and its bound when nothing answers."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from streams.cdc import connector
from streams.cdc.connect import ConnectorState
from streams.cdc.slot import SlotState
from streams.config import Settings
from streams.kafka.topics_admin import TopicState
from streams.ops.diagnosis import commands, judge, poison
from streams.ops.doctor import examine, start_command
from streams.ops.facts import Canary, Database, Down, Facts, Gate, Topics, Worker
from streams.ops.unpublished import OutboxRow
from streams.topics import CANARY, DOCUMENTS_SAVED, FIXED, HEARTBEAT, MESSAGE_BYTES_MAX, NOT_RELAYED, Topic
from tests.support import free_port_base

NOW = datetime(2026, 11, 27, 12, 0)
SLOT = SlotState(True, True, True, "pgoutput", True, "reserved", None, True, "0/1", 100, 4_000_000_000, 200)
POLLED = SlotState(None, False, False, polled=True)
MINUTE = timedelta(minutes=1)
RUNNING = ConnectorState("RUNNING", "RUNNING")
PLUGIN = connector.wanted()["connector.class"]
NAMED = frozenset(topic.name for topic in FIXED if topic not in NOT_RELAYED)


def as_wanted(topic: Topic) -> TopicState:
    return TopicState(topic.partitions, dict(topic.config))


HEALTHY = Facts(
    now=NOW,
    start="streams up",
    database=Database(SLOT, NAMED),
    topics=Topics(FIXED, {topic.name: as_wanted(topic) for topic in FIXED}),
    worker=Worker(frozenset({PLUGIN}), RUNNING, []),
    registry={"documents-saved-value": Gate([], guarded=True)},
    unpublished=[],
    canary=Canary(0.03, slot_moved=True),
)
LATE = Canary(None, slot_moved=False)


def row(seq: int = 7, **changes: Any) -> OutboxRow:
    return OutboxRow(seq, "e", DOCUMENTS_SAVED.name, 1_000, NOW - timedelta(seconds=1))._replace(**changes)


def with_slot(**changes: Any) -> dict[str, Any]:
    return {"database": Database(replace(SLOT, **changes), NAMED)}


def with_worker(state: ConnectorState | None, *differs: str) -> dict[str, Any]:
    return {"worker": Worker(frozenset({PLUGIN}), state, differs)}


def with_topic(topic: Topic, state: TopicState | None) -> dict[str, Any]:
    have = {each.name: as_wanted(each) for each in FIXED} | ({topic.name: state} if state else {})
    return {"topics": Topics(FIXED, {name: each for name, each in have.items() if state or name != topic.name})}


def slot_gone(**more: Any) -> dict[str, Any]:
    return {**with_slot(slot_exists=False, plugin=None, active=None, wal_status=None), **more}


FAILED = ConnectorState("RUNNING", "FAILED", "org.x.First: it broke\n\tat a\nCaused by: java.Root: why\n\tat b")

CASES: dict[str, tuple[dict[str, Any], set[str], list[str]]] = {
    # what differs from health: the checks that are faults, the commands
    "healthy": ({}, set(), []),
    "postgres down": (
        {name: Down("Postgres does not answer", "streams up") for name in ("database", "unpublished", "canary")},
        {"postgres"},
        ["streams up"],
    ),
    "kafka down": (
        {name: Down("Kafka does not answer", "streams up") for name in ("topics", "unpublished", "canary")},
        {"kafka"},
        ["streams up"],
    ),
    "connect down": (
        {"worker": Down("Connect does not answer", "streams up"), "canary": LATE},
        {"connect", "canary"},
        ["streams up"],
    ),
    "registry down": ({"registry": Down("no answer", "docker compose up -d")}, {"registry"}, ["docker compose up -d"]),
    "database not set up": (
        {name: Down("app.topics does not exist", "streams setup") for name in ("database", "unpublished", "canary")},
        {"postgres"},
        ["streams setup"],
    ),
    "slot dropped": (
        slot_gone(canary=LATE, **with_worker(FAILED)),
        {"slot", "task", "canary"},
        ["streams outbox repair"],
    ),
    "slot lost": (
        {**with_slot(wal_status="lost", invalidation_reason="wal_removed"), "canary": LATE},
        {"slot", "canary"},
        ["streams outbox repair"],
    ),
    "slot soon lost": (with_slot(wal_status="unreserved", safe_bytes=-5), {"slot"}, ["streams outbox repair"]),
    "slot's margin small": (
        {**with_slot(lag_bytes=10, held_bytes=900, safe_bytes=100), "canary": Canary(None, slot_moved=True)},
        {"slot", "canary"},
        ["streams doctor"],
    ),
    "slot of another plugin": (with_slot(plugin="test_decoding"), {"slot"}, ["streams outbox repair"]),
    "slot that nobody reads": (
        {**with_slot(active=False), "canary": LATE},
        {"slot", "canary"},
        ["streams outbox repair"],
    ),
    "polled, with neither slot nor Connect": (
        {"database": Database(POLLED, NAMED), "worker": Down("Connect does not answer", "streams up")},
        set(),
        [],
    ),
    "polled, with the connector stopped": (
        {**with_slot(polled=True, active=False), **with_worker(ConnectorState("STOPPED"))},
        set(),
        [],
    ),
    "polled, and stands still": (
        {**with_slot(polled=True, active=False), "canary": LATE, "unpublished": [row(created_at=NOW - MINUTE)]},
        {"outbox", "canary"},
        ["streams doctor"],
    ),
    "polled, with a poison row": (
        {**with_slot(polled=True, active=False), "unpublished": [row(7, bytes=MESSAGE_BYTES_MAX)]},
        {"outbox"},
        ["streams outbox skip 7"],
    ),
    "publication missing": (
        with_slot(publication_ok=False, publication_exists=False) | {"canary": LATE},
        {"publication", "canary"},
        ["streams outbox repair"],
    ),
    "publication of updates too": (with_slot(publication_ok=False), {"publication"}, ["streams outbox repair"]),
    "connector deleted": (
        {**with_worker(None, "connector.class"), **with_slot(active=False), "canary": LATE},
        {"connector", "task", "slot", "canary"},
        ["streams setup"],
    ),
    "connector deleted and slot dropped": (
        slot_gone(canary=LATE, **with_worker(None)),
        {"connector", "task", "slot", "canary"},
        ["streams outbox repair"],
    ),
    "repair that did not end": (
        {**with_worker(ConnectorState("STOPPED")), "canary": LATE},
        {"connector", "task", "canary"},
        ["streams outbox repair"],
    ),
    "connector paused": (
        {**with_worker(ConnectorState("PAUSED", "PAUSED")), "canary": LATE},
        {"connector", "task", "canary"},
        ["streams setup"],
    ),
    "connector changed": (with_worker(RUNNING, "poll.interval.ms"), {"connector"}, ["streams setup"]),
    "task failed": ({**with_worker(FAILED), "canary": LATE}, {"task", "canary"}, ["streams setup"]),
    "plugin missing": (
        {"worker": Worker(frozenset(), None, []), "canary": LATE},
        {"plugin", "connector", "task", "canary"},
        ["streams up", "streams setup"],
    ),
    "relay stands still for no reason": ({"canary": LATE}, {"canary"}, ["streams outbox repair"]),
    "relay behind": ({"canary": Canary(None, slot_moved=True)}, {"canary"}, ["streams doctor"]),
    "rows passed over": (
        {"unpublished": [row(created_at=NOW - timedelta(minutes=2))]},
        {"outbox"},
        ["streams outbox repair"],
    ),
    "row on its way": ({"unpublished": [row()]}, set(), []),
    "poison row": (
        {"unpublished": [row(6), row(7, bytes=MESSAGE_BYTES_MAX)], "canary": LATE, **with_worker(FAILED)},
        {"outbox", "task", "canary"},
        ["streams outbox skip 7"],
    ),
    "poison row and slot dropped": (
        slot_gone(unpublished=[row(7, bytes=MESSAGE_BYTES_MAX)], canary=LATE),
        {"outbox", "slot", "canary"},
        ["streams outbox skip 7"],
    ),
    "heartbeat topic missing": (
        {**with_topic(HEARTBEAT, None), "canary": LATE},
        {f"topic {HEARTBEAT.name}", "canary"},
        ["streams setup"],
    ),
    "topic with one partition": (
        with_topic(DOCUMENTS_SAVED, TopicState(1, DOCUMENTS_SAVED.config)),
        {f"topic {DOCUMENTS_SAVED.name}"},
        ["streams setup"],
    ),
    "topic with more partitions than wanted": (
        with_topic(DOCUMENTS_SAVED, TopicState(24, DOCUMENTS_SAVED.config)),
        set(),
        [],
    ),
    "topic of other settings": (
        with_topic(DOCUMENTS_SAVED, TopicState(12, {**DOCUMENTS_SAVED.config, "retention.ms": "1"})),
        {f"topic {DOCUMENTS_SAVED.name}"},
        ["streams setup"],
    ),
    "setting that the broker does not know": (
        with_topic(DOCUMENTS_SAVED, TopicState(12, {"retention.ms": "-1"})),
        set(),
        [],
    ),
    "topic that the outbox may not name": (
        {"database": Database(SLOT, NAMED - {CANARY.name})},
        {f"topic {CANARY.name}"},
        ["streams setup"],
    ),
    "schema not registered": (
        {"registry": {"s": Gate([], guarded=False)}},
        {"schema s"},
        ["streams setup"],
    ),
    "schema incompatible": (
        {"registry": {"s": Gate(["no default"], guarded=True)}},
        {"schema s"},
        ["streams schema check"],
    ),
    "slot dropped and topic missing": (
        slot_gone(canary=LATE, **with_topic(HEARTBEAT, None)),
        {"slot", "canary", f"topic {HEARTBEAT.name}"},
        ["streams outbox repair", "streams setup"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_faults_and_commands(case: str) -> None:
    changes, faults, mending = CASES[case]
    checks = judge(replace(HEALTHY, **changes))
    assert {check.name for check in checks if check.state == "fault"} == faults
    assert commands(checks) == mending
    assert all((check.command is not None) == (check.state == "fault") for check in checks)


def test_partitions_that_were_added_are_told_with_what_becomes_of_the_order() -> None:
    checks = judge(replace(HEALTHY, **with_topic(DOCUMENTS_SAVED, TopicState(24, DOCUMENTS_SAVED.config))))
    (said,) = [check.says for check in checks if check.name == f"topic {DOCUMENTS_SAVED.name}"]
    assert said == (
        "it has 24 partitions, and had 12 at first: "
        "a document's records are in order only before and after they were added"
    )
    assert [check.state for check in checks if check.name == "topics"] == ["ok"]


POISON = {
    "too large": row(bytes=MESSAGE_BYTES_MAX),
    "no such name": row(topic="not a topic!"),
    "before 1970": row(created_at=datetime(1970, 1, 1)),
    "too far ahead": row(created_at=datetime(9999, 1, 1)),
}
HARMLESS = {
    "within the limit": row(bytes=6 * 1024 * 1024),
    "of a topic that setup can make": row(topic="not-yet"),
    "a day ahead": row(created_at=NOW + timedelta(days=1)),
}


@pytest.mark.parametrize("case", POISON)
def test_a_row_that_the_broker_never_takes(case: str) -> None:
    assert list(poison(replace(HEALTHY, unpublished=[POISON[case]]))) == [7]


@pytest.mark.parametrize("case", HARMLESS)
def test_a_row_that_the_broker_takes(case: str) -> None:
    assert poison(replace(HEALTHY, unpublished=[HARMLESS[case]])) == {}


def test_what_could_not_be_looked_at_is_no_fault_of_its_own() -> None:
    down = Down("Kafka does not answer", "streams up")
    checks = judge(replace(HEALTHY, topics=down, unpublished=down, canary=down))
    assert {check.name for check in checks if check.state == "unknown"} == {"topics", "outbox", "canary"}


def test_the_reason_is_the_first_line_and_the_root() -> None:
    assert FAILED.reason == "org.x.First: it broke; Caused by: java.Root: why"
    assert RUNNING.reason == ""


def test_the_reason_is_cut() -> None:
    assert len(ConnectorState("FAILED", trace="x" * 10_000).reason) < 300


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, "streams up"),
        ({"bootstrap_servers": "redpanda:9092", "db_host": "postgres"}, "docker compose up -d"),
        ({"db_host": "localhost"}, "streams up"),
    ],
)
def test_the_command_that_starts_the_servers(changes: dict[str, Any], command: str) -> None:
    assert start_command(Settings(**changes)) == command


def test_with_everything_down_the_answer_comes_in_time() -> None:
    before = time.monotonic()
    checks = examine(Settings(port_base=free_port_base()))
    assert time.monotonic() - before < 15
    assert {check.name for check in checks if check.state == "fault"} == {"postgres", "kafka", "connect", "registry"}
    assert commands(checks) == ["streams up"]
