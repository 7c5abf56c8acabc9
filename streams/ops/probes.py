"""The prober: asks the servers how they are, and sends a canary, again and again; one process at a time.

Runs beside `streams api`. What it finds goes to `ops.probes`, from where `streams.ops.stack_metrics` has it, so that a
scrape of any process costs no server but Postgres anything. A round that cannot be written leaves the last one to grow
old.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from threading import Event
from typing import NamedTuple

import streams.ops
from streams.cdc import connector
from streams.cdc.connect import Connect, ConnectorState
from streams.config import Settings
from streams.database import Connection, queries
from streams.errors import SchemaError, StreamsError, Unavailable
from streams.kafka.probe import ask_broker
from streams.kafka.published import PublishedEvents
from streams.kafka.registry import Registry
from streams.ops import canary
from streams.ops.duty import Duty, beside, perform

PROBE_SECONDS = 15.0
STALE_SECONDS = 60.0  # four rounds: what is older says nothing of now
ANSWER_SECONDS_MAX = 3.0
CANARY_SECONDS_MAX = 8.0  # with an answer it makes less than a round
SERVERS = ("kafka", "connect", "registry")
UP, DOWN, MISSING = "up", "down", "MISSING"

sql = queries(Path(streams.ops.__file__).parent / "sql" / "probes.sql")


class Probe(NamedTuple):
    """One row: how long ago it was taken, in seconds; a state, None if unknown; the canary's seconds."""

    age_seconds: float
    state: str | None
    seconds: float | None

    @property
    def is_fresh(self) -> bool:
        return self.age_seconds <= STALE_SECONDS


def read(connection: Connection) -> dict[str, Probe]:
    """The probes by name, as they were taken last."""
    return {name: Probe(*row) for name, *row in sql.probes(connection)}


def probing(config: Settings) -> AbstractContextManager[None]:
    """Probe in a thread while the block runs."""
    return beside("probes", lambda ended: probe(config, ended))


def probe(config: Settings, ended: Event) -> None:
    """Probe until told to end; wait while another process does."""
    perform(lambda: Prober(config), PROBE_SECONDS, ended, "the servers are not probed")


class Prober(Duty):
    """Asks and sends."""

    LOCK = 0x70726F62
    TABLE = "ops.probes"

    def __init__(self, config: Settings) -> None:
        super().__init__(config, "probes", **canary.SESSION_OPTIONS)

    def open(self) -> None:
        """Make the clients, which connect when they are asked."""
        self._connect = self._resources.enter_context(Connect(self._config, ANSWER_SECONDS_MAX))
        self._registry = self._resources.enter_context(closing(Registry(self._config, ANSWER_SECONDS_MAX)))
        self._published = self._resources.enter_context(PublishedEvents(self._config, ANSWER_SECONDS_MAX))
        self._threads = self._resources.enter_context(ThreadPoolExecutor(len(SERVERS), "probes"))

    def round(self) -> None:
        """Ask every server side by side, then send the canary."""
        states = self.states()
        sql.write_states(self._connection, names=list(states), states=list(states.values()))
        if states["kafka"] == UP:
            self._fly()

    def states(self) -> dict[str, str | None]:
        """The servers, and the relay's two parts, which are unknown while Connect does not answer."""
        asks: dict[str, Callable[[], object]] = {"kafka": self._broker, "registry": self._any_schema}
        answers = {name: self._threads.submit(_state_of, ask) for name, ask in asks.items()}
        relay = self._threads.submit(self._relay)
        found: dict[str, str | None] = {name: answer.result() for name, answer in answers.items()}
        state = relay.result()
        return found | {
            "connect": UP if state else DOWN,
            "connector": state.connector if state else None,
            "task": (state.task or MISSING) if state else None,
        }

    def _broker(self) -> None:
        ask_broker(self._config.kafka_client(), ANSWER_SECONDS_MAX)

    def _any_schema(self) -> None:
        with suppress(SchemaError):  # that it has none of this number is an answer
            self._registry.schema(1)

    def _relay(self) -> ConnectorState | None:
        """None while Connect does not answer."""
        with suppress(StreamsError):
            return self._connect.state(connector.NAME) or ConnectorState(MISSING)
        return None

    def _fly(self) -> None:
        sent_at = time.time()
        with suppress(Unavailable):  # a broker that has just gone
            seconds = canary.fly(self._connection, self._published, CANARY_SECONDS_MAX)
            sql.write_canary(self._connection, seconds=seconds, sent_at=sent_at)


def _state_of(ask: Callable[[], object]) -> str:
    try:
        ask()
    except StreamsError:
        return DOWN
    return UP
