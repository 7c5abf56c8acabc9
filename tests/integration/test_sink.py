"""The sink against a real Postgres: the guard, ownership, every effect on both kinds of table, dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer

from streams.contract import (
    Delete,
    DocumentSaved,
    Effect,
    Increment,
    Reader,
    Replace,
    Table,
    Upsert,
    reader,
)
from streams.core.outcomes import Dead, Done, Expired, Failure, Outcome, Retrying
from streams.runtime.clock import Clock
from streams.runtime.delivery import Delivery
from streams.runtime.ports import Partition, PartitionsLost, Result, RowRefused, SinkBroken
from streams.runtime.records import Assignment, Record, lane_of
from streams.sinks.postgres import PostgresSink
from streams.stack.setup import ensure_reader
from streams.topics import MESSAGE_BYTES_MAX, OUTBOX_BYTES_MAX, dead_letters
from tests.rig import Rig, unique
from tests.support import eventually

HERE = Partition("documents-saved", 0)
THERE = Partition("documents-saved", 1)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PERMANENT = Failure("Reject", "not this one", "Traceback …", permanent=True)
PASSING = Failure("RetryLater", "busy", "Traceback …")


@dataclass
class Message:
    """A record as the log would give it."""

    number: int
    body: bytes | None = b"value"
    named: bytes | None = b"key"
    noted: list[tuple[str, bytes | None]] = field(default_factory=list)

    def topic(self) -> str:
        return HERE.topic

    def partition(self) -> int:
        return HERE.number

    def offset(self) -> int:
        return self.number

    def key(self) -> bytes | None:
        return self.named

    def value(self) -> bytes | None:
        return self.body

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.noted

    def timestamp(self) -> tuple[int, int]:
        return 1, int(NOW.timestamp() * 1000)

    def leader_epoch(self) -> int | None:
        return None

    def __len__(self) -> int:
        return len(self.body or b"")


class Desk:
    """One worker's sink, with its partitions claimed, and the results that a test hands to it."""

    def __init__(self, rig: Rig, table: Table | None = None, group: str | None = None) -> None:
        self.rig = rig
        self.group = group or unique("sink")
        options: dict[str, Any] = {} if table is None else {"table": table}
        self.reader: Reader = reader(group=self.group, **options)(lambda doc: None)
        self.letters = dead_letters(self.group)
        self.sink = PostgresSink(
            rig.config, self.reader, "a-worker", lambda letter: rig.codec.encode(self.letters, letter)
        )
        self.epochs = {where: one.epoch for where, one in self.sink.claim([HERE, THERE]).items()}
        self.offset = 0

    def with_letters(self) -> Desk:
        """Make the topic that dead letters need; slow, so for those tests alone."""
        ensure_reader(self.rig.config, self.group)
        self.rig.groups.add(self.group)
        return self

    def result(
        self, document_id: str, version: int, outcome: Outcome, *, pass_number: int = 1, event_id: str | None = None
    ) -> Record:
        self.offset += 1
        assignment = Assignment(HERE)
        assignment.pass_number = pass_number
        headers = [("id", event_id.encode())] if event_id else []
        message = Message(self.offset, b"\x00value", document_id.encode(), headers)
        record = Record(assignment, message, document(document_id, version), document_id, 0)
        record.outcome = outcome
        return record

    def write(self, *results: Result) -> None:
        self.sink.write(self.epochs, results)

    def done(self, document_id: str, version: int, *effects: Effect, pass_number: int = 1) -> None:
        self.write(self.result(document_id, version, Done(effects), pass_number=pass_number))

    def deliver(self, *items: tuple[Message, DocumentSaved | None, Outcome]) -> None:
        """Through the runtime's delivery, which writes a refused batch record by record."""
        assignment = Assignment(HERE)
        assignment.epoch = self.epochs[HERE]
        delivery = Delivery(self.sink, Clock())
        for message, doc, outcome in items:
            assignment.receive([message], 0.0)
            record = Record(assignment, message, doc, *lane_of("key", message, doc))
            record.outcome = outcome
            delivery.add([record])
        delivery.deliver({HERE: assignment})
        assert not delivery.pending
        assert assignment.tracker.oldest() is None

    def progress(self, document_id: str) -> dict[str, Any]:
        names = "version, state, applied_version, pass, attempts, error, completed::text, next_attempt_at"
        ((*values,),) = self.rig.rows(
            f"SELECT {names} FROM readers.progress WHERE reader = %s AND document_id = %s", self.group, document_id
        )
        keys = ("version", "state", "applied", "pass", "attempts", "error", "completed", "next")
        return dict(zip(keys, values, strict=True))

    def output(self) -> dict[str, Any]:
        return self.rig.output(self.group)

    def dead(self, columns: str = "version, error_class") -> list[tuple[Any, ...]]:
        return self.rig.dead_letters(self.group, columns)


