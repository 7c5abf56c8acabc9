"""What is done again and again by one process: what it says while a server is away."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Event

import pytest

from streams.errors import Unavailable
from streams.ops.duty import Duty, perform


class Fake(Duty):
    """Each round takes the next of `course`: an error, or nothing; it ends when there are no more."""

    def __init__(self, course: Iterator[str], ended: Event) -> None:
        self._course, self._ended = course, ended

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def is_chosen(self) -> bool:
        return True

    def open(self) -> None:
        pass

    def round(self) -> None:
        said = next(self._course, None)
        if said is None:
            self._ended.set()
        if said:
            raise Unavailable(said)


def test_an_absence_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ended = Event()
    course = iter(["", "Postgres is away", "Postgres is away", "Kafka is away", "", "", "Kafka is away"])
    perform(lambda: Fake(course, ended), 0.001, ended, "nothing is recorded")
    assert caplog.messages == [
        "nothing is recorded: Postgres is away",
        "nothing is recorded: Kafka is away",
        "nothing is recorded: that is over",
        "nothing is recorded: Kafka is away",
        "nothing is recorded: that is over",
    ]
