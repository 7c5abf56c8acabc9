"""The relay from commit to consumer: `python -m bench.relay`. Exit code 1 if the goal is missed.

Our connector against the same one at Debezium's default poll.interval.ms of 500, by turns in one run, on the stack of
STREAMS_HOME (started if it does not run, and stopped again). In each turn the connector is stopped, events are written,
and it is resumed: the rate is that of draining them. Then single events, each after the one before has arrived:
the latency is from commit to consumer. Its topic and its rows are its own, and are removed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any
from uuid import uuid4

from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from streams.cdc import connector
from streams.cdc.connect import Connect
from streams.config import Settings, settings
from streams.database import connect
from streams.kafka.topics_admin import TopicsAdmin
from streams.stack import local
from streams.topics import Topic

TOPIC = "bench-relay"
OURS = int(connector.wanted()["poll.interval.ms"])
THEIRS = 500
TURNS = (OURS, THEIRS, THEIRS, OURS, OURS, THEIRS)  # by turns: what a machine does beside hits both
EVENT_BYTES = 1024
ROWS_A_TRANSACTION = 500
ARRIVAL_SECONDS_MAX = 120.0
P50_RATIO_GOAL = 10.0
RATE_RATIO_GOAL = 0.95  # two runs of the same connector differ by as much

INSERT = """
INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload)
SELECT gen_random_uuid(), %s, 'key-' || n %% 1000, 'bench', %s FROM generate_series(1, %s) AS n
"""


@dataclass
class Measured:
    """What one setting of the poll interval gave, over all its turns."""

    rates: list[float] = field(default_factory=list)  # events a second
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return median(self.rates)

    def percentile_ms(self, share: float) -> float:
        return sorted(self.latencies_ms)[int(share * (len(self.latencies_ms) - 1))]


class Bench:
    """The parts of one run."""

    def __init__(self, config: Settings, connect_worker: Connect) -> None:
        self._connect = connect_worker
        self._database = connect(config, autocommit=True)
        self._consumer = Consumer(
            {
                **config.kafka_client(),
                "group.id": TOPIC,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, OFFSET_END)])
        self._consumer.poll(1.0)  # the position is fixed before anything is sent

    def turn(self, poll_ms: int, events: int, singles: int, measured: Measured) -> None:
        """Measure one setting once."""
        self._stop()
        self._write(events)
        self._start(poll_ms)
        measured.rates.append(self._drain(events))
        self._database.execute("DELETE FROM app.outbox WHERE topic = %s", [TOPIC])
        measured.latencies_ms += [self._latency_ms() for _ in range(singles)]

    def close(self) -> None:
        """Put the connector back as it was, and wait until it is past our events: it cannot do without their topic."""
        self._stop()
        self._start(OURS)
        self._latency_ms()
        self._consumer.close()
        self._database.execute("DELETE FROM app.outbox WHERE topic = %s", [TOPIC])
        self._database.execute("DELETE FROM app.topics WHERE name = %s", [TOPIC])
        self._database.close()

    def _stop(self) -> None:
        self._connect.stop(connector.NAME)
        connector.wait_until_stopped(self._connect)

    def _start(self, poll_ms: int) -> None:
        self._connect.put(connector.NAME, {**connector.wanted(), "poll.interval.ms": str(poll_ms)})
        self._connect.resume(connector.NAME)
        connector.wait_until_running(self._connect)

    def _write(self, events: int) -> None:
        for _ in range(events // ROWS_A_TRANSACTION):
            self._database.execute(INSERT, [TOPIC, random.randbytes(EVENT_BYTES), ROWS_A_TRANSACTION])

    def _drain(self, events: int) -> float:
        """Events a second, from the first arrival to the last."""
        got, first, deadline = 0, 0.0, time.monotonic() + ARRIVAL_SECONDS_MAX
        while got < events:
            batch = self._consumer.consume(2_000, 0.05)
            first = first or (time.monotonic() if batch else 0.0)
            got += sum(message.error() is None for message in batch)
            if time.monotonic() > deadline:
                raise SystemExit(f"only {got} of {events} events came within {ARRIVAL_SECONDS_MAX:.0f} s")
        return events / (time.monotonic() - first)

    def _latency_ms(self) -> float:
        """One event, from when its commit returned to when the consumer had it."""
        event_id = str(uuid4())
        time.sleep(random.uniform(0, 0.06))  # so as not to keep step with the poll
        self._database.execute(
            "INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload) "
            "VALUES (%s, %s, 'key', 'bench', %s)",
            [event_id, TOPIC, random.randbytes(EVENT_BYTES)],
        )
        committed = time.perf_counter()
        while (message := self._consumer.poll(ARRIVAL_SECONDS_MAX)) is not None:
            if ("id", event_id.encode()) in (message.headers() or []):
                return 1000 * (time.perf_counter() - committed)
        raise SystemExit(f"an event did not come within {ARRIVAL_SECONDS_MAX:.0f} s")


@contextmanager
def running_stack(config: Settings, console: Console) -> Iterator[None]:
    """The stack, stopped afterwards only if it did not run before."""
    started = local.up(config, console)
    try:
        yield
    finally:
        if set(started) >= set(local.NAMES):
            local.down(config, console)


@contextmanager
def own_topic(config: Settings) -> Iterator[None]:
    """The bench's topic; a run that fails leaves it, for events may be on their way to it."""
    admin = TopicsAdmin(config)
    admin.create(Topic(TOPIC, partitions=1))
    with connect(config, autocommit=True) as connection:
        connection.execute("INSERT INTO app.topics VALUES (%s) ON CONFLICT DO NOTHING", [TOPIC])
    yield
    admin.delete(TOPIC)


