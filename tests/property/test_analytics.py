"""Analytics give SQL's totals, whatever is lost, doubled, delayed, killed, frozen or compacted on the way.

A world of one partition: Postgres saves and deletes; the log takes the events, some of them twice; workers come, read,
lose events as Faust does, fail to send, are killed with what they had sent on its way, or freeze and go on beside their
successor; the changelog takes what arrives and is compacted. The group's offsets are absent: nothing asks for them.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.analytics import changelog
from streams.analytics.keeper import Keeper
from streams.analytics.views import Sums
from streams.contract import DocumentSaved

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PARTITION = 0
STEPS, WORKERS_MAX = 60, 3
Record = tuple[bytes, bytes | None]


@dataclass(eq=False)
class Sending:
    """A record on its way: the world says when it arrives, or that it does not."""

    record: Record
    is_done: bool = False
    is_lost: bool = False

    def done(self) -> bool:
        return self.is_done

    def result(self) -> object:
        if self.is_lost:
            raise ConnectionError
        return None

    def __await__(self) -> Generator[None, None, object]:
        while not self.is_done:
            yield
        return self.result()


@dataclass(eq=False)
class Worker:
    """A keeper, where it reads, and what it has sent that has not arrived. `saving` is a save under way."""

    keeper: Keeper
    sent: list[Sending]
    at: int = 0
    before: int = -1
    saving: Coroutine[Any, Any, Any] | None = None
    has_failed: bool = False

    def take(self, offset: int, before: int | None) -> None:
        """It waits for nothing but the registry, and so not here."""
        self.run(self.keeper.take(PARTITION, offset, before, str(offset).encode()))

    def save(self) -> None:
        """Begin, or go on, to write the position; it waits until that has arrived."""
        self.saving = self.saving or self.keeper.save()
        if self.run(self.saving):
            self.saving = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> bool:
        """As far as it comes; whether to its end. A failure ends the worker."""
        try:
            coroutine.send(None)
        except StopIteration:
            return True
        except ConnectionError:
            self.has_failed = True
            return True
        return False


class World:
    """Each step is one thing that happens."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.saved: dict[str, DocumentSaved] = {}
        self.log: list[tuple[int, DocumentSaved]] = []
        self.end = 0
        self.changelog: list[Record] = []
        self.workers: list[Worker] = []
        self.gone: list[Worker] = []  # dead, but what they sent may still arrive

    def step(self) -> None:
        weights = {
            self.save: 3,
            self.emit_again: 1,
            self.start: 2,
            self.read: 6,
            self.read_what_is_old: 1,
            self.read_again: 2,
            self.write_position: 4,
            self.arrive: 6,
            self.fail: 1,
            self.kill: 0.5,
            self.compact: 1,
        }
        (happens,) = self.random.choices(list(weights), list(weights.values()))
        with suppress(IndexError):  # there is none yet of what it needs
            happens()
        failed = [worker for worker in self.workers if worker.has_failed]
        for worker in failed:
            self.bury(worker)

    # ------------------------------------------------------------------------------------- Postgres, the log

    def save(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            document, owner = self.random.choice("ab"), self.random.choice(["ada", "bob"])
            version = self.saved[document].version + 1 if document in self.saved else 1
            is_alive = self.random.random() < 0.8
            body, kind = "x" * self.random.randrange(9) * is_alive, "saved" if is_alive else "deleted"
            self.saved[document] = DocumentSaved(document, owner, version, "", body, NOW, kind)  # type: ignore[arg-type]
            self.append(self.saved[document])

    def emit_again(self) -> None:
        self.append(self.random.choice(self.log)[1])

    def append(self, event: DocumentSaved) -> None:
        """Some events are followed by their transaction's marker, so there are gaps."""
        self.log.append((self.end, event))
        self.end += self.random.randint(1, 2)

    # ------------------------------------------------------------------------------------------- workers

    def start(self) -> None:
        """Those before it go on: they may be frozen, and not know."""
        if len(self.workers) < WORKERS_MAX:
            self.workers.append(self.new_worker())

    def new_worker(self) -> Worker:
        sent: list[Sending] = []

        async def write(_partition: int, key: bytes, value: bytes | None) -> Any:
            sent.append(Sending((key, value)))
            return sent[-1]

        worker = Worker(Keeper(lambda value: dict(self.log)[int(value or b"")], write), sent)
        worker.keeper.take_over(PARTITION)
        for record in self.changelog:
            worker.keeper.recover(PARTITION, *record)
        seek(worker)
        return worker

    def read(self) -> None:
        """It fetches some events; now and then one of them never reaches the agent."""
        worker = self.random.choice(self.workers)
        for _ in range(self.random.randint(1, 4)):
            self.read_one(worker, is_lost=self.random.random() < 0.1)

    def read_one(self, worker: Worker, is_lost: bool = False) -> bool:
        found = next((offset for offset, _ in self.log if offset >= worker.at), None)
        if found is None or worker.has_failed:
            return False
        if not is_lost:
            worker.take(found, worker.before)
        worker.at, worker.before = found + 1, found
        return True

    def read_what_is_old(self) -> None:
        """Something that was buffered before it was sought."""
        self.random.choice(self.workers).take(self.random.choice(self.log)[0], None)

    def read_again(self) -> None:
        """The group changed and the partition is still this worker's, which reads its own changelog; or for a hole."""
        worker = self.random.choice(self.workers)
        for record in self.changelog:
            worker.keeper.recover(PARTITION, *record)
        seek(worker)

    def write_position(self) -> None:
        self.random.choice(self.workers).save()

    def arrive(self) -> None:
        """What one worker sends arrives in its order."""
        worker = self.random.choice([*self.workers, *self.gone])
        count = self.random.randint(1, 8)
        for sending in worker.sent[:count]:
            self.changelog.append(sending.record)
            sending.is_done = True
        del worker.sent[:count]

    def fail(self) -> None:
        """One record is lost on its way, which its worker will hear of; those after it may arrive."""
        worker = self.random.choice(self.workers)
        sending = worker.sent.pop(0)
        sending.is_done = sending.is_lost = True

    def kill(self) -> None:
        self.bury(self.random.choice(self.workers))

    def bury(self, worker: Worker) -> None:
        """Of what it had sent the first part may still arrive."""
        self.workers.remove(worker)
        self.gone.append(worker)
        if worker.saving is not None:
            worker.saving.close()
        del worker.sent[self.random.randint(0, len(worker.sent)) :]

    # ---------------------------------------------------------------------------------------- the broker

    def compact(self) -> None:
        """Of each key only the last record stays, in any part from the start; tombstones stay or go."""
        upto, keeps_tombstones = self.random.randint(0, len(self.changelog)), self.random.random() < 0.5
        head, tail = self.changelog[:upto], self.changelog[upto:]
        last = {key: number for number, (key, _) in enumerate(head)}
        kept = [(key, value) for number, (key, value) in enumerate(head) if last[key] == number]
        self.changelog = [each for each in kept if keeps_tombstones or each[1] is not None] + tail

    # -------------------------------------------------------------------------------------------- the rules

    def check_positions(self) -> None:
        """Below any position in the changelog every event is in the table, or a later version of its document is."""
        read = [changelog.read(*record) for record in self.changelog]
        positions = [each.offset for each in read if isinstance(each, changelog.Position)]
        rows = self.new_worker().keeper.views
        for offset, event in self.log:
            if positions and offset < max(positions):
                assert rows.version(PARTITION, event.document_id) >= event.version, (offset, event, positions)

    def check_totals(self, worker: Worker) -> None:
        """Who reads to the end has SQL's totals; who hears of a failure on the way ends."""
        while self.read_one(worker):
            pass
        if worker.has_failed:
            return
        assert not worker.keeper.has_holes
        assert worker.keeper.views.totals == sql(self.saved.values())
        for owner in ("ada", "bob"):
            mine = [event for event in self.saved.values() if event.owner_id == owner]
            assert dict(worker.keeper.views.owners(9)).get(owner, Sums()) == sql(mine)


def seek(worker: Worker) -> None:
    """Begin at the position, as the engine does."""
    position = worker.keeper.position(PARTITION) or 0
    worker.at, worker.before = position, position - 1
    worker.keeper.begin({PARTITION: position})


def sql(documents: Iterable[DocumentSaved]) -> Sums:
    """What Postgres counts in app.documents."""
    total = Sums()
    for event in documents:
        total.documents += event.type == "saved"
        total.deleted += event.type == "deleted"
        total.saves += event.version
        total.size_bytes += len(event.title.encode()) + len(event.body.encode())
    return total


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_totals_are_sqls_and_positions_are_true(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
        world.check_positions()
    for worker in world.workers:
        seek(worker)
        world.check_totals(worker)
    world.check_totals(world.new_worker())
