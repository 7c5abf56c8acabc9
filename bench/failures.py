"""What failures cost those that do not fail: `python -m bench.failures`. Exit code 1 if a goal is missed.

On the stack of STREAMS_HOME (started if it does not run, and stopped again), with a reader and a topic of its own:

- an outage: for a minute every handler fails, at 20 records a second. It must burn no attempt, and all must be done
  10 s after its end;
- a key that fails for a minute, with attempts without end, beside 100 records a second of other keys, by turns with a
  minute in which it does not. From the log to the sink the others' p99 must stay within 20 %.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from threading import Thread

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from bench.turns.running import NOW, Record, filled, unique
from streams.config import Settings, settings
from streams.contract import DocumentSaved, Retry, RetryLater, Upsert, reader
from streams.core.outcomes import Dead, Done, Retrying
from streams.database import connect
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry
from streams.lab import services
from streams.ops.worker import Wiring, assembled
from streams.runtime.loop import Loop
from streams.runtime.ports import Partition, Result
from streams.sinks.postgres import PostgresSink
from streams.topics import DOCUMENTS_SAVED

SECONDS = 60.0
OUTAGE_PER_SECOND = 20
RECOVERY_SECONDS_MAX = 10.0
OTHERS_PER_SECOND, OTHER_KEYS = 100, 200
STUCK = "stuck"
ENDLESS = Retry(attempts_max=10**9, backoff_seconds=0.02, backoff_seconds_max=0.1)
TURNS = 2
GROWTH_MAX = 1.2
_LOOK_SECONDS = 0.05
Found = dict[str, float]


class Written(PostgresSink):
    """The sink, and what it wrote: when each record was done, and which failed attempts were counted."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.done: dict[str, float] = {}
        self.counted: list[str] = []
        self.dead = 0

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        super().write(epochs, results)
        now = time.monotonic()
        for one in results:
            assert one.document is not None
            if isinstance(one.outcome, Done):
                self.done[one.document.title] = now
            elif isinstance(one.outcome, (Retrying, Dead)):
                self.counted.append(one.document.title)
                self.dead += isinstance(one.outcome, Dead)


class Bench:
    """A topic with a worker of a reader on it, whose handler fails when it is told to."""

    def __init__(self, config: Settings, topic: str) -> None:
        self.topic = topic
        self.fails: Callable[[DocumentSaved], bool] = lambda _: False
        self.sink: Written
        self._codec = Codec(Registry(config))
        self._producer = Producer({**config.kafka_client(), "partitioner": "murmur2_random"})
        self._versions: dict[str, int] = {}
        self.put_at: dict[str, float] = {}

    def handle(self, doc: DocumentSaved) -> Upsert:
        if self.fails(doc):
            raise RetryLater("told so")
        return Upsert(doc.document_id, {"version": doc.version})

    def put(self, document_id: str) -> None:
        """One record; its title names it."""
        key, value = self._record(document_id)
        self._producer.produce(self.topic, value, key)
        self._producer.poll(0)

    def _record(self, document_id: str) -> Record:
        version = self._versions[document_id] = self._versions.get(document_id, 0) + 1
        title = f"{document_id} {version}"
        self.put_at[title] = time.monotonic()
        event = {"document_id": document_id, "owner_id": "bench", "version": version, "title": title, "body": "text"}
        return document_id, self._codec.encode(DOCUMENTS_SAVED, event | {"saved_at": NOW, "type": "saved"})

    @contextmanager
    def working(self, config: Settings, retry: Retry) -> Iterator[Loop]:
        """With a worker, in a thread."""

        def sink(*arguments: object) -> Written:
            self.sink = Written(*arguments)
            return self.sink

        declared = reader(group=unique("failures"), retry=retry)(self.handle)
        with assembled(config, declared, Wiring(self.topic, make_sink=sink)) as loop:  # type: ignore[arg-type]
            thread = Thread(target=loop.run)
            thread.start()
            try:
                yield loop
            finally:
                loop.stop()
                thread.join()
        with connect(config, autocommit=True) as connection:
            connection.execute("DELETE FROM readers.registered WHERE reader = %s", [declared.group])

    def steady(self, names: Iterator[str], per_second: float, seconds: float) -> None:
        """Put records at a rate."""
        began = time.monotonic()
        for number, name in zip(range(int(per_second * seconds)), names, strict=False):
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            self.put(name)

    def wait(self, through: Callable[[], bool], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not through():
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_SECONDS)
        return True


