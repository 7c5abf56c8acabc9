"""A worker's word to the supervisor that started it: its status once a second, a line of JSON each, through a pipe.

The worker never waits for its reader: what does not fit into the pipe is dropped, and a reader that is gone is no
fault of the worker's. Called by streams/ops/worker.py at one end and by streams/ops/supervisor.py at the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from streams.runtime.status import Status

if TYPE_CHECKING:  # the supervisor needs nothing of what a loop needs
    from streams.runtime.loop import Loop

REPORT_SECONDS = 1.0
_CHUNK_BYTES = 65_536
# A status, or the sentence with which a worker ended.
_REPORT: TypeAdapter[Status | str] = TypeAdapter(Status | str)


class Reporter:
    """The worker's end."""

    def __init__(self, write_end: int) -> None:
        os.set_blocking(write_end, False)
        os.set_inheritable(write_end, False)  # a process that a handler starts is not to hold it
        self._write_end = write_end
        self._unsent = b""
        self._lock = Lock()

    def tell(self, report: Status | str) -> None:
        """Hand a report over; dropped if the one before it has not gone out yet."""
        with self._lock:
            self._unsent = self._unsent or _REPORT.dump_json(report) + b"\n"
            with suppress(OSError):  # the pipe is full, or nobody reads any more
                self._unsent = self._unsent[os.write(self._write_end, self._unsent) :]

    @contextmanager
    def reporting(self, loop: Loop) -> Iterator[None]:
        """Tell the loop's status every second, and once more when it has ended."""
        ended = Event()
        thread = Thread(target=self._report, args=(loop, ended), name="reporter", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.tell(loop.status())

    def _report(self, loop: Loop, ended: Event) -> None:
        self.tell(loop.status())
        while not ended.wait(REPORT_SECONDS):
            self.tell(loop.status())


def understood(line: bytes) -> Status | str | None:
    """What a worker told; None if it is of another version, as after an upgrade in place."""
    try:
        return _REPORT.validate_json(line)
    except ValidationError:
        return None


class Lines:
    """The lines that came through a pipe so far; never waits for more."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()  # the write end is the child's: see `given`
        os.set_blocking(self._read_end, False)
        self._rest = b""

    def given(self) -> None:
        """The child has its end: ours would keep the pipe open."""
        os.close(self.write_end)

    def read(self) -> list[bytes]:
        """The lines that are whole."""
        *lines, self._rest = (self._rest + b"".join(self._chunks())).split(b"\n")
        return lines

    def close(self) -> list[bytes]:
        """What is left, the last line be it whole or not; then let go, whoever else holds the other end."""
        lines = [*self.read(), self._rest]
        os.close(self._read_end)
        return [line for line in lines if line]

    def _chunks(self) -> Iterator[bytes]:
        with suppress(BlockingIOError):
            while chunk := os.read(self._read_end, _CHUNK_BYTES):
                yield chunk
