"""The one connector: its name, its configuration from connectors/, and how to wait until it runs.

Called by setup, the doctor and the outbox's repair; calls `connect`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path

from streams.cdc.connect import Connect, ConnectorState
from streams.errors import RelayError

NAME = "documents-outbox"
OFFSETS_TOPIC = "connect-offsets"  # of both workers that are shipped; no task starts before it has read all of it
# A Connect worker that was killed with the broker takes a session (6 s) and a rebalance to come back.
RUNNING_SECONDS_MAX = 90.0
# Seen after the broker was frozen or killed: a connector that stays UNASSIGNED or RESTARTING, and nobody starts it.
STUCK_SECONDS = 30.0
_RESTARTS_MAX = 3
_HANDED_OUT_SECONDS_MAX = 5.0  # a worker that finds its broker again hands its connectors out within one
_STALE_SECONDS = 3.0  # for so long may Connect still tell the state from before a restart
_PAUSE_SECONDS = 0.05


@cache
def _text() -> str:
    installed = Path(str(files("streams"))) / "_files" / "connectors"
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "connectors"
    return (folder / f"{NAME}.json").read_text("utf-8")


def wanted() -> dict[str, str]:
    """The configuration as it must be; the worker itself resolves the ${env:…} in it."""
    return dict(json.loads(_text()))


def wait_until_running(
    connect: Connect, unblock: Callable[[], object], seconds_max: float = RUNNING_SECONDS_MAX
) -> int:
    """Return once the connector and its task run; what has failed, or is stuck, is restarted. Gives how often it was.

    A start can fail for a reason that passes: the worker was slow to read its own topics, the slot still taken. One
    that is stuck waits for what `unblock` ends: an open transaction in OFFSETS_TOPIC. Raises RelayError: it fails each
    time (with the reason), or took too long; and what `unblock` raises.
    """
    deadline, restarts = time.monotonic() + seconds_max, 0
    while True:
        left = deadline - time.monotonic()
        state = _wait(
            connect, min(left, STUCK_SECONDS), until=lambda now: now is not None and (now.running or now.failed)
        )
        if state is None or state.running or left < STUCK_SECONDS or restarts == _RESTARTS_MAX:
            break
        if not state.failed:
            unblock()
        connect.restart(NAME, only_failed=state.failed)
        restarts += 1
        _wait(connect, _STALE_SECONDS, until=lambda now: now is not None and not now.failed)
    if state is not None and state.failed:
        raise RelayError(f"the connector {NAME} failed: {state.reason or state}")
    if state is None or not state.running:
        raise RelayError(f"the connector {NAME} did not run within {seconds_max:.0f} s: {state or 'it is not there'}")
    return restarts


def wait_until_stopped(connect: Connect, seconds_max: float = RUNNING_SECONDS_MAX) -> None:
    """Return once no task is left. Raises RelayError."""
    state = _wait(connect, seconds_max, until=lambda now: now is not None and now.stopped)
    if state is None or not state.stopped:
        raise RelayError(f"the connector {NAME} did not stop within {seconds_max:.0f} s: {state or 'it is not there'}")


def decided_state(connect: Connect) -> ConnectorState | None:
    """Its state once a worker has it, or the last one seen; None if there is no such connector."""
    return _wait(connect, _HANDED_OUT_SECONDS_MAX, until=lambda now: now is None or not now.undecided)


def _wait(
    connect: Connect, seconds_max: float, until: Callable[[ConnectorState | None], bool]
) -> ConnectorState | None:
    """The first state that will do, or the last one seen when the time is up; None: there is no such connector."""
    deadline = time.monotonic() + seconds_max
    while not until(state := connect.state(NAME)) and time.monotonic() <= deadline:
        time.sleep(_PAUSE_SECONDS)
    return state
