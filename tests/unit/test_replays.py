"""What is a replay: a version that this reader has completed and that comes again, from the log or as parked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams import Context, DocumentSaved, reader
from streams.core.outcomes import Failure, Retrying
from streams.runtime.admission import Admission
from streams.runtime.parking import Parking
from streams.runtime.ports import Partition
from streams.runtime.records import Assignment, Record
from tests.executing import document
from tests.property.world import START, FakeClock, FakeLog, FakeMessage, FakeSink, Group, Row

PARTITION = Partition("t", 0)
FAILURE = Failure("Timeout", "later", "")


@reader(group="g")
def told(doc: DocumentSaved, ctx: Context) -> None:
    return None


@reader(group="g")
def untold(doc: DocumentSaved) -> None:
    return None


@pytest.fixture
def sink() -> FakeSink:
    """`applied` has completed 1 to 3; `failed` completed 1 and gave 2 up; both in pass 1."""
    made = FakeSink()
    made.rows["applied"] = Row(3, "done", applied=3, pass_number=1)
    made.rows["failed"] = Row(2, "dead", applied=1, pass_number=1)
    return made


def assigned(pass_number: int) -> Assignment:
    made = Assignment(PARTITION)
    made.epoch, made.pass_number = 1, pass_number
    return made


def admitted(sink: FakeSink, declared: object, *documents: DocumentSaved) -> dict[tuple[str, int], bool]:
    """Document and version of what is to run in pass 2, and whether it is a replay."""
    messages = [FakeMessage(PARTITION, number, doc) for number, doc in enumerate(documents)]
    by_value = {message.value(): message.document for message in messages}
    assignment = assigned(pass_number=2)
    assignment.receive(messages, 0.0)
    admission = Admission(declared, sink, by_value.__getitem__, FakeClock(lambda: None))
    ready = admission.admit([assignment]).records
    return {(one.document.document_id, one.document.version): one.is_replay for one in ready}


def test_what_was_completed_is_a_replay_and_nothing_else_is(sink: FakeSink) -> None:
    versions = [("applied", 2), ("applied", 3), ("applied", 4), ("failed", 1), ("failed", 2), ("new", 1)]
    assert admitted(sink, told, *(document(*one) for one in versions)) == {
        ("applied", 3): True,
        ("applied", 4): False,
        ("failed", 1): True,
        ("failed", 2): False,
        ("new", 1): False,
    }


def test_a_reader_that_is_not_told_pays_nothing(sink: FakeSink) -> None:
    assert admitted(sink, untold, document("applied", 3)) == {("applied", 3): False}


@pytest.mark.parametrize(
    ("name", "version", "is_replay"), [("applied", 3, True), ("applied", 4, False), ("new", 1, False)]
)
def test_a_parked_record_is_one_too(sink: FakeSink, name: str, version: int, is_replay: bool) -> None:
    doc, assignment = document(name, version), assigned(pass_number=2)
    record = Record(assignment, FakeMessage(PARTITION, 5, doc), doc, name, 0)
    sink.epochs[PARTITION] = 1
    record.outcome = Retrying(FAILURE, 2, START + timedelta(seconds=1))
    sink.write({PARTITION: 1}, [record])
    assignment.admitted_to = 6
    parking = Parking(told, FakeLog(Group(1)), sink, lambda _: doc, FakeClock(lambda: None))
    ((loaded, _wait),) = parking.load({PARTITION: assignment}).retries
    assert (loaded.is_replay, loaded.context("g").attempt) == (is_replay, 3)