def document(document_id: str, version: int) -> DocumentSaved:
    return DocumentSaved(document_id, "o", version, "t", "b", NOW)


def retrying(attempts: int = 1) -> Retrying:
    return Retrying(PASSING, attempts, NOW + timedelta(seconds=9))


def dead(failure: Failure = PERMANENT) -> Dead:
    return Dead(failure, attempts=5, first_failed_at=NOW - timedelta(minutes=1))


@pytest.fixture
def desk(rig: Rig) -> Iterator[Desk]:
    made = Desk(rig)
    yield made
    made.sink.close()


@pytest.fixture
def undertaker(desk: Desk) -> Desk:
    """A desk that can bury."""
    return desk.with_letters()


@pytest.fixture
def typed(rig: Rig) -> Iterator[Callable[[str, tuple[str, ...]], Desk]]:
    """A desk whose reader has a table of its own: given the columns beside document_id and version, and the key."""
    desks: list[Desk] = []

    def make(columns: str, key: tuple[str, ...]) -> Desk:
        name = unique("typed").replace("-", "_")
        rig.do(
            f"CREATE TABLE readers.{name} ({columns}, document_id text, version bigint, PRIMARY KEY ({', '.join(key)}))"
        )
        desks.append(Desk(rig, Table(name, key)))
        return desks[-1]

    yield make
    for made in desks:
        made.sink.close()
        rig.do(f"DROP TABLE readers.{made.reader.table.name}")


def typed_rows(desk: Desk, columns: str) -> list[tuple[Any, ...]]:
    return desk.rig.rows(f"SELECT {columns} FROM readers.{desk.reader.table.name} ORDER BY 1, 2")


# ------------------------------------------------------------------------------------------------ the guard


def test_a_duplicate_changes_nothing_and_counts_once(desk: Desk) -> None:
    for _ in range(2):
        desk.done("d", 1, Upsert("d", {"n": 1}), Increment("all", {"versions": 1}))
    assert desk.output() == {"d": {"n": 1}, "all": {"versions": 1}}
    assert desk.progress("d")["completed"] == "{[1,2)}"


def test_a_duplicate_within_one_batch_counts_once(desk: Desk) -> None:
    desk.write(*(desk.result("d", 1, Done((Increment("all", {"versions": 1}),))) for _ in range(3)))
    assert desk.output() == {"all": {"versions": 1}}


def test_a_stale_version_has_no_effect(desk: Desk) -> None:
    desk.done("d", 2, Upsert("d", {"n": 2}))
    desk.done("d", 1, Upsert("d", {"n": 1}), Increment("all", {"versions": 1}))
    assert desk.output() == {"d": {"n": 2}}
    assert desk.progress("d") | {"version": 2, "applied": 2, "completed": "{[2,3)}"} == desk.progress("d")


