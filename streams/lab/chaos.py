"""Chaos: documents are saved while workers and servers are killed with SIGKILL; then Postgres is asked what came of it.

Called by `streams lab chaos`; saves through the real outbox, reads by the workers of streams/lab/chaos_worker.py, kills
servers and heals them as `streams up` does. Whatever it made is gone at the end, but for the events in the log.
"""

from __future__ import annotations

import io
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from streams.config import Settings
from streams.core.groups import Commit, Partition
from streams.database import connect, queries
from streams.errors import Unavailable, Unfinished
from streams.kafka.admin import GroupsAdmin
from streams.kafka.codec import Codec
from streams.kafka.exact_offsets import ExactOffsets
from streams.kafka.membership import dismiss
from streams.kafka.published import PublishedEvents
from streams.kafka.registry import Registry
from streams.kafka.topics_admin import TopicsAdmin
from streams.lab import services
from streams.lab.chaos_reader import COUNTER, GROUP, OWNER, POISON
from streams.lab.chaos_worker import Conditions, Fleet
from streams.ops.unpublished import unpublished
from streams.outbox.save import Document, Origin, save
from streams.stack import local
from streams.stack.files import exclusive
from streams.stack.process import LocalProcess, await_deaths
from streams.topics import DOCUMENTS_SAVED, dead_letters

SAVES_PER_SECOND = 200.0
POISON_DOCUMENTS = 2
KILL_EVERY_SECONDS = 0.3  # a worker is back in less on an idle machine
# After so long without one more document done, no kill until there is: on a slow machine no worker comes back in time.
STANDSTILL_SECONDS = 5.0
SERVERS = ("kafka", "connect", "postgres")
SECONDS_MAX = 300.0  # from the last save until all are done, and for each step of the end
_LOOK_SECONDS = 0.25
_PAUSE_SECONDS = 0.05
_DOWN = (psycopg.OperationalError, Unavailable)  # of a server that was killed, and comes back
_LETTERS = dead_letters(GROUP).name

