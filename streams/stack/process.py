"""One local server process: started detached, with a log and a pid file below the home.

The pid file holds the pid and the moment that the process started, so a pid that the system gave to another process
since then is never taken for ours. Called by `streams.stack.local` for the servers, and by whoever runs the API as a
part of the local stack (`LocalProcess("api", home)`); calls nothing of ours but files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from streams.stack.files import read_note, write_note

TOOL = "tool-"  # begins the names of those that run to their end, such as initdb
LOG_BYTES_MAX = 16 * 1024 * 1024  # a longer log is set aside at the next start, and the one before it dropped
STOP_SECONDS_MAX = 20.0
# Start times are counted from the boot time, which the system may correct by a second.
_SAME_START_SECONDS = 2.0
_SAID_BYTES_MAX = 65_536
_LOOK_SECONDS = 0.02
# The end of its input, which our death brings about, is no line.
_WHEN_TOLD = 'read -r go && exec "$@" </dev/null'


@dataclass(frozen=True, slots=True)
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
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stop_signal: int = signal.SIGTERM,
    ) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own, with `env` added to the environment. Raises OSError.

        It begins when its note is written: if we are killed before that, it does not, since nobody could find it.
        """
        for folder in (self.pid_file.parent, self.log_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        log_start = _rotate(self.log_file)
        with self.log_file.open("ab") as log:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _WHEN_TOLD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=self.log_file.parent,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )
        started = psutil.Process(child.pid).create_time()
        note = {"pid": child.pid, "started": started, "stop_signal": stop_signal, "log_start": log_start}
        write_note(self.pid_file, note)
        assert child.stdin
        with child.stdin as told:
            told.write(b"\n")
        return child

    def run(self, command: Sequence[str], seconds: float, user: str | None = None) -> tuple[bool, str]:
        """Run `command` to its end: whether it succeeded in time, and what it said. Raises OSError."""
        try:
            succeeded = self.start(command, user=user).wait(seconds) == 0
        except subprocess.TimeoutExpired:
            succeeded = False
        said = self._said()
        self.stop(seconds=0)
        return succeeded, said

    def running(self) -> psutil.Process | None:
        """The process if it is ours and alive, else None."""
        note = read_note(self.pid_file)
        try:
            process = psutil.Process(note["pid"])
            is_ours = abs(process.create_time() - note["started"]) < _SAME_START_SECONDS
        except (KeyError, psutil.Error):
            return None
        return process if is_ours and not _is_dead(process) else None

    def stop(self, seconds: float = STOP_SECONDS_MAX) -> bool:
        """Ask the process to end; after `seconds` kill it and its children. True if there was one to stop."""
        process = self.running()
        if process is not None:
            family = [process, *_children(process)]
            with suppress(psutil.NoSuchProcess):
                process.send_signal(read_note(self.pid_file)["stop_signal"])
            await_deaths([process], seconds)
            _kill(family)
        self.pid_file.unlink(missing_ok=True)
        return process is not None

    def wake(self) -> None:
        """Let the process and its children go on, if somebody has frozen them (SIGSTOP)."""
        process = self.running()
        for each in [process, *_children(process)] if process else []:
            with suppress(psutil.NoSuchProcess):
                each.resume()

    def memory_bytes(self) -> int:
        """Memory of the process and its children, shared pages counted once; 0 if it does not run."""
        process = self.running()
        return sum(_memory(each) for each in [process, *_children(process)]) if process else 0

    def last_words(self, begins: str = "") -> str:
        """The last line that the process logged, that begins so and is no part of a stack trace; empty if none is."""
        lines = self._said().splitlines()
        said = (line for line in reversed(lines) if line and not line[0].isspace())
        return next((line for line in said if line.startswith(begins)), "")

    def _said(self) -> str:
        """The end of what the process logged since it was started."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as log:
            log.seek(max(read_note(self.pid_file).get("log_start", 0), self.log_file.stat().st_size - _SAID_BYTES_MAX))
            return log.read().decode("utf-8", "replace")


def _rotate(log_file: Path) -> int:
    """Set a long log aside; gives the size of what is left."""
    size = log_file.stat().st_size if log_file.exists() else 0
    if size <= LOG_BYTES_MAX:
        return size
    log_file.replace(log_file.with_suffix(".log.1"))
    return 0


def await_deaths(processes: Sequence[psutil.Process], seconds: float) -> bool:
    """Whether all are dead within `seconds`. psutil's own wait goes on while a parent leaves a zombie unreaped."""
    deadline = time.monotonic() + seconds
    while not (all_dead := all(map(_is_dead, processes))) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return all_dead


def _is_dead(process: psutil.Process) -> bool:
    """Also true of a zombie, which is reaped if it is a child of ours."""
    try:
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
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
    await_deaths(processes, seconds=5)


def _memory(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
        return int(getattr(memory, "pss", memory.rss))
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