def test_a_replay_rewrites_the_same_version(desk: Desk) -> None:
    desk.done("d", 3, Upsert("d", {"n": "old"}))
    desk.done("d", 3, Upsert("d", {"n": "new"}), pass_number=2)
    assert desk.output() == {"d": {"n": "new"}}
    assert desk.progress("d")["pass"] == 2


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("outcome", [retrying(), dead(), Expired()], ids=["retrying", "dead", "expired"])
def test_a_failure_does_not_touch_what_is_done(undertaker: Desk, version: int, outcome: Outcome) -> None:
    undertaker.done("d", 2, Upsert("d", {"n": 2}))
    before = undertaker.progress("d")
    undertaker.write(undertaker.result("d", version, outcome, pass_number=9))
    assert undertaker.progress("d") == before
    assert undertaker.output() == {"d": {"n": 2}}


def test_a_failure_of_a_newer_version_is_recorded_beside_what_was_applied(undertaker: Desk) -> None:
    undertaker.done("d", 2)
    undertaker.write(undertaker.result("d", 3, retrying(attempts=2)))
    seen = undertaker.progress("d")
    assert (seen["version"], seen["state"], seen["applied"], seen["attempts"]) == (3, "retrying", 2, 2)
    assert seen["error"] == "RetryLater: busy"
    assert seen["next"] == NOW + timedelta(seconds=9)
    undertaker.write(undertaker.result("d", 3, dead()))
    assert (undertaker.progress("d")["state"], undertaker.progress("d")["applied"]) == ("dead", 2)


def test_an_earlier_version_done_after_a_later_one_died(undertaker: Desk) -> None:
    undertaker.write(undertaker.result("d", 3, dead()))
    undertaker.done("d", 2, Upsert("d", {"n": 2}))
    seen = undertaker.progress("d")
    assert (seen["version"], seen["state"], seen["applied"]) == (3, "dead", 2)
    assert undertaker.output() == {"d": {"n": 2}}


def test_success_clears_what_the_failures_left(desk: Desk) -> None:
    desk.write(desk.result("d", 1, retrying()))
    desk.done("d", 1)
    seen = desk.progress("d")
    assert (seen["state"], seen["attempts"], seen["error"], seen["next"]) == ("done", 0, None, None)


def test_completed_holds_every_version_whose_effects_were_applied(undertaker: Desk) -> None:
    for version in (1, 2, 4):
        undertaker.done("d", version)
    undertaker.write(undertaker.result("d", 5, dead()))
    undertaker.done("d", 3)
    undertaker.done("d", 7)
    assert undertaker.progress("d")["completed"] == "{[1,3),[4,5),[7,8)}"


def test_a_version_from_before_the_deletion_does_not_come_back(desk: Desk) -> None:
    desk.done("d", 1, Upsert("d", {"n": 1}))
    desk.done("d", 2, Replace({}))
    desk.done("d", 1, Upsert("d", {"n": 1}))
    assert desk.output() == {}
    desk.done("d", 3, Upsert("d", {"n": 3}))
    assert desk.output() == {"d": {"n": 3}}


def test_an_expired_event_is_recorded(desk: Desk) -> None:
    desk.write(desk.result("d", 4, Expired()))
    assert (desk.progress("d")["state"], desk.progress("d")["applied"]) == ("expired", None)


def test_looking_up_what_was_recorded(desk: Desk) -> None:
    desk.done("a", 2, pass_number=7)
    desk.write(desk.result("b", 1, retrying(attempts=3), pass_number=8))
    found = desk.sink.lookup(["a", "b", "unknown"])
    assert {key: tuple(getattr(value, name) for name in value.__slots__) for key, value in found.items()} == {
        "a": (2, "done", 2, 7),
        "b": (1, "retrying", 0, 8),
    }


# ------------------------------------------------------------------------------------------------ ownership