_sql = queries(Path(__file__).parent / "sql" / "chaos.sql")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to happen: how much is saved, who reads under which conditions, and whether servers die too."""

    documents: int = 2_000
    workers: int = 4
    conditions: Conditions = field(default_factory=Conditions)
    servers: bool = False
    kill_every_seconds: float = KILL_EVERY_SECONDS


@dataclass(frozen=True, slots=True)
class Numbers:
    """What came of it, counted in Postgres; `seconds` from the first save until all documents were done."""

    lost: int
    doubled: int
    rows: int
    counter: int
    dead: int
    kills: int
    seconds: float

    def is_exact(self, plan: Plan) -> bool:
        """Whether each document had its effects once, and the poison ones none."""
        good = plan.documents - POISON_DOCUMENTS
        return (self.lost, self.doubled, self.rows, self.counter, self.dead) == (0, 0, good, good, POISON_DOCUMENTS)


@dataclass(slots=True)
class Course:
    """How far it had come at which second, for the plot."""

    seconds: list[float] = field(default_factory=list)
    done: list[int] = field(default_factory=list)


def run(config: Settings, plan: Plan, console: Console) -> tuple[Numbers, Course]:
    """Everything, and everything removed again. Raises Unfinished if the documents are not done in time."""
    home = config.home.resolve()
    with services.stack(config, console), exclusive(home / "run" / "lab.lock", console):
        forget(config)  # what a run left that was killed itself
        start_at_end(config)
        trial = _Trial(config, plan)
        try:
            with _bars(console) as bars:
                trial.play(bars)
            return trial.numbers(), trial.course
        finally:
            trial.end()
            with suppress(*_DOWN):  # then the next run forgets; what went wrong here is to be heard
                forget(config)


class _Trial:
    """One run: what saves, what reads, and what kills."""

    def __init__(self, config: Settings, plan: Plan) -> None:
        self.course = Course()
        self._config = config
        self._plan = plan
        self._saver = _Saver(config, plan.documents)
        self._servers = _ServerKiller(config, self._saver) if plan.servers else None
        log = LocalProcess(GROUP, config.home.resolve()).log_file
        self._fleet = Fleet(config, plan.conditions, plan.workers, log)
        self._kills = 0
        self._seconds = 0.0

    def play(self, bars: Progress) -> None:
        """Save and kill until all is done, kill all at once, and wait until the log is read to its end once more."""
        began = time.monotonic()
        self._saver.start()
        if self._servers:
            self._servers.start()
        self._kill_until_done(bars, began)
        self._seconds = time.monotonic() - began
        # What was written last is hardly committed yet: so this death surely falls between a write and its commit.
        self._kills += self._fleet.kill_all()
        if self._servers:
            self._servers.finish()
        _until(self._is_read, "the group has not committed to the end of the log")
        self._fleet.stop()

    def numbers(self) -> Numbers:
        with connect(self._config) as connection:
            counted = _sql.tally(connection, reader=GROUP, owner_id=OWNER, counter=COUNTER)
        kills = self._kills + (self._servers.kills if self._servers else 0)
        return Numbers(*(*counted, kills, round(self._seconds, 1)))

    def end(self) -> None:
        """Let nothing of it run on."""
        self._saver.stop()
        if self._servers:
            self._servers.stop()
        self._fleet.stop()

    def _kill_until_done(self, bars: Progress, began: float) -> None:
        saving, doing = (bars.add_task(name, total=self._plan.documents) for name in ("saved", "done"))
        pause = self._plan.kill_every_seconds
        next_kill, done, moved_at = began + pause, 0, began
        while done < self._plan.documents:
            time.sleep(_PAUSE_SECONDS)
            now = time.monotonic()
            if now >= next_kill and now - moved_at < STANDSTILL_SECONDS:
                next_kill = max(now, next_kill + pause)
                self._fleet.kill_one()
                self._kills += 1
            self._fleet.tend()
            before, done = done, self._look(now - began, done)
            moved_at = now if done > before else moved_at
            bars.update(saving, completed=self._saver.saved)
            bars.update(doing, completed=done, description=f"done, after {self._kills} kills")
            for one in filter(None, (self._saver, self._servers)):
                one.raise_if_failed()
            if now - self._saver.last_at > SECONDS_MAX:
                raise Unfinished(f"{done:,} of {self._plan.documents:,} documents are done: see `streams logs {GROUP}`")

    def _look(self, seconds: float, done: int) -> int:
        """How many are done; as many as before while it is not time to look, or Postgres does not answer."""
        if self.course.seconds and seconds - self.course.seconds[-1] < _LOOK_SECONDS:
            return done
        with suppress(*_DOWN), connect(self._config) as connection:
            done = sum(_sql.standing(connection, reader=GROUP))
        self.course.seconds.append(seconds)
        self.course.done.append(done)
        return done

    def _is_read(self) -> bool:
        self._fleet.tend()
        admin = GroupsAdmin(self._config)
        committed = admin.committed([GROUP]).get(GROUP, {})
        return all(committed.get(partition) == log.end for partition, log in admin.logs(_partitions()).items())


class _Aside(ABC):
    """Work in a thread."""

    def __init__(self) -> None:
        self._stopped = Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Let it come to its end. Raises what it failed with."""
        if self._thread.is_alive():
            self._thread.join(SECONDS_MAX)
        self.raise_if_failed()

    def stop(self) -> None:
        """Let it come to an early end, whatever it says."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(SECONDS_MAX)

    def raise_if_failed(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error

    @abstractmethod
    def _work(self) -> None: ...


class _Saver(_Aside):
    """Saves at a steady rate; a save that Postgres did not answer is made again under the same key."""

    def __init__(self, config: Settings, documents: int) -> None:
        super().__init__()
        self.saved = 0
        self.last_at = time.monotonic()
        self._config = config
        self._codec = Codec(Registry(config))
        self._total = documents
        self._name = f"{OWNER}-{uuid4().hex[:8]}"

    def reaches(self, share: float) -> bool:
        """Wait until so much is saved; False if it was stopped before."""
        while self.saved < self._total * share and not self._stopped.wait(_PAUSE_SECONDS):
            pass
        return not self._stopped.is_set()

    def _work(self) -> None:
        began = time.monotonic()
        while self.saved < self._total and not self._stopped.is_set():
            with suppress(*_DOWN), connect(self._config, autocommit=True) as connection:
                while self.saved < self._total and not self._stopped.is_set():
                    time.sleep(max(0.0, began + self.saved / SAVES_PER_SECOND - time.monotonic()))
                    self._save(connection, self.saved)
                    self.saved += 1
                    self.last_at = time.monotonic()
            time.sleep(_PAUSE_SECONDS)

    def _save(self, connection: psycopg.Connection[Any], number: int) -> None:
        every = self._total // POISON_DOCUMENTS
        title = POISON if number % every == every // 2 else "a title"
        document = Document(f"{self._name}-{number}", OWNER, title, "a body")
        save(connection, self._codec.encode, document, Origin(idempotency_key=document.document_id))


class _ServerKiller(_Aside):
    """Kills one server after the other while saves go on, and heals each as `streams up` does."""

    def __init__(self, config: Settings, saver: _Saver) -> None:
        super().__init__()
        self.kills = 0
        self._config = config
        self._saver = saver

    def _work(self) -> None:
        quiet = Console(file=io.StringIO())
        for number, name in enumerate(SERVERS, start=1):
            if not self._saver.reaches(number / (len(SERVERS) + 1)):
                return
            server = LocalProcess(name, self._config.home.resolve()).running()
            if server is not None:
                server.kill()
                await_deaths([server], SECONDS_MAX)
                self.kills += 1
            local.up(self._config, quiet)


# ---------------------------------------------------------------------------------------------- before and after


def start_at_end(config: Settings) -> None:
    """Let the group begin with what is saved from now on."""
    logs = GroupsAdmin(config).logs(_partitions())
    ExactOffsets(config).write(GROUP, {partition: Commit(log.end) for partition, log in logs.items()})


def forget(config: Settings) -> None:
    """Remove the reader and its documents: rows, topic and group. Waits until the relay needs the topic no more."""
    letters = {"letters": _LETTERS}
    with connect(config, autocommit=True) as connection, PublishedEvents(config) as published:
        _until(
            lambda: all(row.topic != _LETTERS for row in unpublished(connection, published)),
            "the relay has not sent the dead letters",
        )
        _sql.forget_results(connection, reader=GROUP, owner_id=OWNER)
        _sql.forget_documents(connection, owner_id=OWNER, **letters)
        _sql.forget_topic(connection, **letters)
    topics = TopicsAdmin(config)
    if _LETTERS in topics.partitions():
        topics.delete(_LETTERS)
    admin = GroupsAdmin(config)
    _until(lambda: _forget_group(config, admin), f"the group {GROUP} still has members")


def _forget_group(config: Settings, admin: GroupsAdmin) -> bool:
    dismiss(config, admin, GROUP)
    return admin.delete(GROUP)


def _partitions() -> list[Partition]:
    return [Partition(DOCUMENTS_SAVED.name, number) for number in range(DOCUMENTS_SAVED.partitions)]


def _until(reached: Callable[[], bool], why_not: str) -> None:
    """Wait; raises Unfinished when it takes too long. A server that does not answer is asked again."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        with suppress(*_DOWN):
            if reached():
                return
        time.sleep(_LOOK_SECONDS)
    raise Unfinished(f"{why_not} after {SECONDS_MAX:.0f} s")


def _bars(console: Console) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=console)
