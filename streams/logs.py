"""How commands that stay log: `streams run`, its workers and the processes of their handlers, the API, the relay, the
analytics.

For programs, one event a line, always with these fields in this order, `-` where one does not apply:

    time=2026-11-30T03:15:21.123Z level=warning reader=summarizer worker=summarizer-host-0 msg="…" trace="…"

`trace` only with a stack trace, whose lines are joined by \\n; a value with blanks or quotes stands between quotes,
escaped as in JSON. For people, at a terminal: the time in UTC, the level, who, and the message; a stack trace follows.

Configured by streams/cli, and by streams/runtime/children.py as in the worker; imports nothing of ours.
"""

from __future__ import annotations

import json
import logging
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

_BARE = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")
_LINES_MAX = 1_000  # that are remembered
_COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}


@dataclass(slots=True)
class Who:
    """Whose lines these are; a worker knows its name only when it has its slot."""

    reader: str = "-"
    worker: str = "-"


class Choice(NamedTuple):
    """What `configure` was told: a child process is told the same."""

    for_people: bool
    level: int
    reader: str
    worker: str


class Logfmt(logging.Formatter):
    """key=value pairs, one event a line."""

    def __init__(self, who: Who) -> None:
        super().__init__()
        self._who = who

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": f"{_moment(record):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "reader": getattr(record, "reader", self._who.reader),
            "worker": getattr(record, "worker", self._who.worker),
            "msg": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return " ".join(f"{name}={_value(text)}" for name, text in fields.items())


class ForPeople(logging.Formatter):
    """What a terminal shows."""

    def __init__(self, who: Who) -> None:
        super().__init__()
        self._who = who

    def format(self, record: logging.LogRecord) -> str:
        worker, reader = (getattr(record, name, getattr(self._who, name)) for name in ("worker", "reader"))
        who = next((one for one in (worker, reader) if one != "-"), "streams")
        colour = _COLOURS.get(record.levelname, "")
        level = f"{colour}{record.levelname.lower()}\x1b[0m" if colour else record.levelname.lower()
        message = record.getMessage().removeprefix(f"{reader}: ")
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{_moment(record):%H:%M:%S}Z {level} {who}: {message}{trace}"


class Seldom(logging.Filter):
    """Of lines that a library repeats, one every `seconds`: aiokafka without its broker writes a hundred a second.

    The same line is the same text of the same logger, whatever its figures are. Not for where handlers of others log.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._said: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("streams"):
            return True
        line = record.name, str(record.msg)
        if record.created - self._said.get(line, -math.inf) < self._seconds:
            return False
        if len(self._said) >= _LINES_MAX:
            self._said.clear()
        self._said[line] = record.created
        return True


_who = Who()
_for_people = False


def configure(
    *,
    for_people: bool,
    level: int = logging.INFO,
    reader: str = "-",
    worker: str = "-",
    handler: logging.Handler | None = None,
) -> None:
    """All loggers of this process speak through `handler`, by default to stderr."""
    global _for_people
    _for_people, _who.reader, _who.worker = for_people, reader, worker
    speaker = handler or logging.StreamHandler()
    speaker.setFormatter(ForPeople(_who) if for_people else Logfmt(_who))
    logging.basicConfig(level=level, handlers=[speaker], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def name_worker(name: str) -> None:
    """From here on the lines are this worker's."""
    _who.worker = name


def choice() -> Choice:
    """How this process logs."""
    return Choice(_for_people, logging.getLogger().getEffectiveLevel(), _who.reader, _who.worker)


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _value(text: str) -> str:
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)
