"""What the doctor knows of a stack: plain values, each of them had from a server or `Down`.

Made by `doctor`, read by `diagnosis`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from streams.cdc.connect import ConnectorState
from streams.cdc.slot import SlotState
from streams.kafka.topics_admin import TopicState
from streams.ops.unpublished import OutboxRow
from streams.topics import Topic


@dataclass(frozen=True, slots=True)
class Down:
    """A fact that could not be had, why, and the command that brings it back."""

    reason: str
    command: str


@dataclass(frozen=True, slots=True)
class Database:
    """The publication, the slot, and the topics that the outbox may name."""

    slot: SlotState
    outbox_topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics as they must be, and as they are."""

    wanted: Sequence[Topic]
    have: Mapping[str, TopicState]


@dataclass(frozen=True, slots=True)
class Worker:
    """Kafka Connect: its plugins, our connector, and the keys of its configuration that are not as they must be."""

    plugins: frozenset[str]
    state: ConnectorState | None
    differs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Gate:
    """One subject of the registry: why it would refuse our schema, and whether it refuses what it must."""

    refusals: Sequence[str]
    guarded: bool


@dataclass(frozen=True, slots=True)
class Canary:
    """`seconds` from commit to consumer, None if it did not come in time; whether the slot moved meanwhile."""

    seconds: float | None
    slot_moved: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the doctor asked for."""

    now: datetime  # UTC without zone, as the outbox has it
    start: str  # the command that starts the servers
    database: Database | Down
    topics: Topics | Down
    worker: Worker | Down
    registry: Mapping[str, Gate] | Down
    unpublished: Sequence[OutboxRow] | Down
    canary: Canary | Down