def measure(config: Settings, events: int, singles: int, say: Callable[[str], None]) -> dict[int, Measured]:
    """Both settings, by turns, after a turn that warms the worker up and is not counted."""
    measured = {OURS: Measured(), THEIRS: Measured()}
    with own_topic(config), Connect(config) as connect_worker:
        bench = Bench(config, connect_worker)
        try:
            bench.turn(OURS, events, 20, Measured())
            for poll_ms in TURNS:
                say(f"poll.interval.ms {poll_ms}")
                bench.turn(poll_ms, events, singles if poll_ms == OURS else singles // 5, measured[poll_ms])
        finally:
            bench.close()
    return measured


def report(measured: dict[int, Measured]) -> dict[str, Any]:
    """The figures, and the ratios by which they are judged."""
    ours, theirs = measured[OURS], measured[THEIRS]
    return {
        "settings": {
            str(poll_ms): {
                "p50_ms": round(each.percentile_ms(0.5), 1),
                "p99_ms": round(each.percentile_ms(0.99), 1),
                "rate_per_second": round(each.rate),
                "rates_per_second": [round(rate) for rate in each.rates],
            }
            for poll_ms, each in measured.items()
        },
        "p50_ratio": round(theirs.percentile_ms(0.5) / ours.percentile_ms(0.5), 2),
        "rate_ratio": round(ours.rate / theirs.rate, 3),
    }


def show(found: dict[str, Any], console: Console) -> bool:
    """Print the table and the verdict."""
    table = Table("poll.interval.ms", "p50 ms", "p99 ms", "events/s", "each turn", title="Commit to consumer")
    for poll_ms, each in found["settings"].items():
        turns = " ".join(f"{rate:,}" for rate in each["rates_per_second"])
        table.add_row(poll_ms, str(each["p50_ms"]), str(each["p99_ms"]), f"{each['rate_per_second']:,}", turns)
    console.print(table)
    good = bool(found["p50_ratio"] >= P50_RATIO_GOAL and found["rate_ratio"] >= RATE_RATIO_GOAL)
    console.print(
        f"p50 {found['p50_ratio']} times lower (goal {P50_RATIO_GOAL:.0f}), "
        f"rate {found['rate_ratio']} of the other (goal {RATE_RATIO_GOAL}): {'met' if good else 'MISSED'}"
    )
    return good


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=40_000, help="events of 1 KB drained in each turn")
    parser.add_argument("--singles", type=int, default=100, help="single events in each of our turns")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    asked = parser.parse_args()
    config, console = settings(), Console()
    with running_stack(config, Console(stderr=True)):
        found = report(measure(config, asked.events, asked.singles, Console(stderr=True).print))
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)
    sys.exit(0 if show(found, console) else 1)


if __name__ == "__main__":
    main()
