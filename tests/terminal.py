"""A command in a terminal of its own: what stands on the screen, and the keys that are typed."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Thread

import pyte

COLUMNS, LINES = 200, 40
CTRL_C = b"\x03"


class Terminal:
    """The screen is kept up to date by a thread."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], list(command), {**env, "TERM": "xterm-256color"})
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        self.exit_code: int | None = None

    def lines(self) -> list[str]:
        """What stands on the screen now."""
        return [line.rstrip() for line in list(self._screen.display)]

    def type(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def end(self) -> int:
        """Wait for the command's end, and for the last of what it showed; its exit code."""
        self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._reader.join(10)
        return self.exit_code

    def close(self) -> None:
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.end()
        os.close(self._descriptor)

    def echoes(self) -> bool:
        """Whether keys are shown as they are typed."""
        return bool(termios.tcgetattr(self._descriptor)[3] & termios.ECHO)

    def _read(self) -> None:
        stream = pyte.ByteStream(self._screen)
        with suppress(OSError):  # the command, and with it the terminal's other end, is gone
            while data := os.read(self._descriptor, 65_536):
                stream.feed(data)


@contextmanager
def terminal(command: Sequence[str], env: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a command in a terminal; what still runs at the end is killed."""
    opened = Terminal(command, env)
    try:
        yield opened
    finally:
        opened.close()