def test_a_former_owner_writes_nothing(desk: Desk) -> None:
    successor = Desk(desk.rig, group=desk.group)
    assert successor.epochs == {partition: epoch + 1 for partition, epoch in desk.epochs.items()}
    with pytest.raises(PartitionsLost) as lost:
        desk.done("d", 1, Upsert("d", {"n": 1}), Increment("all", {"versions": 1}))
    assert lost.value.partitions == {HERE, THERE}
    assert desk.output() == {}
    assert not desk.rig.progress(desk.group)
    successor.done("d", 1, Upsert("d", {"n": "successor"}))
    assert desk.output() == {"d": {"n": "successor"}}
    successor.sink.close()


def test_one_lost_partition_stops_the_whole_batch_and_is_named(desk: Desk) -> None:
    desk.sink.claim([THERE])
    with pytest.raises(PartitionsLost) as lost:
        desk.done("d", 1, Upsert("d", {"n": 1}))
    assert lost.value.partitions == {THERE}
    assert desk.output() == {}


def test_an_unclaimed_partition_is_not_ours(desk: Desk) -> None:
    never = Partition("documents-saved", 11)
    with pytest.raises(PartitionsLost):
        desk.sink.write({never: 1}, [desk.result("d", 1, Done(()))])


# -------------------------------------------------------------------------------- effects, the shared table


def test_upsert_and_delete(desk: Desk) -> None:
    desk.done("d", 1, Upsert("one", {"n": 1}), Upsert("two", {"n": 2, "text": "ü😀"}))
    desk.done("d", 2, Upsert("one", {"n": 11}), Delete("two"), Delete("never-there"))
    assert desk.output() == {"one": {"n": 11}}
    columns = "document_id, version"
    assert desk.rig.rows(f"SELECT {columns} FROM readers.output WHERE reader = %s", desk.group) == [("d", 2)]


def test_replace_makes_the_rows_of_the_document_a_set(desk: Desk) -> None:
    desk.done("other", 1, Upsert("kept", {}))
    desk.done("d", 1, Replace({"a": {"n": 1}, "b": {"n": 1}}))
    desk.done("d", 2, Replace({"b": {"n": 2}, "c": {"n": 2}}))
    assert desk.output() == {"kept": {}, "b": {"n": 2}, "c": {"n": 2}}


def test_increment_adds_to_each_number(desk: Desk) -> None:
    desk.done("d", 1, Increment("all", {"versions": 1, "words": 10}))
    desk.done("e", 1, Increment("all", {"versions": 1, "letters": 2**62}))
    desk.done("d", 2, Increment("all", {"words": -3, "letters": 2**62}))
    assert desk.output() == {"all": {"versions": 2, "words": 7, "letters": 2**63}}


def test_a_counter_outlives_the_documents(desk: Desk) -> None:
    desk.done("d", 1, Increment("all", {"versions": 1}), Upsert("d", {}))
    desk.done("d", 2, Replace({}))
    assert desk.output() == {"all": {"versions": 1}}


@pytest.mark.parametrize(
    "effect",
    [Upsert("theirs", {"n": 2}), Replace({"theirs": {}}), Increment("theirs", {"n": 1}), Upsert("counter", {})],
)
def test_a_key_of_another_is_an_error(desk: Desk, effect: Effect) -> None:
    desk.done("d", 1, Upsert("theirs", {"n": 1}), Increment("counter", {"n": 5}))
    with pytest.raises(RowRefused, match="another document"):
        desk.done("thief", 1, effect)
    assert desk.output() == {"theirs": {"n": 1}, "counter": {"n": 5}}
    assert "thief" not in desk.rig.progress(desk.group)


def test_deleting_a_key_of_another_leaves_it(desk: Desk) -> None:
    desk.done("d", 1, Upsert("theirs", {"n": 1}), Increment("counter", {"n": 5}))
    desk.done("thief", 1, Delete("theirs"), Delete("counter"), Replace({}))
    assert desk.output() == {"theirs": {"n": 1}, "counter": {"n": 5}}


