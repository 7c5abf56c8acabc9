"""Several workers under one command: start them, start again what dies, pass signals on.

Called by `streams run` when there is more than one worker; each worker is a `streams run` of its own.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

from streams.errors import ConfigError, ReaderError

log = logging.getLogger(__name__)

BACKOFF_SECONDS = 0.5
BACKOFF_SECONDS_MAX = 30.0
HEALTHY_SECONDS = 60.0  # a worker that lived this long begins with the least wait again
# A worker drains for 10 s and its session ends 6 s after it falls silent: past this it hangs, and is killed.
STOP_SECONDS = 30.0
# No restart mends these.
_HOPELESS = (ConfigError.exit_code, ReaderError.exit_code)


@dataclass(slots=True)
class _Worker:
    group: str
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_after: float = 0.0
    failures: int = field(default=0)


def supervise(groups: list[str], workers: int, parent: int) -> int:
    """Run `workers` of each reader until a signal comes, or one ends in a way that no restart mends.

    Returns the exit code: 0 after a signal. `parent` is this process's id.
    """
    asked = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: asked.append(received))
    fleet = [_Worker(group) for group in groups for _ in range(workers)]
    code = 0
    while not asked and not code:
        for worker in fleet:
            code = code or _tend(worker, parent)
        time.sleep(0.05)
    _stop(fleet)
    return code


def _tend(worker: _Worker, parent: int) -> int:
    """Start it, or start it again when it is time; an exit code if it is hopeless."""
    now = time.monotonic()
    if worker.process is None:
        if now >= worker.start_after:
            worker.process, worker.started_at = _start(worker.group, parent), now
        return 0
    code = worker.process.poll()
    if code is None:
        return 0
    worker.process = None
    if code in _HOPELESS:
        return code
    worker.start_after = now + _wait_seconds(worker, code, now - worker.started_at)
    log.warning("%s: a worker ended (%s) and starts again", worker.group, _how(code))
    return 0


def _start(group: str, parent: int) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in the terminal reaches this process alone, which passes it on once.
    command = [sys.executable, "-m", "streams.cli.main", "run", group, "--parent", str(parent)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def _wait_seconds(worker: _Worker, code: int, lived_seconds: float) -> float:
    """Killed from outside: at once. Failed by itself: longer each time."""
    if code < 0 or lived_seconds > HEALTHY_SECONDS:
        worker.failures = 0
        return 0.0
    worker.failures += 1
    return float(min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2 ** min(worker.failures - 1, 10)))


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _stop(fleet: list[_Worker]) -> None:
    running = [worker.process for worker in fleet if worker.process is not None]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.error("worker %s does not end; it is killed, and what it had not committed is read again", process.pid)
            process.kill()
            process.wait()
