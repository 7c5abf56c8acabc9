"""What a replay costs the live reader beside it: `python -m bench.replay`. Exit code 1 if the goal is missed.

On the stack of STREAMS_HOME (started if it does not run, and stopped again) the built-in indexer follows saves at a
steady rate, by turns with and without a replay of the whole log into a shadow, bounded by `--rate`. From the save's
commit to the reader's the p99 must stay within 20 %. The documents are removed by deletions, the shadows by cancelling.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from streams.config import Settings, settings
from streams.database import Connection, connect
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry
from streams.lab import services
from streams.ops.replay_runs import ReplayRuns
from streams.outbox.save import Document, Origin, delete, save

READER = "indexer"
OWNER = "bench-replay"
TURNS = 3
SAVES_PER_SECOND = 40.0
REPLAYED_PER_SECOND = 25
GROWTH_MAX = 1.2
SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.2
_BODY = (__doc__ or "") * 2
_LATENCIES = """
SELECT count(*), 1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM p.finished_at - d.saved_at))
FROM app.documents AS d JOIN readers.progress AS p USING (document_id)
WHERE p.reader = %s AND p.state = 'done' AND starts_with(d.document_id, %s)
"""


class Bench:
    """Saves over one connection, and asks how long the reader took."""

    def __init__(self, config: Settings, connection: Connection) -> None:
        self._encode = Codec(Registry(config)).encode
        self._connection = connection
        self._saved: list[str] = []

    def save(self, documents: int, per_second: float) -> float:
        """The p99 in milliseconds from save to done, of documents saved now."""
        prefix, began = f"{OWNER}-{uuid4().hex[:8]}", time.monotonic()
        for number in range(documents):
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            document = Document(f"{prefix}-{number}", OWNER, f"Document {number}", _BODY)
            save(self._connection, self._encode, document, Origin())
            self._saved.append(document.document_id)
        until(lambda: self._asked(prefix)[0] == documents, f"{READER} is not done with what was saved")
        return self._asked(prefix)[1]

    def remove(self) -> None:
        for name in self._saved:
            delete(self._connection, self._encode, name, Origin())

    def _asked(self, prefix: str) -> tuple[int, float]:
        row = self._connection.execute(_LATENCIES, [READER, prefix]).fetchone()
        assert row is not None
        return int(row[0]), float(row[1] or 0)


def until(reached: Callable[[], bool], why_not: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not reached():
        if time.monotonic() > deadline:
            sys.exit(f"error: {why_not} after {SECONDS_MAX:.0f} s")
        time.sleep(_LOOK_SECONDS)


@contextmanager
def replaying(config: Settings) -> Iterator[None]:
    """A replay that runs throughout, or the figure would say nothing."""
    runs = ReplayRuns(config)
    before = {run.run for run in runs.listed()}
    command = [sys.executable, "-m", "streams.cli.main", "replay", "run", READER, "--from", "earliest"]
    command += ["--into", "shadow", "--rate", str(REPLAYED_PER_SECOND)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(
                lambda: any(run.records_read for run in runs.listed() if run.run not in before), "nothing is replayed"
            )
            yield
            if process.poll() is not None:
                sys.exit("error: the replay was over too soon: it needs more documents")
        finally:
            process.terminate()
            process.wait()
            for run in runs.listed():
                if run.run not in before:
                    runs.cancel(run)


def measure(config: Settings, bench: Bench, seconds: float) -> dict[str, float]:
    """By turns, so that what the machine does beside hits both."""
    documents = int(seconds * SAVES_PER_SECOND)
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(TURNS):
        for measured, beside_what in ((alone, nullcontext()), (beside, replaying(config))):
            with beside_what:
                measured.append(bench.save(documents, SAVES_PER_SECOND))
    return {
        "live_p99_ms": round(median(alone), 1),
        "live_p99_beside_replay_ms": round(median(beside), 1),
        "live_p99_ratio": round(median(b / a for a, b in zip(alone, beside, strict=True)), 3),
    }


def main() -> None:
    """Measure, print, and write the figures if asked to."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seconds", type=float, default=20, help="of each turn")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    chosen = options.parse_args()
    config, console = settings(), Console(stderr=True)
    with (
        services.interruptible(),
        services.stack(config, console),
        services.readers(config, [READER]),
        connect(config, autocommit=True) as connection,
    ):
        bench = Bench(config, connection)
        try:
            with console.status("Saving what is to be replayed"):
                bench.save(int(2 * chosen.seconds * REPLAYED_PER_SECOND), 1_000)
            with console.status("Measuring"):
                found = measure(config, bench, chosen.seconds)
        finally:
            bench.remove()
    if chosen.json:
        chosen.json.write_text(json.dumps(found) + "\n", "utf-8")
    table = Table("", "FOUND", "AT MOST", box=None)
    for name, figure in found.items():
        table.add_row(name, f"{figure:,g}", f"{GROWTH_MAX:g}" if name.endswith("ratio") else "")
    Console().print(table)
    sys.exit(found["live_p99_ratio"] > GROWTH_MAX)


if __name__ == "__main__":
    main()
