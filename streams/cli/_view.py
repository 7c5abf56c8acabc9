"""What `streams run` shows in a terminal: a table of its workers, and above it the log. Made by `streams run`.

While the command is in the background (`streams run … &`) the terminal belongs to somebody else: then there are
only the lines.
"""

from __future__ import annotations

import logging
import os
import sys
import termios
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streams.core.times import duration
from streams.ops.fleet import Row
from streams.runtime.status import Status

SILENT_SECONDS = 5.0  # a worker that says nothing for longer is frozen, or its handler holds the interpreter
BLOCKED_SECONDS_MIN = 2.0  # a younger record is on its way, and blocks nobody
WIDE_CHARACTERS = 130  # figures take 70; what is left must do for two sentences


class View:
    """The terminal, as the supervisor's screen."""

    def __init__(self, console: Console, *, takes_errors: bool) -> None:
        self.takes_errors = takes_errors
        self._console = console
        self._live: Live | None = None
        self._modes: list[Any] | None = None  # the terminal's, to be given back

    def write(self, lines: Sequence[str]) -> None:
        """Lines above the table, with the colours that they came with."""
        for line in lines:
            self._console.print(Text.from_ansi(line), soft_wrap=True)

    def show(self, rows: Sequence[Row]) -> None:
        """The table as it is now."""
        if not self._is_ours():
            self.close()
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
            self._console.show_cursor()  # a shell that comes back after Ctrl-Z needs it
            self._modes = _without_echo(self._console)
        self._live.update(table(rows, self._console.width), refresh=True)

    def close(self) -> None:
        """Leave the table as it is, and the cursor below it."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            # In the background the shell has set the terminal as it wants it, and we would be stopped for trying.
            if self._modes is not None and self._is_ours():
                termios.tcsetattr(self._console.file.fileno(), termios.TCSADRAIN, self._modes)

    def _is_ours(self) -> bool:
        """Whether we are in the foreground: nothing may move the cursor of a shell that waits for input."""
        try:
            return os.tcgetpgrp(self._console.file.fileno()) == os.getpgrp()
        except OSError:  # no terminal of a session of ours: nobody else writes there
            return True


def _without_echo(console: Console) -> list[Any] | None:
    """Let keys leave no trace, since ^C or an empty line would shift the table; gives the modes from before."""
    try:
        modes = termios.tcgetattr(console.file.fileno())
    except (OSError, termios.error):
        return None
    quiet = [*modes[:3], modes[3] & ~termios.ECHO, *modes[4:]]
    termios.tcsetattr(console.file.fileno(), termios.TCSADRAIN, quiet)
    return modes


class Above(logging.Handler):
    """Our own log lines, above the table."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        self._view.write(self.format(record).splitlines())


def terminal_view() -> View | None:
    """The view, if stdout is a terminal that can move its cursor."""
    console = Console(highlight=False)
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        return None
    return View(console, takes_errors=sys.stderr.isatty())


def table(rows: Sequence[Row], width: int) -> RenderableType:
    """One row a worker; where the screen is narrow, what is said in words stands below, a line each.

    PARKED, DONE and DEAD count from the start of the command, over restarts.
    """
    is_wide = width >= WIDE_CHARACTERS
    made = Table(box=None, padding=(0, 2, 0, 0), expand=is_wide, header_style="bold")
    for head in ("READER", "WORKER"):
        made.add_column(head, overflow="fold")
    made.add_column("STATE", overflow="fold", ratio=2)
    for head in ("RATE", "IN FLIGHT", "PARKED", "DONE", "DEAD"):
        made.add_column(head, justify="right", no_wrap=True)
    if is_wide:
        made.add_column("BLOCKED BY", overflow="fold", ratio=3)
    for row in rows:
        state, why, style = _state(row)
        words = ": ".join(filter(None, (state, why))) if is_wide else state
        made.add_row(row.reader, _name(row), Text(words, style), *_figures(row), *[Text(_blocked(row))] * is_wide)
    return made if is_wide else Group(made, *_notes(rows))


def _notes(rows: Sequence[Row]) -> Iterator[Text]:
    for row in rows:
        _, why, style = _state(row)
        blocked = _blocked(row)
        for what in filter(None, (why, blocked and f"blocked by {blocked}")):
            yield Text(f"{row.reader} {_name(row)}: {what}", style)


def _name(row: Row) -> str:
    """What sets it apart from the reader's other workers."""
    return row.tally.status.worker.removeprefix(f"{row.reader}-") if row.tally.status else "-"


def _figures(row: Row) -> tuple[Text | str, ...]:
    status, records = row.tally.status, row.tally.records
    return (
        "-" if row.rate_per_second is None else f"{row.rate_per_second:,.1f}/s",
        f"{status.in_flight_records:,}" if status else "-",
        f"{records['parked']:,}",
        f"{records['done']:,}",
        Text(f"{records['dead']:,}", style="red" if records["dead"] else ""),
    )


def _state(row: Row) -> tuple[str, str, str]:
    """In a word or two, why, and the style: first of the process, then of what it does."""
    if row.life == "over":
        return "stopped", "", ""
    if row.life == "waits":
        return f"restarts in {row.restarts_in_seconds:.0f} s", "", "red"
    if row.tally.status is None:
        return "starts", "", ""
    if row.silent_seconds > SILENT_SECONDS:
        return f"silent for {duration(row.silent_seconds)}", "", "red"
    return _does(row.tally.status)


def _does(status: Status) -> tuple[str, str, str]:
    if status.stopping:
        return "stops", "", ""
    if status.paused is None:
        return "reads", "", "green"
    if status.paused.reason == "setup":
        return "starts", status.paused.says, ""
    return "paused", status.paused.says, "yellow"


def _blocked(row: Row) -> str:
    """Offset, key, age and why, of what is old enough to be in the way."""
    blocked = row.tally.status.blocked if row.tally.status else None
    if blocked is None or row.life != "runs" or row.blocked_seconds < BLOCKED_SECONDS_MIN:
        return ""
    version = "" if blocked.version is None else f" version {blocked.version}"
    age = duration(row.blocked_seconds)
    return f"{blocked.partition}:{blocked.offset} {blocked.key}{version}, read {age} ago: {blocked.why}"
