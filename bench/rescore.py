"""A re-score with workers that are killed: `python -m bench.rescore`. Exit code 1 if anything is lost, or the ETA off.

On the stack of STREAMS_HOME (started if it does not run, and stopped again). Documents of one owner with one query, of
which some are malformed, are put into Postgres; a few workers score them in chunks, and one of them is killed every
twenty seconds. A death costs a worker ten: of two of them, chance would decide how long the rest takes, and what it
took would say little of the ETA. At half time that is noted, and held against the time that it really took. All is
removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import LiteralString

import psutil
from rich.console import Console
from rich.table import Table

from streams.config import settings
from streams.database import Connection, connect
from streams.errors import ReaderError, RescoreRefused
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry
from streams.lab import services
from streams.ops import rescore
from streams.ops.rescore import Status
from streams.readers._scorer import WordLlamaScorer
from streams.topics import RESCORER

OWNER = "bench-rescore"
MODEL = "bench-strict"
MALFORMED = 50
WORDS = 200
ETA_ERROR_MAX = 0.2
_LOOK_SECONDS = 0.25
_ROOT = Path(__file__).parents[1]


class Strict(WordLlamaScorer):
    """The built-in scorer, but for texts without letters, which it refuses."""

    model_version = MODEL

    def __call__(self, queries: list[str], text: str) -> list[float]:
        if not any(map(str.isalpha, text)):
            raise ValueError("there is no letter in it")
        return super().__call__(queries, text)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found at the end, and at half time; `documents` of this bench, beside those that others have saved."""

    documents: int
    chunks: int
    chunks_done: int
    scores: int
    errors_named: int
    kills: int
    seconds: float
    documents_per_second: float
    eta_seconds: float  # at half time
    took_seconds: float  # from then on

    @property
    def eta_error(self) -> float:
        return abs(self.eta_seconds - self.took_seconds) / self.took_seconds

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost and the ETA was right."""
        scored = self.scores == self.documents - MALFORMED and self.errors_named == MALFORMED
        return scored and self.chunks_done == self.chunks and self.eta_error <= ETA_ERROR_MAX


def fill(connection: Connection, documents: int) -> None:
    """The owner's query and documents, as if they had been saved: every so many-th is malformed."""
    words = str(__doc__).split()
    connection.execute("INSERT INTO app.saved_queries (owner_id, query) VALUES (%s, 'who commits an offset')", [OWNER])
    with (
        connection.cursor() as cursor,
        cursor.copy("COPY app.documents (document_id, owner_id, title, body, version, saved_at) FROM STDIN") as copy,
    ):
        for number in range(documents):
            bad = number % (documents // MALFORMED) == 0 and number // (documents // MALFORMED) < MALFORMED
            body = "1234 % 5678" if bad else " ".join(random.choices(words, k=WORDS))
            copy.write_row((f"{OWNER}-{number:07}", OWNER, "0" if bad else f"Document {number}", body, 1, "now"))


def empty(connection: Connection) -> None:
    """Remove all that is of this bench."""
    runs = "SELECT run_id FROM ops.rescores WHERE model = %s"
    for table in ("errors", "chunks"):
        connection.execute(f"DELETE FROM ops.rescore_{table} WHERE run_id IN ({runs})", [MODEL])
    connection.execute("DELETE FROM ops.rescores WHERE model = %s", [MODEL])
    connection.execute("DELETE FROM readers.scores WHERE model_version = %s", [MODEL])
    connection.execute("DELETE FROM app.documents WHERE owner_id = %s", [OWNER])
    connection.execute("DELETE FROM app.saved_queries WHERE owner_id = %s", [OWNER])


@contextmanager
def fleet(workers: int) -> Iterator[psutil.Process]:
    """`streams run rescorer` with this module's scorer, offered as an installed package does."""
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / "bench-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench\nVersion: 0\n")
        (info / "entry_points.txt").write_text(f"[streams.scorers]\n{MODEL} = {__spec__.name}:Strict\n")
        command = [sys.executable, "-m", "streams.cli.main", "run", RESCORER, "--workers", str(workers)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(_ROOT)])}
        with (
            (Path(folder) / "log").open("wb") as log,
            subprocess.Popen(command, env=environment, stdout=log, stderr=log) as running,
        ):
            try:
                yield psutil.Process(running.pid)
            finally:
                running.terminate()


