"""What a worker does now, and what holds it up, as plain values. Pure.

Made by streams/runtime/observing.py, handed on by streams/ops/reports.py, shown by `streams run` and its metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from streams.runtime.ports import SinkBusy

# What became of records. These end a record:
ENDS = ("done", "dead", "expired", "superseded", "skipped")
# and these happen on its way: an attempt failed and another will follow; the record was moved to readers.parked.
OUTCOMES = (*ENDS, "failed", "parked")

PauseReason = Literal["setup", "unassigned", "sink", "server", "outage", "full"]
PAUSE_REASONS: tuple[PauseReason, ...] = ("setup", "unassigned", "sink", "server", "outage", "full")

_TEXT_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Pause:
    """Why nothing more is taken in."""

    reason: PauseReason
    says: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """The oldest record that has not ended: what the commit of its partition, and a drain, wait for."""

    partition: int
    offset: int
    key: str  # cut to size
    version: int | None  # None: not decoded yet
    seconds: float  # since it was received
    why: str


@dataclass(frozen=True, slots=True)
class Status:
    """One worker of one reader, at one moment."""

    reader: str
    worker: str
    records: Mapping[str, int]  # since its start, by outcome; each counted when it was written
    in_flight_records: int
    in_flight_bytes: int
    running_handlers: int
    waiting_lanes: int  # heads of parked lanes in memory, until the time of their next attempt
    partitions: tuple[int, ...]
    paused: Pause | None = None
    stopping: bool = False
    blocked: Blocked | None = None


def trouble(error: Exception) -> Pause:
    """What a server that is needed answered, or that it does not."""
    if isinstance(error, SinkBusy):
        return Pause("sink", cut(f"the sink does not answer: {error}"))
    return Pause("server", cut(str(error)))


def ended(records: Mapping[str, int]) -> int:
    """How many records came to their end."""
    return sum(records.get(outcome, 0) for outcome in ENDS)


def cut(text: str) -> str:
    """A text from outside, short enough for a line of a table."""
    return text if len(text) <= _TEXT_CHARACTERS_MAX else text[: _TEXT_CHARACTERS_MAX - 1] + "…"
