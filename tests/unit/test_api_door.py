"""The outbox's bound at the door: when it is shut, what is said, and when to come again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streams.api import door as door_module
from streams.api.door import RETRY_AFTER_SECONDS_MAX, VERDICT_SECONDS_MAX, Backlog, Door
from streams.cdc.slot import SlotState
from streams.errors import Overloaded, Unavailable
from tests.api_double import DatabaseDouble, client

MB = 1_000_000
DOCUMENT = {"owner_id": "ada", "title": "Notes", "body": "text"}


def backlog(*seen: tuple[float, int]) -> Backlog:
    """With a bound of 100 MB, having seen (seconds, MB)."""
    made = Backlog(100 * MB)
    for seconds, megabytes in seen:
        made.note(megabytes * MB, seconds)
    return made


@pytest.mark.parametrize("seen", [(), ((0.0, 0),), ((0.0, 100),), ((0.0, 900), (1.0, 90))])
def test_it_is_open_up_to_the_bound(seen: tuple[tuple[float, int], ...]) -> None:
    backlog(*seen).require(1.0)


def test_over_the_bound_it_says_how_much_waits() -> None:
    with pytest.raises(
        Overloaded, match=r"^250\.0 MB of changes wait for the relay, more than 100\.0 MB: nothing is saved"
    ):
        backlog((0.0, 250)).require(1.0)


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        (((0.0, 200),), RETRY_AFTER_SECONDS_MAX),  # nothing is known of a drain
        (((0.0, 200), (1.0, 200)), RETRY_AFTER_SECONDS_MAX),
        (((0.0, 200), (1.0, 300)), RETRY_AFTER_SECONDS_MAX),
        (((0.0, 300), (5.0, 200)), 5),  # 20 MB a second, 100 MB over
        (((0.0, 300), (5.0, 299)), RETRY_AFTER_SECONDS_MAX),
        (((0.0, 300), (5.0, 101)), 1),
        (((0.0, 9000), (20.0, 300), (25.0, 200)), 5),  # as it went lately
    ],
)
def test_come_again_when_it_will_have_drained(seen: tuple[tuple[float, int], ...], seconds: int) -> None:
    with pytest.raises(Overloaded) as refused:
        backlog(*seen).require(25.0)
    assert refused.value.retry_after_seconds == seconds


def test_an_old_verdict_shuts_nothing() -> None:
    shut = backlog((0.0, 200))
    with pytest.raises(Overloaded):
        shut.require(VERDICT_SECONDS_MAX)
    shut.require(VERDICT_SECONDS_MAX + 0.1)


class Slot:
    """A database that knows the slot's lag, or does not answer."""

    def __init__(self, *lags: int | None) -> None:
        self._lags = list(lags)

    async def run(self, _work: Any) -> SlotState:
        lag_bytes = self._lags.pop(0)
        if lag_bytes is None:
            raise Unavailable("Postgres cannot be used now")
        return SlotState(True, True, True, lag_bytes=lag_bytes)


def after(*lags: int | None) -> Door:
    """A door that has looked so often."""
    made = Door(100 * MB)
    with pytest.raises(IndexError):
        asyncio.run(made.watch(Slot(*lags)))  # type: ignore[arg-type]
    return made


def test_it_looks_again_and_again_also_when_postgres_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "ASK_SECONDS", 0.0)
    with pytest.raises(Overloaded):
        after(0, None, 200 * MB).require()
    after(200 * MB, None, 0).require()


def test_a_write_is_refused_with_the_time_when_to_come_again_and_a_read_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "ASK_SECONDS", 0.0)
    database = DatabaseDouble()
    shut = client(database, after(200 * MB))
    for answer in (
        shut.post("/documents", json=DOCUMENT),
        shut.put("/documents/a", json=DOCUMENT),
        shut.delete("/documents/a"),
    ):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, str(RETRY_AFTER_SECONDS_MAX))
        assert answer.json()["detail"].startswith("200.0 MB of changes wait for the relay")
    assert database.writes == []
    assert shut.get("/healthz").status_code == 200
