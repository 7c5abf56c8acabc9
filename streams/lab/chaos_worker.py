"""The workers of `streams lab chaos`: their sinks, of which one is the control's, and their processes.

Called by streams/lab/chaos.py; each worker is a `streams.ops.worker.work` of its own, forked from a process that has
imported everything, so that one that is killed is back before the next is killed.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

from streams.config import Settings
from streams.contract import Reader
from streams.core.outcomes import Done
from streams.errors import ReaderError, StreamsError
from streams.lab.chaos_reader import GROUP, account
from streams.ops.worker import Wiring, work
from streams.runtime.ports import Partition, Progress, Result
from streams.sinks.letters import Encode
from streams.sinks.postgres import Connection, PostgresSink

STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under what the workers run: with the sink's guard or without, and how long after a write they may commit."""

    guard: bool = True
    commit_delay_seconds: float = 0.0

    def sink(self, config: Settings, made: Reader, worker: str, encode: Encode) -> PostgresSink:
        """The sink of one worker."""
        kind = Guarded if self.guard else Unguarded
        return kind(self.commit_delay_seconds, config, made, worker, encode)


class Guarded(PostgresSink):
    """The product's own sink, with a pause after each transaction: the offsets are not committed yet."""

    def __init__(self, delay_seconds: float, config: Settings, made: Reader, worker: str, encode: Encode) -> None:
        super().__init__(config, made, worker, encode)
        self._delay_seconds = delay_seconds

    def write(self, epochs: Mapping[Partition, int], results: Sequence[Result]) -> None:
        super().write(epochs, results)
        time.sleep(self._delay_seconds)


class Unguarded(Guarded):
    """The control: it neither asks what was done before nor notes what is done."""

    def lookup(self, document_ids: Iterable[str]) -> dict[str, Progress]:
        return {}

    def _guard(self, connection: Connection, results: list[Result]) -> list[tuple[Result, bool]]:
        return [(one, True) for one in results if isinstance(one.outcome, Done)]


class Fleet:
    """Some workers; one that ends, or is killed, is started again."""

    def __init__(self, config: Settings, conditions: Conditions, workers: int, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._make = partial(context.Process, target=_work, args=(config, conditions, log), name=GROUP, daemon=True)
        self._workers: list[BaseProcess] = [self._started() for _ in range(workers)]

    def kill_one(self) -> None:
        """SIGKILL, and another in its place."""
        self._kill([random.randrange(len(self._workers))])

    def kill_all(self) -> int:
        """SIGKILL to all at once, as when the power fails, and others in their place. How many that were."""
        self._kill(range(len(self._workers)))
        return len(self._workers)

    def tend(self) -> None:
        """Start again what has ended by itself, as a worker does that finds a server down. Raises ReaderError."""
        if any(worker.exitcode == ReaderError.exit_code for worker in self._workers):
            raise ReaderError(f"its workers cannot run: see `streams logs {GROUP}`")
        self._workers = [worker if worker.is_alive() else self._started() for worker in self._workers]

    def stop(self) -> None:
        """SIGTERM: they finish what runs, and commit."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.join(STOP_SECONDS)
            worker.kill()
            worker.join()

    def _kill(self, victims: Sequence[int]) -> None:
        for victim in victims:
            self._workers[victim].kill()
        for victim in victims:
            self._workers[victim].join()
            self._workers[victim] = self._started()

    def _started(self) -> BaseProcess:
        made = self._make()
        made.start()
        return made


def _work(config: Settings, conditions: Conditions, log: Path) -> None:
    """In the forked process; what it says goes to the log."""
    with log.open("ab") as said:
        os.dup2(said.fileno(), sys.stdout.fileno())
        os.dup2(said.fileno(), sys.stderr.fileno())
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s", level=logging.INFO)
    try:
        work(config, account, _lab_lives, None, Wiring(make_sink=conditions.sink))
    except StreamsError as error:
        print(f"error: {error}", flush=True)
        sys.exit(error.exit_code)


def _lab_lives() -> bool:
    """The lab's process, not the one that forked us: that lives for as long as any of us does."""
    lab = multiprocessing.parent_process()
    return lab is not None and lab.is_alive()
