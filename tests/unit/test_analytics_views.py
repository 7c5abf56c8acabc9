"""Sums over the latest versions: what counts, what does not, and what a partition takes with it."""

from __future__ import annotations

import pytest

from streams.analytics.views import HOUR_MS, MINUTE_MS, Row, Sums, Views

NOON_MS = 1_796_040_000_000  # 2026-11-30T12:00Z


def row(version: int = 1, owner: str = "ada", size: int = 10, at: int = NOON_MS, deleted: bool = False) -> Row:
    return Row(version, owner, 0 if deleted else size, at, deleted)


def test_a_document_counts_in_every_view() -> None:
    views = Views()
    assert views.put(3, "d", row()) is None
    once = Sums(documents=1, deleted=0, saves=1, size_bytes=10)
    assert views.totals == once
    assert views.owners(5) == [("ada", once)]
    assert views.hottest(5) == [("d", row())]
    assert views.windows(MINUTE_MS, 5) == [(NOON_MS, once)]
    assert views.windows(HOUR_MS, 5) == [(NOON_MS, once)]


def test_a_later_version_takes_the_place_of_the_former_in_every_view() -> None:
    views = Views()
    views.put(3, "d", row())
    later = row(version=4, owner="bob", size=7, at=NOON_MS + MINUTE_MS)
    assert views.put(3, "d", later) == 1
    once = Sums(documents=1, deleted=0, saves=4, size_bytes=7)
    assert views.totals == once
    assert views.owners(5) == [("bob", once)]
    assert views.owner_count() == 1
    assert views.windows(MINUTE_MS, 5) == [(NOON_MS + MINUTE_MS, once)]
    assert views.windows(HOUR_MS, 5) == [(NOON_MS, once)]


@pytest.mark.parametrize(("version", "obsolete"), [(1, 1), (2, None)])
def test_a_version_that_is_not_new_changes_nothing(version: int, obsolete: int | None) -> None:
    views = Views()
    views.put(3, "d", row(version=2))
    assert views.put(3, "d", row(version=version, size=999, owner="eve")) == obsolete
    assert views.totals == Sums(documents=1, saves=2, size_bytes=10)
    assert views.version(3, "d") == 2
    assert views.owners(5) == [("ada", views.totals)]


def test_a_deletion_is_a_save_without_bytes_and_a_document_may_live_again() -> None:
    views = Views()
    views.put(3, "d", row())
    views.put(3, "d", row(version=2, deleted=True))
    assert views.totals == Sums(documents=0, deleted=1, saves=2, size_bytes=0)
    assert views.owners(5) == [("ada", views.totals)]
    views.put(3, "d", row(version=3, size=5))
    assert views.totals == Sums(documents=1, deleted=0, saves=3, size_bytes=5)


def test_a_partition_that_goes_takes_its_documents_along() -> None:
    views = Views()
    views.put(3, "d", row())
    views.put(4, "e", row(owner="bob", size=1))
    views.drop(3)
    views.drop(9)
    assert views.totals == Sums(documents=1, saves=1, size_bytes=1)
    assert views.owners(5) == [("bob", views.totals)]
    assert views.version(3, "d") == 0
    views.drop(4)
    assert views.totals == Sums()
    assert (views.owners(5), views.windows(HOUR_MS, 5), views.hottest(5)) == ([], [], [])


def test_the_largest_come_first_and_no_more_than_asked_for() -> None:
    views = Views()
    for number in range(1, 6):
        views.put(0, f"d{number}", row(version=number, owner=f"o{number % 2}", at=NOON_MS + number * MINUTE_MS))
    assert [name for name, _ in views.hottest(2)] == ["d5", "d4"]
    assert [(owner, sums.documents) for owner, sums in views.owners(1)] == [("o1", 3)]
    assert [start for start, _ in views.windows(MINUTE_MS, 2)] == [NOON_MS + 5 * MINUTE_MS, NOON_MS + 4 * MINUTE_MS]
