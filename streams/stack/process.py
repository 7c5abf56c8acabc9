"""One local server process: started detached, with a log and a pid file below the home.

A pid file holds the pid and the moment that the process started, so a pid that the system gave to another process
since then is never taken for ours. Called by `streams.stack.local` for the servers and by whoever runs the API as
part of the local stack (`LocalProcess("api", home)`); calls nothing of ours.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

LOG_BYTES_MAX = 16 * 1024 * 1024  # a longer log is set aside at the next start, and the one before it dropped
STOP_SECONDS_MAX = 20.0
# Start times come from the boot time, which the system may correct by a second.
_SAME_START_SECONDS = 2.0


@dataclass(frozen=True)
class LocalProcess:
    """The process called `name` of the stack in `home`, whether it runs or not."""

    name: str
    home: Path

    @property
    def log_file(self) -> Path:
        return self.home / "logs" / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        return self.home / "run" / f"{self.name}.json"

    def start(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, user: str | None = None
    ) -> psutil.Process:
        """Start `command` in a session of its own; `env` is added to the environment. Raises OSError."""
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        if self.log_file.exists() and self.log_file.stat().st_size > LOG_BYTES_MAX:
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
        with self.log_file.open("ab") as log:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=self.log_file.parent,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )
        process = psutil.Process(child.pid)
        _write(self.pid_file, {"pid": child.pid, "started": process.create_time()})
        return process

    def running(self) -> psutil.Process | None:
        """The process if it is ours and alive, else None."""
        try:
            entry = json.loads(self.pid_file.read_text())
            process = psutil.Process(entry["pid"])
            ours = abs(process.create_time() - entry["started"]) < _SAME_START_SECONDS
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            return None
        return process if ours and not _is_dead(process) else None

    def stop(self, with_signal: int = signal.SIGTERM, seconds: float = STOP_SECONDS_MAX) -> bool:
        """Ask the process to end, kill it and its children after `seconds`; True if there was one to stop."""
        process = self.running()
        if process is not None:
            family = [process, *_children(process)]
            with suppress(psutil.NoSuchProcess):
                process.send_signal(with_signal)
            psutil.wait_procs([process], timeout=seconds)
            _kill(family)
        self.pid_file.unlink(missing_ok=True)
        return process is not None

    def memory_bytes(self) -> int:
        """What the process and its children hold of the machine's memory; shared pages count once. 0 if none runs."""
        process = self.running()
        return sum(_memory(each) for each in [process, *_children(process)]) if process else 0

    def last_words(self) -> str:
        """The last line of the log that is not part of a stack trace, to say why a process died."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as log:
            log.seek(max(0, self.log_file.stat().st_size - 65_536))
            lines = log.read().decode("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip() and not line[0].isspace()), "")


def _write(path: Path, entry: dict[str, float]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(entry))
    new.replace(path)


def _is_dead(process: psutil.Process) -> bool:
    """Also true of a zombie, which is reaped if it is our child."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return False
        process.wait(timeout=0)
    except psutil.Error:
        pass
    return True


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _kill(processes: list[psutil.Process]) -> None:
    """SIGKILL those that still run, and wait until they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=5)


def _memory(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.AccessDenied:
        memory = process.memory_info()
    except psutil.NoSuchProcess:
        return 0
    return int(getattr(memory, "pss", memory.rss))
