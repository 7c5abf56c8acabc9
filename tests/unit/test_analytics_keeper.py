"""What the keeper sends to the changelog, when it claims a position, and what it passes over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams.analytics import changelog, keeper
from streams.analytics.changelog import POSITION_KEY, position_value, row_key, row_value
from streams.analytics.keeper import Keeper
from streams.analytics.views import Row, Sums
from streams.contract import DocumentSaved
from streams.errors import BrokenFrame, Unavailable

SAVED_AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
Sent = tuple[int, bytes, bytes | None]


def document(document_id: str = "d", version: int = 1, **fields: Any) -> DocumentSaved:
    given = {"owner_id": "ada", "title": "é", "body": "text", "saved_at": SAVED_AT} | fields
    return DocumentSaved(document_id, version=version, **given)


class Changelog:
    """Takes what is sent; the broker has a position at once, and a row when the test says so."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.waiting: list[asyncio.Future[object]] = []
        self.is_slow = False

    async def write(self, partition: int, key: bytes, value: bytes | None) -> asyncio.Future[object]:
        self.sent.append((partition, key, value))
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        if not self.is_slow:
            self.arrive()
        elif key == POSITION_KEY:
            self.waiting.pop().set_result(None)
        return future

    def arrive(self) -> None:
        for future in self.waiting:
            future.set_result(None)
        self.waiting.clear()


def run(scenario: Callable[[Keeper, Changelog], Coroutine[Any, Any, None]], *documents: DocumentSaved) -> Keeper:
    """A keeper of partition 3 that begins at 0; the value of an event is the number of the document."""
    written = Changelog()
    kept = Keeper(lambda value: documents[int(value or b"")], written.write)
    kept.take_over(3)
    kept.begin({3: 0})
    asyncio.run(scenario(kept, written))
    return kept


async def take(kept: Keeper, *numbers: int) -> None:
    for number in numbers:
        await kept.take(3, number, number - 1, str(number).encode())


def test_a_version_is_sent_once_and_its_predecessor_removed_when_it_is_there() -> None:
    async def scenario(kept: Keeper, written: Changelog) -> None:
        written.is_slow = True
        await take(kept, 0, 1, 2, 3)
        row = Row(1, "ada", 6, 1_796_040_000_000, False)
        assert written.sent == [(3, row_key("d", 1), row_value(row)), (3, row_key("d", 2), row_value(row))]
        assert await kept.save() == {3: 0}
        written.arrive()
        assert await kept.save() == {3: 4}
        assert written.sent[2:] == [
            (3, POSITION_KEY, position_value(0)),
            (3, row_key("d", 1), None),
            (3, POSITION_KEY, position_value(4)),
        ]

    first, second = document(), document(version=2)
    kept = run(scenario, first, second, second, first)
    assert kept.views.totals == Sums(documents=1, saves=2, size_bytes=6)


def test_a_position_is_written_when_it_moved() -> None:
    async def scenario(kept: Keeper, written: Changelog) -> None:
        await take(kept, 0)
        await kept.save()
        before = len(written.sent)
        await kept.save()
        assert len(written.sent) == before

    run(scenario, document())


def test_what_cannot_be_read_is_counted_said_and_passed(caplog: pytest.LogCaptureFixture) -> None:
    def decode(_value: bytes | None) -> DocumentSaved:
        raise BrokenFrame("the value is null")

    async def scenario() -> None:
        written = Changelog()
        kept = Keeper(decode, written.write)
        kept.take_over(3)
        kept.begin({3: 0})
        await take(kept, *range(12))
        assert kept.unreadable == {"BrokenFrame": 12}
        assert await kept.save() == {3: 12}

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "unreadable and passed over (BrokenFrame, 1 so far): partition 3, offset 0: the value is null",
        "unreadable and passed over (BrokenFrame, 10 so far): partition 3, offset 9: the value is null",
    ]