def outage(config: Settings, seconds: float) -> Found:
    """Five seconds well, an outage, and then well again."""
    with filled(config, [], partitions=3) as topic:
        bench = Bench(config, topic)
        with bench.working(config, Retry()):
            names = (f"document-{number}" for number in range(10**9))
            bench.steady(names, OUTAGE_PER_SECOND, 5)
            bench.fails = lambda _: True
            bench.steady(names, OUTAGE_PER_SECOND, seconds)
            bench.fails = lambda _: False
            ended = time.monotonic()
            during = list(bench.put_at)
            bench.wait(lambda: all(title in bench.sink.done for title in during), 60)
            recovered = max(bench.sink.done.values()) - ended
            lost = sum(title not in bench.sink.done for title in during)
        return {
            "outage_records": len(during),
            "outage_attempts_counted": len(bench.sink.counted),
            "outage_parked": len(set(bench.sink.counted)),
            "outage_dead": bench.sink.dead,
            "outage_not_done": lost,
            "outage_recovery_seconds": round(recovered, 2),
        }


def others_p99_seconds(config: Settings, seconds: float, fails: bool) -> float:
    """Of the other keys, beside one that fails or does not."""
    with filled(config, [], partitions=1) as topic:
        bench = Bench(config, topic)
        bench.fails = lambda doc: fails and doc.document_id == STUCK
        with bench.working(config, ENDLESS):
            bench.put("first")
            bench.wait(lambda: "first 1" in bench.sink.done, 30)
            bench.put(STUCK)
            names = (STUCK if n % 50 == 0 else f"other-{n % OTHER_KEYS}" for n in range(10**9))
            bench.steady(names, OTHERS_PER_SECOND, seconds)
            others = [title for title in bench.put_at if title.startswith("other")]
            if not bench.wait(lambda: all(title in bench.sink.done for title in others), 30):
                raise SystemExit("error: records of other keys are not done 30 s after the last one came")
            if fails and not bench.sink.counted:
                raise SystemExit("error: the key did not fail")
        return quantiles([bench.sink.done[title] - bench.put_at[title] for title in others], n=100)[98]


def stuck_key(config: Settings, seconds: float) -> Found:
    """By turns, so that what the machine does beside hits both."""
    both: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(TURNS):
        for fails, measured in both.items():
            measured.append(others_p99_seconds(config, seconds, fails))
    return {
        "others_p99_ms": round(1000 * median(both[False]), 1),
        "others_p99_beside_failing_key_ms": round(1000 * median(both[True]), 1),
        "others_p99_ratio": round(median(b / a for a, b in zip(both[False], both[True], strict=True)), 3),
    }


GOALS = {
    "outage_attempts_counted": 0.0,
    "outage_dead": 0.0,
    "outage_not_done": 0.0,
    "outage_recovery_seconds": RECOVERY_SECONDS_MAX,
    "others_p99_ratio": GROWTH_MAX,
}
MEASURES = {"outage": outage, "stuck-key": stuck_key}


def main() -> None:
    """Measure, print, and write the figures if asked to."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", choices=[*MEASURES], help="default: all")
    options.add_argument("--seconds", type=float, default=SECONDS)
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    chosen = options.parse_args()
    config, console = settings(), Console(stderr=True)
    logging.getLogger("streams.runtime").setLevel(logging.ERROR)  # each failure is a line
    found: Found = {}
    with services.interruptible(), services.stack(config, console):
        for name in [chosen.only] if chosen.only else MEASURES:
            with console.status(f"Measuring: {name}"):
                found |= MEASURES[name](config, chosen.seconds)
    if chosen.json:
        chosen.json.write_text(json.dumps(found) + "\n", "utf-8")
    table = Table("", "FOUND", "AT MOST", box=None)
    for name, figure in found.items():
        table.add_row(name, f"{figure:,g}", f"{GOALS[name]:,g}" if name in GOALS else "")
    Console().print(table)
    sys.exit(any(figure > GOALS.get(name, figure) for name, figure in found.items()))


if __name__ == "__main__":
    main()
