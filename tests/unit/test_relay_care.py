"""Which failure of the connector a restart is tried for, and what the log says of the others."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from streams.cdc.connect import ConnectorState
from streams.config import Settings
from streams.core.restarts import Restarts
from streams.ops import duty, relay_care
from streams.ops.facts import Down, Facts
from streams.topics import MESSAGE_BYTES_MAX
from tests.unit.test_doctor import FAILED, HEALTHY, RUNNING, row, slot_gone, with_slot, with_worker

FAILURE = replace(HEALTHY, **with_worker(FAILED), registry=Down("not asked", ""), canary=Down("not asked", ""))

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing else is wrong": ({}, ""),
    "a poison row": ({"unpublished": [row(7, bytes=MESSAGE_BYTES_MAX)]}, "streams outbox skip 7"),
    "the slot is gone": (slot_gone(), "streams outbox repair"),
    "Postgres is away": ({"database": Down("no answer", "streams up")}, "streams up"),
    "the other relay runs": (with_slot(polled=True), "the polling relay runs"),
}


class Worker:
    """Connect, whose connector has the states it is given; a restart helps if it is to."""

    def __init__(self, state: ConnectorState) -> None:
        self.now = state
        self.restarts = 0

    def state(self, _name: str) -> ConnectorState:
        return self.now

    def restart(self, _name: str) -> None:
        self.restarts += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def carer(monkeypatch: pytest.MonkeyPatch, worker: Worker, facts: Facts) -> relay_care.Carer:
    """One that has the lock and asks no server."""
    monkeypatch.setattr(relay_care, "relay_facts", lambda _: facts)
    monkeypatch.setattr(relay_care.Carer, "is_chosen", lambda _: True)
    monkeypatch.setattr(duty, "connect", lambda *_, **__: pytest.MonkeyPatch.context())
    made = relay_care.Carer(Settings(), Restarts())
    made._connect = worker  # type: ignore[assignment]
    return made


def rounds(made: relay_care.Carer, clock: list[float], seconds: float) -> None:
    end = clock[0] + seconds
    while clock[0] < end:
        made.round()
        clock[0] += relay_care.CARE_SECONDS


@pytest.mark.parametrize("case", CASES)
def test_a_restart_is_tried_where_it_can_help_and_else_the_reason_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: list[float], case: str
) -> None:
    changes, reason = CASES[case]
    worker = Worker(FAILED)
    with caplog.at_level(logging.INFO):
        rounds(carer(monkeypatch, worker, replace(FAILURE, **changes)), clock, 60)
    assert all("Root: why" in text for text in caplog.messages)
    if reason:
        assert worker.restarts == 0
        (said,) = caplog.messages
        assert reason in said
    else:
        assert worker.restarts == len(caplog.messages) == 3  # after 5, 10 and 20 s, and the rounds in between


def test_what_runs_is_left_alone(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    worker = Worker(RUNNING)
    rounds(carer(monkeypatch, worker, HEALTHY), clock, 1_000)
    assert worker.restarts == 0
