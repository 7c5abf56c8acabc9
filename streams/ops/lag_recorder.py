"""The recorder: samples the lag of the readers into Postgres, one recorder at a time whatever the process.

Runs inside `streams api`, and as `streams lag --record`; `streams lag` and whoever draws a chart read what it wrote
(`streams.ops.lag_history`). A server that is away for a while costs samples, nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from threading import Event

from streams.config import Settings
from streams.core.lag import GroupLag
from streams.ops import lag_history
from streams.ops.duty import Duty, beside, perform
from streams.ops.lag import LagSampler
from streams.ops.lag_facts import RELAY
from streams.ops.lag_postgres import gather
from streams.ops.lag_series import LagSeries
from streams.ops.relay_lag import RelayLag
from streams.topics import ANALYTICS

SAMPLE_SECONDS = 5.0
THIN_SECONDS = 60.0


def recording(config: Settings, groups: Sequence[str] = ()) -> AbstractContextManager[None]:
    """Record in a thread while the block runs."""
    return beside("lag", lambda ended: record(config, ended, groups))


def record(config: Settings, ended: Event, groups: Sequence[str] = ()) -> None:
    """Record these groups, or all readers of ours and the relay, until told to end; wait while another one records."""
    perform(lambda: Recorder(config, groups), SAMPLE_SECONDS, ended, "lag is not recorded")


class Recorder(Duty):
    """Samples and thins."""

    LOCK = 0x6C616773
    TABLE = "ops.lag_samples"

    def __init__(self, config: Settings, groups: Sequence[str] = ()) -> None:
        super().__init__(config, "lag", statement_timeout="5s")
        self._groups = groups

    def open(self) -> None:
        """Make the clients, and go on with the series where the last recorder ended. Raises psycopg.Error."""
        self._sampler = self._resources.enter_context(LagSampler(self._config))
        self._relay = self._resources.enter_context(RelayLag(self._config))
        self._series = self._resources.enter_context(LagSeries(self._config))
        names = [*self._wanted(), RELAY]
        self._series.go_on_from(lag_history.last(self._connection, names), lag_history.capacities(self._connection))
        self._thin_at = 0.0

    def round(self) -> None:
        """A sample, and now and then the removal of old ones. Raises Unavailable and psycopg.Error."""
        self.sample()
        if time.monotonic() >= self._thin_at:
            lag_history.thin(self._connection)
            self._thin_at = time.monotonic() + THIN_SECONDS

    def sample(self) -> None:
        """Take one sample of every group, and write it. Raises Unavailable and psycopg.Error."""
        at = time.time()
        lags = self.lags()
        facts = gather(self._connection, [RELAY], self._relay)
        if facts.relay:
            lags.append(facts.relay.lag)
        self._series.add(lags, at)
        with self._connection.transaction():
            for lag in lags:
                seen = self._series.outlook(lag, facts.parked.get(lag.group))
                lag_history.write(self._connection, seen, self._series.samples(lag.group)[-1])

    def lags(self) -> list[GroupLag]:
        """The lag of the groups that are there. Raises Unavailable and psycopg.Error."""
        names = self._sampler.existing(self._wanted())
        return self._sampler.sample(names) if names else []

    def _wanted(self) -> list[str]:
        """The groups that were asked for, or the readers that are registered now, and the analytics."""
        return list(self._groups) or [*lag_history.readers(self._connection), ANALYTICS]
