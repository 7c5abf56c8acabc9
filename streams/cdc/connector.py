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
# A Connect worker that was killed with the broker takes a session (6 s) and a rebalance to come back.
RUNNING_SECONDS_MAX = 60.0
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


def wait_until_running(connect: Connect, *, patient: bool = False, seconds_max: float = RUNNING_SECONDS_MAX) -> None:
    """Return once the connector and its task run. Raises RelayError: it failed (with the reason), or took too long.

    With `patient`, after a restart, the failure that stood there before is not taken for a new one.
    """
    believed_from = time.monotonic() + (_STALE_SECONDS if patient else 0)
    state = _wait(
        connect, seconds_max, until=lambda now: now.running or (now.failed and time.monotonic() > believed_from)
    )
    if state is not None and state.failed:
        raise RelayError(f"the connector {NAME} failed: {state.reason or state}")
    if state is None or not state.running:
        raise RelayError(f"the connector {NAME} did not run within {seconds_max:.0f} s: {state or 'it is not there'}")


def wait_until_stopped(connect: Connect, seconds_max: float = RUNNING_SECONDS_MAX) -> None:
    """Return once no task is left. Raises RelayError."""
    state = _wait(connect, seconds_max, until=lambda now: now.stopped)
    if state is None or not state.stopped:
        raise RelayError(f"the connector {NAME} did not stop within {seconds_max:.0f} s: {state or 'it is not there'}")


def _wait(connect: Connect, seconds_max: float, until: Callable[[ConnectorState], bool]) -> ConnectorState | None:
    """The first state that will do, or the last one seen when the time is up."""
    deadline = time.monotonic() + seconds_max
    while True:
        state = connect.state(NAME)
        if (state is not None and until(state)) or time.monotonic() > deadline:
            return state
        time.sleep(_PAUSE_SECONDS)
