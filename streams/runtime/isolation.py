"""Records that may have killed a worker run in child processes, all others where the reader's kind says.

An executor over two others. Called by the loop's dispatch like any; put together by streams/ops/worker.py.
"""

from __future__ import annotations

from collections.abc import Collection

from streams.contract import Reader
from streams.errors import ReaderError
from streams.runtime.executors import Executor, Processes, Results, executor_for
from streams.runtime.records import Run

CHILDREN = 2  # each has a model or client of its own; what is suspect is little, and soon through


class Isolating:
    """`suspects` are started when the first of them comes."""

    def __init__(self, handlers: Executor, suspects: Executor) -> None:
        self._handlers = handlers
        self._suspects = suspects
        self._suspects_started = False
        self.results: Results = handlers.results
        suspects.results = handlers.results

    def start(self) -> None:
        self._handlers.start()

    def submit(self, lanes: Collection[Run]) -> None:
        suspect = [lane for lane in lanes if lane.suspect]
        if suspect:
            self._run_apart(suspect)
            lanes = [lane for lane in lanes if not lane.suspect]
        self._handlers.submit(lanes)

    def stop(self) -> None:
        self._handlers.stop()
        if self._suspects_started:
            self._suspects.stop()

    def _run_apart(self, lanes: list[Run]) -> None:
        """Raises what keeps the processes from starting, which ends the worker: in it they could kill it again."""
        if not self._suspects_started:
            try:
                self._suspects.start()
            except ReaderError as error:
                raise ReaderError(
                    f"records that may have killed a worker need a process of their own: {error}"
                ) from error
            self._suspects_started = True
        self._suspects.submit(lanes)


def isolating(reader: Reader) -> Executor:
    """The executor of the handler's kind, with children for what is suspect."""
    return Isolating(executor_for(reader), Processes(reader, CHILDREN))