@pytest.mark.parametrize("scope", [{"document_id": "d"}, {"reader": "the other"}], ids=["document", "reader"])
def test_a_scope_does_not_reach_into_others_rows(desk: Desk, scope: dict[str, str]) -> None:
    other = Desk(desk.rig)
    other.done("thief", 1, Upsert("other", {}))
    desk.done("d", 1, Upsert("d", {}))
    named = {key: other.group if value == "the other" else value for key, value in scope.items()}
    desk.done("thief", 1, Replace({}, scope=named))
    assert (desk.output(), other.output()) == ({"d": {}}, {"other": {}})
    other.sink.close()


def test_two_readers_share_the_table_and_not_the_rows(desk: Desk) -> None:
    other = Desk(desk.rig)
    desk.done("d", 1, Upsert("d", {"n": 1}))
    other.done("d", 1, Upsert("d", {"n": 2}))
    desk.done("d", 2, Replace({}))
    assert (desk.output(), other.output()) == ({}, {"d": {"n": 2}})
    other.sink.close()


@pytest.mark.parametrize(
    "effect",
    [
        Upsert("k", {"at": NOW}),
        Upsert("k", {"n": float("nan")}),
        Upsert("k", {"text": "a\0b"}),
        Upsert("k", {"text": "\ud800"}),
        Upsert("k\0", {}),
        Upsert("k", None),  # type: ignore[arg-type]
        Upsert(7, {}),  # type: ignore[arg-type]
        Upsert(("k", "and more"), {}),
        Replace([{"n": 1}]),  # type: ignore[arg-type]
        Increment("k", {"n": 1.5}),  # type: ignore[dict-item]
        Increment("k", {}),
        Increment("k", 3),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_what_cannot_be_stored_is_refused_and_the_sink_goes_on(desk: Desk, effect: Effect) -> None:
    with pytest.raises(RowRefused):
        desk.done("d", 1, Upsert("before", {}), effect)
    assert desk.output() == {}
    desk.done("d", 1, Upsert("after", {}))
    assert desk.output() == {"after": {}}


# --------------------------------------------------------------------------------- effects, a typed table


def test_a_typed_table(typed: Callable[[str, tuple[str, ...]], Desk]) -> None:
    desk = typed("kind text, label text, score float8", ("document_id", "kind", "label"))
    desk.done("d", 1, Replace({("d", "x", "a"): {"score": 0.5}, ("d", "y", "a"): {"score": 1}}))
    desk.done("e", 1, Upsert(("e", "x", "a"), {"score": 2}))
    desk.done("d", 2, Replace({("d", "x", "b"): {"score": 3}}, scope={"kind": "x"}))
    desk.done("d", 3, Upsert(("d", "x", "b"), {"score": 4}), Delete(("d", "y", "a")))
    assert typed_rows(desk, "document_id, kind, label, score, version") == [
        ("d", "x", "b", 4.0, 3),
        ("e", "x", "a", 2.0, 1),
    ]
    for effect in (Upsert(("e", "x", "a"), {"score": 0}), Delete(("e", "x", "a"))):
        with pytest.raises(RowRefused, match="another document"):
            desk.done("d", 4, effect)


def test_a_typed_table_whose_key_is_not_the_document(typed: Callable[[str, tuple[str, ...]], Desk]) -> None:
    desk = typed("word text, n int", ("word",))
    desk.done("d", 1, Upsert("house", {"n": 1}))
    with pytest.raises(RowRefused, match="another document"):
        desk.done("e", 1, Upsert("house", {"n": 2}))
    desk.done("e", 1, Delete("house"))
    assert typed_rows(desk, "word, n, document_id, version") == [("house", 1, "d", 1)]


def test_a_typed_counter(typed: Callable[[str, tuple[str, ...]], Desk]) -> None:
    desk = typed("word text, seen bigint NOT NULL, letters bigint NOT NULL", ("word",))
    for document_id in ("d", "d", "e"):
        desk.done(document_id, 1, Increment("house", {"seen": 1, "letters": 5}))
    assert typed_rows(desk, "word, seen, letters") == [("house", 2, 10)]


def test_a_value_out_of_the_columns_range_is_refused(typed: Callable[[str, tuple[str, ...]], Desk]) -> None:
    desk = typed("n int NOT NULL", ("document_id",))
    for bad in ({"n": 2**40}, {"n": "seven"}, {"n": None}, {}, {"n": object()}, {"n": 10**400}):
        with pytest.raises(RowRefused):
            desk.done("d", 1, Upsert("d", bad))
    desk.done("d", 1, Upsert("d", {"n": 7}))
    assert typed_rows(desk, "document_id, n") == [("d", 7)]


@pytest.mark.parametrize("effect", [Upsert("d", {"nope": 1}), Upsert("d", {}, table=Table("nowhere", ("k",)))])
def test_a_column_or_table_that_is_not_there_stops_the_reader(
    typed: Callable[[str, tuple[str, ...]], Desk], effect: Effect
) -> None:
    desk = typed("n int", ("document_id",))
    with pytest.raises(SinkBroken, match="does not exist"):
        desk.done("d", 1, effect)
    assert not desk.rig.progress(desk.group)


# ------------------------------------------------------------------------------------------ batches in order


def test_a_mixed_batch_runs_in_record_order(desk: Desk) -> None:
    effects: list[tuple[str, int, tuple[Effect, ...]]] = [
        ("d", 1, (Upsert("d", {"n": 1}), Increment("all", {"n": 1}))),
        ("e", 1, (Upsert("e", {"n": 1}),)),
        ("d", 2, (Delete("d"), Upsert("d", {"n": 2}), Upsert("d2", {"n": 2}))),
        ("e", 2, (Replace({"e3": {}}),)),
        ("d", 3, (Replace({"d": {"n": 3}}), Increment("all", {"n": 1}))),
        ("e", 3, (Upsert("e", {"n": 3}), Delete("e3"))),
    ]
    desk.write(*(desk.result(document_id, version, Done(given)) for document_id, version, given in effects))
    assert desk.output() == {"d": {"n": 3}, "e": {"n": 3}, "all": {"n": 2}}


def test_one_bad_row_among_500(typed: Callable[[str, tuple[str, ...]], Desk]) -> None:
    """Only it becomes a dead letter; the rest is applied, in order, and counted once."""
    columns = "entry text, note text, seq bigint GENERATED ALWAYS AS IDENTITY"
    desk = typed(columns, ("entry",)).with_letters()
    shared = Table("output", ("key",), shared=True)
    items = []
    for number in range(500):
        document_id, version = f"d{number % 5}", number // 5 + 1
        note = "a\0b" if number == 251 else "fine"
        effects = (
            Upsert(f"{document_id}:{version}", {"note": note}),
            Increment(document_id, {"versions": 1}, table=shared),
        )
        items.append((Message(number), document(document_id, version), Done(effects)))
    desk.deliver(*items)
    order = desk.rig.rows(f"SELECT entry FROM readers.{desk.reader.table.name} ORDER BY seq")
    bad = "d1:51"
    assert [entry for (entry,) in order] == [
        entry for number in range(500) if (entry := f"d{number % 5}:{number // 5 + 1}") != bad
    ]
    assert desk.output() == {f"d{n}": {"versions": 99 if n == 1 else 100} for n in range(5)}
    ((version, error_class, message, offset),) = desk.dead('version, error_class, error_message, "offset"')
    assert (version, error_class, offset) == (51, "DataError", 251)
    assert "NUL" in message
    assert desk.rig.done(desk.group) == {f"d{n}": 100 for n in range(5)}


# ------------------------------------------------------------------------------------------ dead letters


def test_a_dead_letter_is_kept_and_sent_once(undertaker: Desk) -> None:
    result = undertaker.result("d", 1, dead())
    for _ in range(2):
        undertaker.write(result)
    assert undertaker.dead() == [(1, "Reject")]
    sent = undertaker.rig.rows("SELECT event_type FROM app.outbox WHERE topic = %s", undertaker.letters.name)
    assert sent == [("dead-letter",)]


def test_the_dead_letter_of_a_lost_batch_is_not_sent(undertaker: Desk) -> None:
    undertaker.sink.claim([HERE])
    with pytest.raises(PartitionsLost):
        undertaker.write(undertaker.result("d", 1, dead()))
    assert undertaker.dead() == []
    assert undertaker.rig.rows("SELECT 1 FROM app.outbox WHERE topic = %s", undertaker.letters.name) == []


def test_a_dead_letter_that_is_done_in_a_replay_is_resolved(undertaker: Desk) -> None:
    event_id = str(uuid4())
    undertaker.write(
        undertaker.result("d", 1, dead(), event_id=event_id), undertaker.result("e", 1, dead(), event_id=str(uuid4()))
    )
    undertaker.write(undertaker.result("d", 1, Done(()), pass_number=2, event_id=event_id))
    assert undertaker.dead("document_id, state") == [("d", "resolved"), ("e", "open")]


def test_the_dead_letters_event_carries_the_record_byte_for_byte(undertaker: Desk) -> None:
    key, value = bytes(range(256)), b"\xff\xfe\x00" * 1000
    headers = [("id", b"\x00\xff"), ("empty", b""), ("none", None), ("id", b"again")]
    message = Message(41, value, key, headers)
    undertaker.deliver((message, None, dead()))
    ((*row,),) = undertaker.dead("key, value, header_names, header_values, document_id, attempts")
    assert row == [key, value, [name for name, _ in headers], [value for _, value in headers], None, 5]
    (event,) = events(undertaker, 1)
    assert event | {"worker": "a-worker", "reader": undertaker.group, "topic": HERE.topic, "partition": 0} == event
    assert (event["offset"], event["timestamp"]) == (41, NOW)
    assert (event["key"], event["value"]) == (key, value)
    assert [(header["name"], header["value"]) for header in event["headers"]] == headers
    assert (event["error_class"], event["error_message"], event["attempts"]) == ("Reject", "not this one", 5)
    assert event["first_failed_at"] == NOW - timedelta(minutes=1)
    assert abs(event["died_at"] - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_record_whose_dead_letter_cannot_be_kept_leaves_the_least_of_one(undertaker: Desk) -> None:
    message = Message(7, b"value", b"key", [("a\0header", b"x")])
    undertaker.deliver((message, document("d", 1), dead()), (Message(8), document("e", 1), Done((Upsert("e", {}),))))
    assert undertaker.dead('"offset", key, value, header_names, error_class') == [(7, b"key", None, [], "Reject")]
    assert undertaker.output() == {"e": {}}
    (event,) = events(undertaker, 1)
    assert (event["key"], event["value"], event["headers"]) == (b"key", None, [])


def test_a_record_too_large_for_the_outbox_is_kept_whole_and_sent_without_its_value(undertaker: Desk) -> None:
    value = b"\xff" * (MESSAGE_BYTES_MAX - 1024)
    assert len(value) > OUTBOX_BYTES_MAX
    undertaker.deliver((Message(9, value), None, dead()))
    assert undertaker.dead("octet_length(value), error_class") == [(len(value), "Reject")]
    (event,) = events(undertaker, 1)
    assert (event["key"], event["value"], event["error_message"]) == (b"key", None, "not this one")


def events(desk: Desk, count: int) -> list[dict[str, Any]]:
    """The reader's dead letters as they stand in its topic."""
    options = {"group.id": unique("watch"), "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({**desk.rig.config.kafka_client(), **options, "fetch.message.max.bytes": MESSAGE_BYTES_MAX})
    consumer.subscribe([desk.letters.name])
    found: list[dict[str, Any]] = []

    def read() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(desk.rig.codec.decode(desk.letters, message.value()))
        return len(found) >= count

    eventually(read, 60, "the dead letter is in its topic")
    consumer.close()
    return found
