"""The demo: five queries and some hundred real documents are saved, and three readers work through them.

Called by `streams demo`; saves through the API's client, and reads everything that it shows from Postgres.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from streams.config import Settings
from streams.database import connect, queries
from streams.errors import Unfinished
from streams.lab import services
from streams.lab.corpus import Text, texts
from streams.ops.client import Client, side_by_side
from streams.ops.doctor import examine
from streams.stack.process import LocalProcess

OWNER = "demo"
READERS = ("summarizer", "ranker", "indexer")
QUERIES = (
    "parse the arguments of a command line",
    "client for Apache Kafka",
    "connect to a PostgreSQL database",
    "read and write compressed archives",
    "measure how long code takes",
)
SAMPLES = 3
_LOOK_SECONDS = 0.25

_sql = queries(Path(__file__).parent / "sql" / "demo.sql")
Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the owner's documents have become, counted in Postgres, and how long all took."""

    documents: int
    summaries: int
    scores: int
    indexed: int
    dead: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What there is to show at the end: (title, characters, summary) and, by query, (query, title, score)."""

    summaries: list[tuple[str, int, str]]
    best_hits: list[tuple[str, str, float]]


@contextmanager
def running(config: Settings, console: Console) -> Iterator[LocalProcess]:
    """The stack, the API and the three readers; gives the readers' process. Stops what it started."""
    with services.stack(config, console), services.api(config), services.readers(config, READERS) as process:
        yield process


def play(config: Settings, console: Console, process: LocalProcess, seconds_max: float) -> None:
    """Save all, and show each reader's progress until all are done.

    Raises Unfinished, with what is in the way, when a reader is not done `seconds_max` after the last save.
    """
    documents = texts()
    with Client(config.api_url) as client, connect(config, autocommit=True) as connection, _bars(console) as bars:
        watch = _Watch(connection, bars, len(documents))
        for query in QUERIES:
            client.add_query(OWNER, query)
        for _ in side_by_side(lambda text: _save(client, text), documents):
            watch.saved()
        late = _wait(watch, process, seconds_max)
        if late:
            last = min(late, key=lambda name: late[name])
            why = obstacle(config, connection, last, process)
            raise Unfinished(f"{_too_late(late, len(documents), seconds_max)}: {why}")


def _wait(watch: _Watch, process: LocalProcess, seconds_max: float) -> dict[str, int]:
    """Until all readers are through; those that are not when the time is up, with how many documents each has done."""
    deadline = time.monotonic() + seconds_max
    while (waiting := watch.look()) and time.monotonic() < deadline:
        services.raise_if_ended(process)
        time.sleep(_LOOK_SECONDS)
    return waiting


def count(config: Settings, seconds: float) -> Numbers:
    """The numbers as they are in Postgres now."""
    with connect(config) as connection:
        counted = _sql.numbers(connection, owner_id=OWNER)
        return Numbers(*(*counted, round(seconds, 1)))


def check(config: Settings, numbers: Numbers) -> None:
    """Raises Unfinished, naming a reader and its reason, if any document was given up."""
    with connect(config) as connection:
        for reader in READERS if numbers.dead else ():
            if failed := _sql.failing(connection, reader=reader, owner_id=OWNER):
                document_id, _, error = failed
                raise Unfinished(f"{numbers.dead} dead letters: {reader} has given up {document_id}: {error}")


def findings(config: Settings) -> Findings:
    """A few summaries and the best hit of each query."""
    with connect(config) as connection:
        return Findings(
            list(_sql.summaries(connection, owner_id=OWNER, rows_max=SAMPLES)),
            list(_sql.best_hits(connection, owner_id=OWNER)),
        )


def _save(client: Client, text: Text) -> None:
    client.save({"document_id": text.document_id, "owner_id": OWNER, "title": text.title, "body": text.body})


def _bars(console: Console) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console)


class _Watch:
    """The progress of saving and of each reader, on the screen."""

    def __init__(self, connection: Connection, bars: Progress, total: int) -> None:
        self._connection = connection
        self._since: datetime = _sql.now(connection)
        self._bars = bars
        self._total = total
        self._saving = bars.add_task("saved", total=total)
        self._reading: dict[str, TaskID] = {name: bars.add_task(name, total=total) for name in READERS}
        self._looked_at = 0.0

    def saved(self) -> None:
        """Count one save, and look after the readers when it is time."""
        self._bars.advance(self._saving)
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self.look()

    def look(self) -> dict[str, int]:
        """The readers that are not through yet, and how many documents each has done."""
        self._looked_at = time.monotonic()
        waiting = {}
        for reader, done, given_up in _sql.standing(
            self._connection, readers=list(READERS), owner_id=OWNER, since=self._since
        ):
            self._bars.update(self._reading[reader], completed=done)
            if done + given_up < self._total:
                waiting[reader] = done
        return waiting


def _too_late(waiting: dict[str, int], total: int, seconds_max: float) -> str:
    """Who is late, the last first."""
    slow = sorted(waiting, key=lambda name: waiting[name])
    done = ", ".join(f"{name} {waiting[name]:,}" for name in slow)
    return f"{seconds_max:.0f} s after the last save, of {total:,} documents are done: {done}"


def obstacle(config: Settings, connection: Connection, reader: str, process: LocalProcess) -> str:
    """What keeps a reader from going on: a fault before it, a document that it fails at, or what the log says last."""
    for fault in (each for each in examine(config) if each.state == "fault"):
        return f"{fault.name}: {fault.says}; run `{fault.command or 'streams doctor'}`"
    if failed := _sql.failing(connection, reader=reader, owner_id=OWNER):
        document_id, attempts, error = failed
        return f"{reader} has failed {attempts} times at {document_id}: {error}"
    return f"the stack is well, {reader} needs more time (--seconds-max); the log ends with: {process.last_words()}"