def test_a_registry_that_is_down_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_RETRY_SECONDS", 0.0)
    answers: list[DocumentSaved | None] = [None, None, document()]

    def decode(_value: bytes | None) -> DocumentSaved:
        answer = answers.pop(0)
        if answer is None:
            raise Unavailable("the registry is down")
        return answer

    async def scenario() -> None:
        kept = Keeper(decode, Changelog().write)
        kept.take_over(3)
        kept.begin({3: 0})
        await take(kept, 0)
        assert kept.views.totals.documents == 1
        assert kept.unreadable == {}

    asyncio.run(scenario())


def test_a_partition_that_was_let_go_while_the_registry_was_asked_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper, "_RETRY_SECONDS", 0.0)
    kept: Keeper

    def decode(_value: bytes | None) -> DocumentSaved:
        if kept.partitions:
            kept.let_go(3)
            raise Unavailable("the registry is down")
        return document()

    async def scenario() -> None:
        nonlocal kept
        written = Changelog()
        kept = Keeper(decode, written.write)
        kept.take_over(3)
        kept.begin({3: 0})
        await take(kept, 0)
        assert (kept.views.totals, written.sent) == (Sums(), [])

    asyncio.run(scenario())


def test_events_of_another_workers_partition_are_left_alone() -> None:
    async def scenario(kept: Keeper, written: Changelog) -> None:
        await kept.take(4, 0, -1, b"0")
        assert (kept.views.totals, written.sent) == (Sums(), [])

    run(scenario, document())


def test_recovery_takes_rows_and_position_and_removes_what_is_left_over() -> None:
    async def scenario(kept: Keeper, written: Changelog) -> None:
        row = Row(1, "ada", 5, 0, False)
        records = [
            (row_key("d", 1), row_value(row)),
            (row_key("d", 2), row_value(row)),
            (row_key("e", 1), row_value(row)),
            (row_key("e", 2), row_value(row)),
            (POSITION_KEY, position_value(7)),
            (row_key("e", 1), None),
            (row_key("d", 1), row_value(row)),  # of a worker that did not know
        ]
        for key, value in records:
            kept.recover(3, key, value)
            kept.recover(4, key, value)  # not ours
        assert kept.position(3) == 7
        assert kept.position(4) is None
        assert kept.views.totals == Sums(documents=2, saves=4, size_bytes=10)
        await kept.save()
        assert (3, row_key("d", 1), None) in written.sent
        assert (3, row_key("e", 1), None) not in written.sent

    run(scenario)


def test_nothing_left_over_is_removed_while_something_is_on_its_way() -> None:
    async def scenario(kept: Keeper, written: Changelog) -> None:
        written.is_slow = True
        await take(kept, 0)
        kept.recover(3, row_key("d", 1), row_value(Row(1, "ada", 5, 0, False)))
        await kept.save()
        assert (3, row_key("d", 1), None) not in written.sent
        written.arrive()
        await kept.save()
        assert (3, row_key("d", 1), None) in written.sent

    run(scenario, document(version=2))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"1"),
        (b"not json", b"1"),
        (b'["d"]', b"[]"),
        (row_key("d", 1), b"[1]"),
        (POSITION_KEY, b"[]"),
        (b"7", b"7"),
    ],
)
def test_a_strange_record_in_the_changelog_is_counted_and_passed(key: bytes | None, value: bytes) -> None:
    async def scenario(kept: Keeper, _written: Changelog) -> None:
        kept.recover(3, key, value)
        kept.recover(3, row_key("d", 1), row_value(Row(1, "ada", 5, 0, False)))

    kept = run(scenario)
    assert kept.unreadable == {"ForeignRow": 1}
    assert kept.views.totals.documents == 1


def test_rows_survive_the_changelog() -> None:
    row = Row(3, 'a "b" ü', 12, 1_796_040_000_123, True)
    read = changelog.read(row_key('d"\u2028', 3), row_value(row))
    assert read == changelog.Latest('d"\u2028', row)


def test_a_deletion_and_a_time_between_seconds() -> None:
    async def scenario(kept: Keeper, _written: Changelog) -> None:
        await take(kept, 0)

    late = SAVED_AT + timedelta(milliseconds=7)
    kept = run(scenario, document(version=2, type="deleted", title="", body="", saved_at=late))
    assert kept.views.hottest(1) == [("d", Row(2, "ada", 0, 1_796_040_000_007, True))]
