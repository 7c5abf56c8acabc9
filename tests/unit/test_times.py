"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.core.times import parse_length, parse_moment
from streams.errors import ConfigError

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("0s", timedelta()),
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("3d", timedelta(days=3)),
        ("2w", timedelta(days=14)),
    ],
)
def test_lengths(text: str, length: timedelta) -> None:
    assert parse_length(text) == length


@pytest.mark.parametrize("text", ["", "3", "3 d", "d", "-1d", "1y", "99999999999999d"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_length(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2d", NOW - timedelta(days=2)),
        ("2026-11-27T10:00Z", datetime(2026, 11, 27, 10, tzinfo=UTC)),
        ("2026-11-27T10:00+01:00", datetime(2026, 11, 27, 9, tzinfo=UTC)),
    ],
)
def test_moments(text: str, moment: datetime) -> None:
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-27T10:00", "999999w"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_moment(text, NOW)
