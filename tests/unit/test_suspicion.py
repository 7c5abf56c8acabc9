"""Which records are suspect of having killed their worker."""

from __future__ import annotations

import pytest

from streams.core.offsets import Position
from streams.core.suspicion import Trace, inherit


def trace(received_to: int | None = None, died_from: int | None = None, died_to: int | None = None) -> Trace:
    return Trace(*(None if one is None else Position(one) for one in (received_to, died_from, died_to)))


@pytest.mark.parametrize(
    ("left", "committed", "leaves", "suspect_to"),
    [
        pytest.param(trace(), 7, trace(), 0, id="nobody was here"),
        pytest.param(trace(7), 7, trace(), 0, id="all that was received is committed"),
        pytest.param(trace(9), 4, trace(None, 4, 9), 0, id="a first death"),
        pytest.param(trace(12, 4, 9), 5, trace(None, 5, 12), 12, id="a second one, at the same records"),
        pytest.param(trace(12, 4, 9), 4, trace(None, 4, 12), 12, id="at the very same"),
        pytest.param(trace(30, 4, 9), 9, trace(None, 9, 30), 0, id="the second one is past them"),
        pytest.param(trace(None, 4, 9), 5, trace(None, 4, 9), 0, id="one let go in between: the first is remembered"),
        pytest.param(trace(None, 4, 9), 9, trace(), 0, id="and forgotten once they are committed"),
        pytest.param(trace(3, 5, 9), 1, trace(None, 1, 3), 0, id="moved back by hand, before them"),
        pytest.param(trace(9, 4, 9), 0, trace(None, 0, 9), 9, id="moved back by hand, over them"),
    ],
)
def test_suspects(left: Trace, committed: int, leaves: Trace, suspect_to: int) -> None:
    assert inherit(left, Position(committed)) == (leaves, suspect_to)
