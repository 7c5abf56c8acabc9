"""Times as people type and read them: a length (3d, 1h30m) or a moment (2026-11-27T00:00Z). Pure: now is an argument.

Called by the command line, and by the sentences about lag.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from streams.errors import ConfigError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LENGTH = re.compile(r"(?:\d+[smhdw])+")


def parse_length(text: str) -> timedelta:
    """Read 90s, 3d, 1h30m. Raises ConfigError."""
    if not _LENGTH.fullmatch(text):
        raise ConfigError(f"{text} is not a length of time, such as 90s, 30m, 12h or 3d")
    parts = re.findall(r"(\d+)([smhdw])", text)
    try:
        return sum((timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts), timedelta())
    except OverflowError as error:
        raise ConfigError(f"{text} is too long a time") from error


def parse_moment(text: str, now: datetime) -> datetime:
    """Read a moment with its zone, or a length before now. Raises ConfigError."""
    if _LENGTH.fullmatch(text):
        try:
            return now - parse_length(text)
        except OverflowError as error:
            raise ConfigError(f"{text} ago is before any time") from error
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{text} is neither a time with its zone (2026-11-27T00:00Z) nor a length (2d, 90m)"
        ) from error
    if moment.tzinfo is None:
        raise ConfigError(f"{text} has no time zone: write {text}Z for UTC, or add an offset such as +01:00")
    return moment


def duration(seconds: float | None) -> str:
    """A length of time in at most two units, `?` if it is unknown."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 9.95 else f"{int(seconds)} s"
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {int(seconds) % 60} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
