"""How long the connector's start is waited for, and what is done when it does not come."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import pytest

from streams.cdc import connector
from streams.cdc.connect import Connect, ConnectorState
from streams.errors import RelayError

RUNS = ConnectorState("RUNNING", "RUNNING")
FAILED = ConnectorState("RUNNING", "FAILED", "the slot is taken")
STUCK = ConnectorState("UNASSIGNED", "RUNNING")
UNDECIDED = ConnectorState("UNASSIGNED")
STOPPED = ConnectorState("STOPPED")


class World:
    """A Connect of which a connector is in one state after the other, one a restart; and the time."""

    def __init__(self, states: Iterable[ConnectorState], monkeypatch: pytest.MonkeyPatch) -> None:
        self.states = list(states)
        self.handed_out_at = math.inf  # from when on it is in the next state
        self.only_failed: list[bool] = []
        self.unblocked = 0
        self.now = 0.0
        monkeypatch.setattr(connector.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(connector.time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def state(self, _name: str) -> ConnectorState:
        return self.states[0 if self.now < self.handed_out_at else 1]

    def restart(self, _name: str, *, only_failed: bool) -> None:
        self.only_failed.append(only_failed)
        if len(self.states) > 1:
            self.states.pop(0)

    def waits(self) -> int:
        return connector.wait_until_running(cast(Connect, self), self._unblock)

    def _unblock(self) -> None:
        self.unblocked += 1


@pytest.mark.parametrize(
    ("states", "only_failed", "seconds"),
    [
        ([RUNS], [], 0.0),
        ([FAILED, RUNS], [True], 0.0),
        ([STUCK, RUNS], [False], connector.STUCK_SECONDS),
        ([STUCK, FAILED, RUNS], [False, True], connector.STUCK_SECONDS),
    ],
)
def test_what_has_failed_is_restarted_at_once_and_what_is_stuck_after_a_while(
    states: list[ConnectorState], only_failed: list[bool], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(states, monkeypatch)
    assert world.waits() == len(only_failed)
    assert world.only_failed == only_failed
    assert world.unblocked == only_failed.count(False)
    assert seconds <= world.now < seconds + 4  # Connect may tell the old state for a while


@pytest.mark.parametrize(
    ("state", "says"), [(STUCK, "did not run within 90 s: connector UNASSIGNED"), (FAILED, "failed: the slot is taken")]
)
def test_in_the_end_it_is_given_up_with_the_reason(
    state: ConnectorState, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World([state], monkeypatch)
    with pytest.raises(RelayError, match=says):
        world.waits()
    assert world.now <= connector.RUNNING_SECONDS_MAX + 1


@pytest.mark.parametrize(
    ("before", "handed_out_at", "then", "seconds"),
    [
        (STOPPED, math.inf, STOPPED, 0.0),
        (STUCK, math.inf, STUCK, 0.0),
        (UNDECIDED, 2.0, STOPPED, 2.0),
        (ConnectorState("UNASSIGNED", "UNASSIGNED"), 1.0, RUNS, 1.0),
        (UNDECIDED, math.inf, UNDECIDED, 5.0),
    ],
)
def test_what_a_connector_is_to_do_is_known_once_a_worker_has_it(
    before: ConnectorState, handed_out_at: float, then: ConnectorState, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World([before, then], monkeypatch)
    world.handed_out_at = handed_out_at
    assert connector.decided_state(cast(Connect, world)) == then
    assert world.now == pytest.approx(seconds, abs=0.1)
