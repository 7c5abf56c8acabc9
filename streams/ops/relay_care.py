"""The care for the connector: what of it has failed is restarted, by one process at a time, soon and then ever later.

Kafka Connect leaves a failed task as it is. Runs beside `streams api`. Whether a restart can mend it, the doctor's
judgement says: it cannot with a lost slot or a row that the broker refuses, nor while a server is away; then the log
has the command that can. Calls Connect; once it has failed, also Postgres and Kafka.
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event

import streams.ops
from streams.cdc import connector
from streams.cdc.connect import Connect, ConnectorState
from streams.config import Settings
from streams.core.restarts import Restarts
from streams.database import queries
from streams.ops.diagnosis import SETUP, is_polled, mend
from streams.ops.doctor import relay_facts
from streams.ops.duty import Duty, beside, perform
from streams.ops.facts import Facts

log = logging.getLogger(__name__)

CARE_SECONDS = 5.0
LOOK_SECONDS = 15.0  # between two judgements, which read the newest part of the log
ANSWER_SECONDS_MAX = 3.0

sql = queries(Path(streams.ops.__file__).parent / "sql" / "probes.sql")


def caring(config: Settings) -> AbstractContextManager[None]:
    """Care in a thread while the block runs."""
    return beside("relay care", lambda ended: care(config, ended))


def care(config: Settings, ended: Event) -> None:
    """Care until told to end; wait while another process does."""
    restarts = Restarts()  # not forgotten when a server was away
    perform(lambda: Carer(config, restarts), CARE_SECONDS, ended, "nobody looks whether the connector has failed")


class Carer(Duty):
    """Looks and restarts."""

    LOCK = 0x63617265
    TABLE = "app.outbox"

    def __init__(self, config: Settings, restarts: Restarts) -> None:
        super().__init__(config, "relay-care")
        self._restarts = restarts
        self._said = ""
        self._look_at = 0.0

    def open(self) -> None:
        """Make the client, which connects when it is asked."""
        self._connect = self._resources.enter_context(Connect(self._config, ANSWER_SECONDS_MAX))

    def round(self) -> None:
        """Look at the connector, and restart what has failed if it is time and of use."""
        self.is_chosen()  # raises if the session is gone, and the lock with it
        state, now = self._connect.state(connector.NAME), time.monotonic()
        if state is None or not state.failed:
            self._restarts.runs(now)
        elif self._restarts.is_due(now) and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._restart(state)

    def _restart(self, state: ConnectorState) -> None:
        if reason := _why_not(relay_facts(self._config)):
            if reason != self._said:
                log.error("%s failed (%s), and is not restarted: %s", connector.NAME, state.reason or state, reason)
            self._said = reason
            return
        self._connect.restart(connector.NAME)
        self._restarts.restarted()
        self._said = ""
        log.warning(
            "%s failed (%s), and was restarted; should it fail again, the next restart comes after %.0f s",
            connector.NAME,
            state.reason or state,
            self._restarts.wait_seconds,
        )


def _why_not(facts: Facts) -> str:
    """Why a restart would mend nothing, and what would; empty if it may."""
    if is_polled(facts):
        return "the polling relay runs"
    command = mend(facts)
    return "" if command == SETUP else f"a restart would not mend it, but `{command}` would"