def measure(connection: Connection, run: int, workers: int, kill_every_seconds: float) -> Measured:
    """Run workers, and kill one after the other, until the run is over. Raises ReaderError if chunks are given up."""
    half: tuple[float, float] | None = None
    kills, kill_after, began = 0, 0.0, 0.0
    with fleet(workers) as supervisor:
        while (now := rescore.status(connection, run)).state == "running":
            if now.counts.chunks_done and not began:
                began = time.monotonic()
                kill_after = began + kill_every_seconds
            if half is None and now.eta_seconds is not None and 2 * now.counts.documents_done >= now.counts.documents:
                half = time.monotonic(), now.eta_seconds
            if began and time.monotonic() > kill_after:
                random.choice(supervisor.children()).kill()
                kills, kill_after = kills + 1, kill_after + kill_every_seconds
            time.sleep(_LOOK_SECONDS)
        ended = time.monotonic()
    if now.state != "done" or half is None:
        raise ReaderError(f"the run is {now.state}: {now.counts.obstacle or 'it was over too soon to tell anything'}")
    return _measured(connection, now, half, kills, began, ended)


def _measured(
    connection: Connection, found: Status, half: tuple[float, float], kills: int, began: float, ended: float
) -> Measured:
    errors = rescore.errors(connection, found.run.run_id)
    return Measured(
        documents=_count(connection, "SELECT count(*) FROM app.documents WHERE owner_id = %s", OWNER),
        chunks=found.counts.chunks,
        chunks_done=found.counts.chunks_done,
        scores=_count(
            connection,
            "SELECT count(*) FROM readers.scores JOIN app.documents USING (document_id) "
            "WHERE model_version = %s AND owner_id = %s",
            MODEL,
            OWNER,
        ),
        errors_named=len({name for name, *_ in errors if name.startswith(OWNER)}),
        kills=kills,
        seconds=round(ended - began, 1),
        documents_per_second=round(found.counts.documents / (ended - began)),
        eta_seconds=round(half[1], 1),
        took_seconds=round(ended - half[0], 1),
    )


def _count(connection: Connection, query: LiteralString, *values: str) -> int:
    row = connection.execute(query, values).fetchone()
    assert row is not None
    return int(row[0])


def _print(console: Console, measured: Measured) -> None:
    table = Table("", "FOUND", "EXPECTED", box=None)
    good = measured.documents - MALFORMED
    table.add_row("scores", f"{measured.scores:,}", f"{good:,}")
    table.add_row("errors named", f"{measured.errors_named:,}", f"{MALFORMED:,}")
    table.add_row("chunks done", f"{measured.chunks_done:,}", f"{measured.chunks:,}")
    table.add_row("kills", f"{measured.kills:,}", "")
    table.add_row("seconds", f"{measured.seconds:,.1f} ({measured.documents_per_second:,.0f} documents/s)", "")
    eta = f"{measured.eta_seconds:.1f} s, took {measured.took_seconds:.1f} s: off by {measured.eta_error:.0%}"
    table.add_row("ETA at half time", eta, f"at most {ETA_ERROR_MAX:.0%}")
    console.print(table)


def main() -> None:
    """Measure, print, and write the figures if asked to."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=100_000)
    options.add_argument("--chunk", type=int, default=1_000)
    options.add_argument("--workers", type=int, default=4)
    options.add_argument("--kill-every", type=float, default=20.0, metavar="SECONDS")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    chosen = options.parse_args()
    config, console = settings(), Console(stderr=True)
    encode = Codec(Registry(config)).encode
    with services.interruptible(), services.stack(config, console), connect(config, autocommit=True) as connection:
        empty(connection)
        try:
            with console.status(f"Writing {chosen.documents:,} documents"):
                fill(connection, chosen.documents)
            run, _ = rescore.start(connection, encode, MODEL, MODEL, chosen.chunk)
            with console.status("Scoring"):
                measured = measure(connection, run, chosen.workers, chosen.kill_every)
        except (ReaderError, RescoreRefused) as error:
            sys.exit(f"error: {error}")
        finally:
            empty(connection)
    if chosen.json:
        chosen.json.write_text(json.dumps({**asdict(measured), "eta_error": measured.eta_error}) + "\n", "utf-8")
    _print(Console(), measured)
    sys.exit(0 if measured.is_good else 1)


if __name__ == "__main__":
    main()
