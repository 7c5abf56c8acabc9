"""The check of exercise 1: a reader that somebody else wrote is found, run, fed, killed, and its results counted again.

Called by `streams exercise check`; runs the reader as `streams run` does, saves through the API's client, and compares
what stands in Postgres with what was saved. docs/exercises/1-add-a-reader.md says what the reader is to do.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from rich.console import Console

import streams
from streams.config import Settings
from streams.database import connect, queries
from streams.errors import NotSolved
from streams.lab import services
from streams.ops.client import Client, side_by_side
from streams.readers.discovery import look
from streams.stack.process import LocalProcess
from streams.topics import DOCUMENTS_SAVED

READER = "word-count"
# All that stands between a save and the log.
PRODUCER = ("streams/api", "streams/outbox", "streams/cdc", "streams/topics.py", "schemas", "connectors")
TEXTS = ("", "one", "two  words", "three\nshort\tlines", "Wörter, слова and 単語 count too")
DOCUMENTS = 10
BACKLOG_SAVES = 20
KILLS = 3
SAVES_BEFORE_A_KILL = SAVES_AFTER_A_KILL = 15
SECONDS_MAX = 60.0  # for any one step; a worker starts in 2 s, on a busy machine in 20
_LOOK_SECONDS = 0.2

_sql = queries(Path(__file__).parent / "sql" / "exercise.sql")
Connection = psycopg.Connection[tuple[Any, ...]]


def check_first(config: Settings, console: Console) -> None:
    """Check exercise 1, saying each step. Raises NotSolved with what is missing."""
    _find_reader()
    _passed(console, f"there is a reader {READER}")
    _passed(console, _untouched_producer(Path(streams.__file__).parents[1]))
    with (
        services.stack(config, console),
        services.api(config),
        Client(config.api_url) as client,
        connect(config, autocommit=True) as connection,
    ):
        trial = _Trial(config, client, connection)
        try:
            _passed(console, trial.history())
            _passed(console, trial.live())
            _passed(console, trial.kills())
            _passed(console, trial.events())
        finally:
            trial.worker.stop()


def _passed(console: Console, what: str) -> None:
    console.print(f"[green]✓[/green] {what}", highlight=False, soft_wrap=True)


def _find_reader() -> None:
    survey = look()
    if READER not in survey.readers:
        faults = "".join(f"; {fault}" for fault in survey.faults)
        raise NotSolved(
            f"there is no reader {READER!r} yet: write it in streams/readers/word_count.py, "
            f'with @reader(group="{READER}") above the function{faults}'
        )


def _untouched_producer(root: Path) -> str:
    """That git sees no change in what a save goes through."""
    command = ["git", "-C", str(root), "status", "--porcelain", "--", *PRODUCER]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return "the producer is an installed package, which nobody edits"
    if told:
        raise NotSolved(
            f"the producer was changed: {told[0][3:]}; a reader needs nothing from it (`git diff` shows it)"
        )
    return "the producer is as it was"


class _Trial:
    """One run of the check: an owner of its own, what it saved, and a worker of the reader."""

    def __init__(self, config: Settings, client: Client, connection: Connection) -> None:
        self.worker = LocalProcess(READER, config.home.resolve())
        self._client = client
        self._connection = connection
        self._owner = f"exercise-{uuid4().hex[:8]}"
        self._latest: dict[str, tuple[int, str]] = {}  # document id → version, text
        self._saves = 0
        self._words = 0

    # ----------------------------------------------------------------------------------------- the steps

    def history(self) -> str:
        """What was saved before the reader ran is read too, from the log's start."""
        self._save(BACKLOG_SAVES)
        before: datetime = _sql.now(self._connection)
        self._start()
        self._wait_until_done()
        self._check_rows()
        self._until(lambda: self._missing(before) is None, lambda: self._missing(before) or "")
        return f"it has a row for each of the {_sql.history_size(self._connection):,} documents of the log"

    def live(self) -> str:
        """What is saved while it runs comes at once."""
        began = time.monotonic()
        self._save(1)
        self._wait_until_done()
        took = time.monotonic() - began
        self._check_rows()
        self._check_counter()
        return f"a new save was counted after {took:.1f} s"

    def kills(self) -> str:
        """kill -9 in the midst of work loses nothing and doubles nothing."""
        for _ in range(KILLS):
            applied = self._applied()
            self._save(SAVES_BEFORE_A_KILL)
            self._until(lambda applied=applied: self._applied() > applied, self._why_not_done)  # type: ignore[misc]
            self._kill()
            self._save(SAVES_AFTER_A_KILL)
            self._start()
        self._wait_until_done()
        self._check_rows()
        self._check_counter()
        return f"after {KILLS} times kill -9 each of {self._saves} saves is counted once"

    def events(self) -> str:
        """The saves sent what they always send: one event each, to one topic."""
        events, topics = _sql.events(self._connection, document_ids=list(self._latest))
        if (events, topics) != (self._saves, 1):
            raise NotSolved(
                f"{self._saves} saves sent {events} events to {topics} topics: the producer is not as it was"
            )
        return f"each save sent one event, to {DOCUMENTS_SAVED.name}"

    # ------------------------------------------------------------------------------------- saves, worker

    def _save(self, saves: int) -> None:
        for answer, text in side_by_side(self._save_one, range(self._saves, self._saves + saves)):
            document_id, version = answer["document_id"], answer["version"]
            self._latest[document_id] = max(self._latest.get(document_id, (0, "")), (version, text))
            self._words += len(text.split())
        self._saves += saves

    def _save_one(self, number: int) -> tuple[dict[str, Any], str]:
        text = TEXTS[number % len(TEXTS)]
        document_id = f"{self._owner}-{number % DOCUMENTS}"
        document = {"document_id": document_id, "owner_id": self._owner, "title": "An exercise", "body": text}
        return self._client.save(document), text

    def _start(self) -> None:
        command = [sys.executable, "-m", "streams.cli.main", "run", READER]
        self.worker.start(command, {"STREAMS_HOME": str(self.worker.home)})

    def _kill(self) -> None:
        """The command and its worker: a worker that only lost its command would end in good order."""
        process = self.worker.running()
        for each in [process, *process.children()] if process is not None else []:
            each.kill()
            each.wait(SECONDS_MAX)

    # --------------------------------------------------------------------------------------- the results

    def _applied(self) -> int:
        """The sum of the versions that the reader has applied: it grows with its work."""
        return sum(version or 0 for _, version, _, _ in self._progress())

    def _progress(self) -> list[tuple[str, int | None, str, str | None]]:
        return list(_sql.progress(self._connection, reader=READER, document_ids=list(self._latest)))

    def _wait_until_done(self) -> None:
        self._until(self._is_done, self._why_not_done)

    def _is_done(self) -> bool:
        applied = {document_id: version for document_id, version, _, _ in self._progress()}
        return all(applied.get(document_id) == version for document_id, (version, _) in self._latest.items())

    def _why_not_done(self) -> str:
        return f"{READER} has not read all {self._saves} saves within {SECONDS_MAX:.0f} s"

    def _until(self, reached: Callable[[], bool], why_not: Callable[[], str]) -> None:
        """Wait. Raises NotSolved when it takes too long, the worker ends, or a record fails."""
        deadline = time.monotonic() + SECONDS_MAX
        while not reached():
            services.raise_if_ended(self.worker)
            for document_id, _, state, error in self._progress():
                if state in ("retrying", "dead"):
                    text = self._latest[document_id][1]
                    raise NotSolved(f"{READER} fails at {document_id}, whose text is {text!r}: {error}")
            if time.monotonic() > deadline:
                raise NotSolved(why_not())
            time.sleep(_LOOK_SECONDS)

    def _missing(self, before: datetime) -> str | None:
        found = _sql.missing_history(self._connection, reader=READER, before=before)
        if found is None:
            return None
        document_id, count, error = found
        why = f" ({error})" if error else ""
        return f"{count:,} documents saved earlier have no row with their id as key, such as {document_id}{why}"

    def _rows(self, *keys: str) -> dict[str, tuple[int, dict[str, Any]]]:
        rows = _sql.rows(self._connection, reader=READER, keys=list(keys))
        return {key: (version, value) for key, version, value in rows}

    def _check_rows(self) -> None:
        rows = self._rows(*self._latest)
        for document_id, (version, text) in self._latest.items():
            if document_id not in rows:
                raise NotSolved(
                    f"{document_id} was saved, and there is no row with that key: "
                    'return Upsert(key=doc.document_id, value={"words": …})'
                )
            words, (found_version, value) = len(text.split()), rows[document_id]
            if (found_version, value.get("words")) != (version, words):
                raise NotSolved(
                    f"for the text {text!r} the row should say {{'words': {words}}} at version {version}, "
                    f"and says {value} at version {found_version}"
                )

    def _check_counter(self) -> None:
        key, wanted = f"owner:{self._owner}", {"saves": self._saves, "words": self._words}
        rows = self._rows(key)
        if key not in rows:
            raise NotSolved(
                f"there is no row {key!r}: return "
                'Increment(key=f"owner:{doc.owner_id}", by={"saves": 1, "words": …}) beside the Upsert'
            )
        _, value = rows[key]
        found = {name: value.get(name) for name in wanted}
        if found != wanted:
            raise NotSolved(f"the row {key!r} should say {wanted} after {self._saves} saves, and says {value}")
