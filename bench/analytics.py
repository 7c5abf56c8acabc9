"""Analytics from nothing and from its changelog: `python -m bench.analytics`. Exit code 1 if a goal is missed.

On the stack of STREAMS_HOME (started if it does not run, and stopped again), in a group, a log and a changelog of its
own, which are removed. A first worker reads the whole log; it is killed; a second one has nothing on disk, and recovers
all from the changelog. Seconds count from the start of the process to the first answer with all documents in it.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from streams.analytics.worker import work
from streams.config import Settings, settings
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry
from streams.kafka.topics_admin import TopicsAdmin
from streams.lab import services
from streams.topics import DOCUMENTS_SAVED, Topic, changelog

GROUP = "bench-analytics"
LOG = Topic("bench-analytics-log", DOCUMENTS_SAVED.partitions)
TOPICS = (LOG, changelog(GROUP))
BODY_BYTES = 1000
OWNERS = 1000
RECOVERY_SECONDS_GOAL = 60.0
SECONDS_MAX = 1800.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """One worker: until all was there, in seconds of the clock and of the processor, and its memory then."""

    seconds: float
    cpu_seconds: float
    memory_bytes: int


@contextmanager
def topics(config: Settings) -> Iterator[None]:
    """The topics of this bench, empty."""
    admin = TopicsAdmin(config)
    for topic in TOPICS:
        if topic.name in admin.partitions():
            sys.exit(f"error: {topic.name} is there, of a bench that was killed: delete it")
        admin.create(topic)
    try:
        yield
    finally:
        for topic in TOPICS:
            admin.delete(topic.name)


def fill(config: Settings, documents: int) -> None:
    """Put one event of each document into the log."""
    codec = Codec(Registry(config))
    producer = Producer({**config.kafka_client(), "partitioner": "murmur2_random", "compression.type": "lz4"})
    event = {"version": 1, "title": "a title", "body": "x" * BODY_BYTES, "saved_at": datetime.now(UTC), "type": "saved"}
    for number in range(documents):
        name = f"document-{number}"
        document = event | {"document_id": name, "owner_id": f"owner-{number % OWNERS}"}
        producer.produce(LOG.name, key=name, value=codec.encode(DOCUMENTS_SAVED, document))
        if number % 1000 == 0:
            producer.flush()
    producer.flush()


def run(documents: int) -> Run:
    """Start a worker, wait until it shows all documents, and kill it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.perf_counter()
    worker = subprocess.Popen([sys.executable, "-m", "bench.analytics", "--worker", str(port)])
    try:
        while _documents(port) != documents:
            if worker.poll() is not None or time.perf_counter() - began > SECONDS_MAX:
                sys.exit("error: the worker did not get there")
            time.sleep(_POLL_SECONDS)
        seconds, process = time.perf_counter() - began, psutil.Process(worker.pid)
        return Run(seconds, sum(process.cpu_times()[:2]), process.memory_info().rss)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()


def _documents(port: int) -> int:
    """How many a worker shows that has recovered; -1 before."""
    try:
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30, trust_env=False).text
    except httpx.HTTPError:
        return -1
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    if float(values["streams_analytics_recovering"]):
        return -1
    return int(float(values["streams_analytics_documents"]))


def _print(console: Console, documents: int, runs: dict[str, Run]) -> None:
    table = Table("", "SECONDS", "OF THE PROCESSOR", "DOCUMENTS/S", "MEMORY", box=None)
    for name, each in runs.items():
        rate = f"{documents / each.seconds:,.0f}"
        memory = f"{each.memory_bytes / 1e6:,.0f} MB"
        table.add_row(name, f"{each.seconds:.1f}", f"{each.cpu_seconds:.1f}", rate, memory)
    console.print(table)


def main() -> None:
    """Measure, print, and write the figures if asked to."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=200_000)
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    options.add_argument("--worker", type=int, metavar="PORT", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    config, console = settings(), Console(stderr=True)
    if chosen.worker:
        logging.basicConfig(level=logging.ERROR)
        work(config, socket.create_server(("127.0.0.1", chosen.worker)), GROUP, LOG)
        return
    with services.interruptible(), services.stack(config, console), topics(config):
        with console.status(f"Writing {chosen.documents:,} events"):
            fill(config, chosen.documents)
        runs = {name: run(chosen.documents) for name in ("from the log", "from the changelog")}
    if chosen.json:
        chosen.json.write_text(json.dumps({name: asdict(each) for name, each in runs.items()}) + "\n", "utf-8")
    _print(Console(), chosen.documents, runs)
    sys.exit(0 if runs["from the changelog"].seconds <= RECOVERY_SECONDS_GOAL else 1)


if __name__ == "__main__":
    main()
