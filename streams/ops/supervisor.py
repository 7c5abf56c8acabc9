"""The workers of one command: start them, hear them, start again what dies, pass signals on.

Called by `streams run`, which each worker is too, marked by `--parent`. A worker says how it is through a pipe
(streams/ops/reports.py); what it prints goes where our own output goes, or, if there is a screen, above its table.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streams.errors import ConfigError, ReaderError
from streams.ops.fleet import Rate, Row, Tally, finished
from streams.ops.reports import Lines, understood

log = logging.getLogger(__name__)

BACKOFF_SECONDS = 0.5
BACKOFF_SECONDS_MAX = 30.0
HEALTHY_SECONDS = 60.0  # a worker that lived this long begins with the least wait again
# A worker drains for 10 s and its session ends 6 s after it falls silent: past this it hangs, and is killed.
STOP_SECONDS = 30.0
TICK_SECONDS = 0.05
LOOK_SECONDS = 1.0  # how often rates are counted and the screen is drawn
AT_ONCE_EXIT_CODE = 130
# No restart mends these.
_HOPELESS = {error.exit_code: error for error in (ConfigError, ReaderError)}


class Screen(Protocol):
    """A terminal that shows the fleet."""

    takes_errors: bool  # whether stderr is to be shown there too, or goes where ours goes

    def write(self, lines: Sequence[str]) -> None:
        """Lines above the table."""
        ...

    def show(self, rows: Sequence[Row]) -> None:
        """The table."""
        ...


@dataclass(slots=True)
class _Process:
    """One life of a worker."""

    popen: subprocess.Popen[bytes]
    started_at: float
    reports: Lines
    output: Lines | None  # with a screen


@dataclass(slots=True)
class _Worker:
    group: str
    process: _Process | None = None
    start_after: float = 0.0
    failures: int = 0
    restarts: int = 0
    tally: Tally = field(default_factory=Tally)
    rate: Rate = field(default_factory=Rate)
    last_words: str = ""
    is_over: bool = False


class Supervisor:
    """`workers` of each reader."""

    def __init__(self, groups: Sequence[str], workers: int, screen: Screen | None = None) -> None:
        self._fleet = [_Worker(group) for group in groups for _ in range(workers)]
        self._screen = screen
        self._asked = 0  # signals
        self._looked_at = 0.0

    def run(self) -> int:
        """Until a signal comes: 0, or 130 after a second one, which kills the workers.

        Raises ConfigError or ReaderError, in the words of a worker that ended in a way that no restart mends.
        """
        _obey(self._ask)
        try:
            while not self._asked:
                for worker in self._fleet:
                    self._tend(worker)
                self._pause()
        finally:
            self._stop()
            _obey(signal.SIG_IGN)  # all is over, and one more Ctrl-C is not to change the exit code
        return 0 if self._asked < 2 else AT_ONCE_EXIT_CODE

    def look(self) -> list[Row]:
        """The workers as they are now; another thread may ask."""
        now = time.monotonic()
        return [_row(worker, now) for worker in self._fleet]

    def _ask(self, _number: int, _frame: object) -> None:
        self._asked += 1

    # ----------------------------------------------------------------------------------- one worker's life

    def _tend(self, worker: _Worker) -> None:
        """Start it, or start it again when it is time. Raises if it is hopeless."""
        if worker.process is None:
            if time.monotonic() >= worker.start_after:
                worker.process = self._start(worker.group)
            return
        code = worker.process.popen.poll()
        if code is not None:
            self._ended(worker, worker.process, code)

    def _start(self, group: str) -> _Process:
        reports, output = Lines(), Lines() if self._screen else None
        errors = output.write_end if output and self._screen and self._screen.takes_errors else None
        popen = subprocess.Popen(
            _command(group, reports.write_end, terminal=errors is not None),
            stdin=subprocess.DEVNULL,
            stdout=output.write_end if output else None,
            stderr=errors,
            pass_fds=[reports.write_end],
            start_new_session=True,  # Ctrl-C in the terminal reaches this process alone, which passes it on once
        )
        for pipe in filter(None, (reports, output)):
            pipe.given()
        return _Process(popen, time.monotonic(), reports, output)

    def _ended(self, worker: _Worker, process: _Process, code: int) -> None:
        """Keep its totals, and say when it starts again. Raises ConfigError or ReaderError if it is hopeless."""
        self._hear(worker, process, last=True)
        name = worker.tally.status.worker if worker.tally.status else "-"
        worker.process, worker.tally = None, worker.tally.over()
        if code in _HOPELESS:
            worker.is_over = True
            raise _HOPELESS[code](worker.last_words or f"a worker of {worker.group} ended: {_how(code)}")
        now = time.monotonic()
        wait = _wait_seconds(worker, code, now - process.started_at)
        worker.start_after, worker.restarts = now + wait, worker.restarts + 1
        when = f"in {wait:g} s" if wait else "at once"
        about = {"reader": worker.group, "worker": name}
        log.warning("%s: a worker ended (%s) and starts again %s", worker.group, _how(code), when, extra=about)

    def _hear(self, worker: _Worker, process: _Process, *, last: bool = False) -> None:
        """Take what the process told and printed since."""
        for line in process.reports.close() if last else process.reports.read():
            report = understood(line)
            if isinstance(report, str):
                worker.last_words = report
            elif report is not None:
                worker.tally = worker.tally.heard(report, time.monotonic())
        if process.output is not None and self._screen is not None:
            printed = process.output.close() if last else process.output.read()
            self._screen.write([line.decode("utf-8", "replace") for line in printed])

    # -------------------------------------------------------------------------------------- all of them

    def _pause(self) -> None:
        """Until the next round: hear all, and from time to time look at them."""
        time.sleep(TICK_SECONDS)
        for worker in self._fleet:
            if worker.process is not None:
                self._hear(worker, worker.process)
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        for worker in self._fleet:
            worker.rate.note(finished(worker.tally), now)
        if self._screen is not None:
            self._screen.show(self.look())

    def _stop(self) -> None:
        """Pass the signal on, and wait; a second one, or a worker that hangs, ends in SIGKILL."""
        alive = [(worker, worker.process) for worker in self._fleet if worker.process is not None]
        for _, process in alive:
            process.popen.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        while alive:
            self._pause()
            at_once = self._asked > 1
            for worker, process in alive:
                if process.popen.poll() is None and (at_once or time.monotonic() > deadline):
                    _kill(worker, process, at_once)
            alive = [(worker, process) for worker, process in alive if not self._is_over(worker, process)]
        if self._screen is not None:
            self._screen.show(self.look())

    def _is_over(self, worker: _Worker, process: _Process) -> bool:
        if process.popen.poll() is None:
            return False
        self._hear(worker, process, last=True)
        worker.process, worker.is_over = None, True
        return True


def _obey(handler: Callable[[int, object], None] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _command(group: str, report: int, *, terminal: bool) -> list[str]:
    """Of a worker that tells how it is through the pipe `report`; what it logs is for people if it is seen by some."""
    command = [sys.executable, "-m", "streams.cli.main", "run", group]
    return [*command, "--parent", str(os.getpid()), "--report", str(report), *["--terminal"] * terminal]


def _kill(worker: _Worker, process: _Process, at_once: bool) -> None:
    what = "is killed at once" if at_once else "does not end; it is killed"
    log.error(
        "%s: worker %s %s, and what it had not committed is read again",
        worker.group,
        process.popen.pid,
        what,
        extra={"reader": worker.group},
    )
    process.popen.kill()
    process.popen.wait()


def _row(worker: _Worker, now: float) -> Row:
    process, tally = worker.process, worker.tally
    heard_at = tally.heard_at if tally.status else process.started_at if process else now
    return Row(
        reader=worker.group,
        tally=tally,
        silent_seconds=max(0.0, now - heard_at),
        life="runs" if process else "over" if worker.is_over else "waits",
        restarts_in_seconds=max(0.0, worker.start_after - now),
        restarts=worker.restarts,
        rate_per_second=worker.rate.per_second(),
    )


def _wait_seconds(worker: _Worker, code: int, lived_seconds: float) -> float:
    """Killed from outside: at once. Failed by itself: longer each time."""
    if code < 0 or lived_seconds > HEALTHY_SECONDS:
        worker.failures = 0
        return 0.0
    worker.failures += 1
    return float(min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2 ** min(worker.failures - 1, 10)))


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
