"""Prometheus metrics of the stack: lag, the relay, the servers, and what is left to be done; by any `streams api`.

Called by the API's /metrics. All of it is asked of Postgres, where the recorder and the prober keep what they found: a
scrape speaks to no other server. What is unknown, or was found too long ago, is absent, and never 0. docs/metrics.md
says what each means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import streams.ops
from streams.cdc import slot
from streams.cdc.slot import SlotState
from streams.core.flow import Shape
from streams.core.health import Health
from streams.database import Connection, queries
from streams.ops import lag_history, probes
from streams.ops.lag_facts import RELAY
from streams.ops.lag_postgres import STALE_SECONDS
from streams.ops.metrics import OpenWork, open_work, open_work_metrics
from streams.ops.probes import SERVERS, UP, Probe
from streams.topics import ANALYTICS

PARTS = ("connector", "task")
STATES = ("RUNNING", "FAILED", "PAUSED", "STOPPED", "UNASSIGNED", "RESTARTING", probes.MISSING)

_sql = queries(Path(streams.ops.__file__).parent / "sql" / "stack_metrics.sql")


class Sample(NamedTuple):
    """The newest sample of a group; None for what was unknown. Columns as in ops.lag_samples."""

    group: str
    taken_seconds_ago: float
    members: int | None
    lag_records: int | None
    backlog_records: float | None
    age_seconds: float | None
    rate_in_per_second: float | None
    rate_out_per_second: float | None
    drain_seconds: float | None
    shape: str | None
    health: str | None

    @property
    def is_fresh(self) -> bool:
        return self.taken_seconds_ago <= STALE_SECONDS


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a scrape asks for."""

    samples: Sequence[Sample]
    probes: Mapping[str, Probe]
    slot: SlotState
    open_work: Mapping[str, OpenWork]


# metric → what it says, and the column of the sample that it is
_LAG = {
    "members": ("Members of the group.", "members"),
    "records": ("Offsets from what is committed to the log's end.", "lag_records"),
    "backlog_records": ("Records that wait, without markers and gaps.", "backlog_records"),
    "age_seconds": ("How long the oldest has waited.", "age_seconds"),
    "rate_in_per_second": ("Records that come.", "rate_in_per_second"),
    "rate_out_per_second": ("Records that are done.", "rate_out_per_second"),
    "drain_seconds": ("Until nothing waits.", "drain_seconds"),
}


def look(connection: Connection) -> Facts:
    """What Postgres knows now. Raises psycopg.Error."""
    return Facts(
        [Sample(*row) for row in _sql.newest_samples(connection, others=[RELAY, ANALYTICS])],
        probes.read(connection),
        slot.read_state(connection),
        open_work(connection, lag_history.readers(connection)),
    )


def exposition(facts: Facts | None) -> bytes:
    """The page that Prometheus reads; without facts, that Postgres gave none."""
    registry = CollectorRegistry()
    registry.register(_Page(facts))
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, facts: Facts | None) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        """One family after the other."""
        yield _servers(self._facts)
        if self._facts is not None:
            yield from _lag(self._facts.samples)
            yield from _relay(self._facts.slot, self._facts.probes)
            yield from open_work_metrics(self._facts.open_work)


def _servers(facts: Facts | None) -> Metric:
    """Postgres is asked by the scrape itself."""
    family = GaugeMetricFamily("streams_server_up", "Whether the server answers.", labels=["server"])
    family.add_metric(["postgres"], facts is not None)
    for server in SERVERS:
        if server == "connect" and facts and facts.slot.polled:
            continue  # it is not needed
        if (state := _state(facts.probes if facts else {}, server)) is not None:
            family.add_metric([server], state == UP)
    return family


def _lag(samples: Sequence[Sample]) -> Iterator[Metric]:
    ages = {sample.group: sample.taken_seconds_ago for sample in samples}
    yield _by_group("sample_age_seconds", "How old the newest sample is.", ages)
    fresh = [sample for sample in samples if sample.is_fresh]
    for name, (says, column) in _LAG.items():
        yield _by_group(name, says, {sample.group: getattr(sample, column) for sample in fresh})
    yield _states("streams_lag_shape", ("group", "shape"), {each.group: each.shape for each in fresh}, Shape)
    yield _states("streams_lag_health", ("group", "health"), {each.group: each.health for each in fresh}, Health)


def _by_group(name: str, says: str, values: Mapping[str, float | None]) -> Metric:
    family = GaugeMetricFamily(f"streams_lag_{name}", says, labels=["group"])
    for group, value in values.items():
        if value is not None:
            family.add_metric([group], value)
    return family


def _relay(state: SlotState, found: Mapping[str, Probe]) -> Iterator[Metric]:
    """What Debezium alone needs is absent while the polling relay runs."""
    if not state.polled:
        usable = GaugeMetricFamily("streams_relay_usable", "Whether it can be read from.", labels=["part"])
        usable.add_metric(["publication"], bool(state.publication_ok))
        usable.add_metric(["slot"], state.usable_slot)
        yield usable
        yield _states("streams_relay_state", ("part", "state"), {part: _state(found, part) for part in PARTS}, STATES)
    values: dict[str, tuple[str, float | None]] = {
        "relay_polled": ("Whether the polling relay runs, and not Debezium.", state.polled),
        "relay_slot_active": ("Whether somebody reads the slot.", state.active),
        "relay_slot_unconfirmed_bytes": ("Of the write-ahead log, not yet confirmed.", state.lag_bytes),
        "relay_slot_held_bytes": ("Of the write-ahead log, held back for the slot.", state.held_bytes),
        "relay_slot_margin_bytes": ("That may be written before the slot is lost.", state.safe_bytes),
        "relay_canary_seconds": ("From commit to consumer.", _canary_seconds(found)),
        "probe_age_seconds": ("How old the newest probes are.", _age_seconds(found)),
    }
    for name, (says, value) in values.items():
        if value is not None:
            yield GaugeMetricFamily(f"streams_{name}", says, value=value)


def _states(name: str, labels: tuple[str, str], found: Mapping[str, str | None], known: Iterable[str]) -> Metric:
    """1 for the state that it is in, 0 for every other; nothing for who is in none that is known."""
    family = GaugeMetricFamily(name, "1 for what it is.", labels=list(labels))
    for who, state in found.items():
        for each in dict.fromkeys([*known, state]) if state is not None else ():
            family.add_metric([who, str(each)], each == state)
    return family


def _state(found: Mapping[str, Probe], name: str) -> str | None:
    return found[name].state if name in found and found[name].is_fresh else None


def _canary_seconds(found: Mapping[str, Probe]) -> float | None:
    return found["canary"].seconds if "canary" in found and found["canary"].is_fresh else None


def _age_seconds(found: Mapping[str, Probe]) -> float | None:
    return min((probe.age_seconds for probe in found.values()), default=None)
