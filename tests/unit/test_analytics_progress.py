"""How far a partition is: behind what is acknowledged, never past a hole, never backwards."""

from __future__ import annotations

import pytest

from streams.analytics.progress import Progress


class Sending:
    """What was sent, acknowledged when the test says so."""

    def __init__(self, acknowledged: bool = False) -> None:
        self.acknowledged = acknowledged

    def done(self) -> bool:
        return self.acknowledged

    def result(self) -> object:
        return None


class Failed(Sending):
    def result(self) -> object:
        raise ValueError("the broker is gone")


def begun(position: int = 10) -> Progress:
    progress = Progress()
    progress.begin(position)
    return progress


def test_it_moves_behind_events_that_came_in_a_row_whatever_stands_between_them() -> None:
    progress = begun(10)
    progress.handled(12, before=9)  # 10 and 11 are markers
    progress.handled(15, before=12)
    assert progress.settle() == []
    assert progress.position == 16


def test_it_stops_at_what_is_not_acknowledged() -> None:
    progress, sent = begun(10), [Sending(), Sending(acknowledged=True)]
    progress.handled(10, before=9, sent=sent[0], obsolete=b"a")
    progress.handled(11, before=10, sent=sent[1], obsolete=b"b")
    progress.handled(12, before=11)
    assert progress.settle() == []
    assert (progress.position, progress.unsettled) == (10, 3)
    sent[0].acknowledged = True
    assert progress.settle() == [b"a", b"b"]
    assert (progress.position, progress.unsettled) == (13, 0)


@pytest.mark.parametrize("before", [11, None])
def test_nothing_passes_a_hole_until_it_is_read_again(before: int | None) -> None:
    progress = begun(10)
    progress.handled(10, before=9)
    progress.handled(12, before=before)
    progress.handled(13, before=12)
    progress.settle()
    assert progress.has_hole
    assert progress.position == 11
    progress.begin(11)
    assert not progress.has_hole
    for offset in (11, 12, 13):
        progress.handled(offset, before=offset - 1)
    progress.settle()
    assert progress.position == 14


def test_what_was_sent_before_it_began_again_must_arrive_first() -> None:
    """The same version comes again, and nothing is sent for it: it is on its way."""
    progress, sent = begun(10), Sending()
    progress.handled(10, before=9, sent=sent, obsolete=b"old")
    progress.begin(10)
    progress.handled(10, before=9)
    progress.settle()
    assert progress.position == 10
    sent.acknowledged = True
    assert progress.settle() == [b"old"]
    assert progress.position == 11


def test_an_event_that_comes_again_is_no_hole() -> None:
    progress = begun(10)
    for offset in (10, 11, 12):
        progress.handled(offset, before=offset - 1)
    progress.handled(11, before=None)
    progress.handled(13, before=12)
    progress.settle()
    assert not progress.has_hole
    assert progress.position == 14


def test_an_event_before_it_began_is_a_hole() -> None:
    progress = Progress()
    progress.handled(500, before=499)
    progress.settle()
    assert progress.has_hole
    assert progress.position is None


def test_it_never_goes_back() -> None:
    progress = Progress()
    progress.learn(30)
    progress.learn(20)
    assert progress.position == 30


def test_a_failure_to_send_is_raised() -> None:
    progress = begun(10)
    progress.handled(10, before=9, sent=Failed(acknowledged=True))
    with pytest.raises(ValueError, match="the broker is gone"):
        progress.settle()
    assert progress.position == 10
