"""The files of named queries."""

from __future__ import annotations

from pathlib import Path

import aiosql
import pytest

STREAMS = Path(__file__).parents[2] / "streams"
NAMED = [path for path in sorted(STREAMS.rglob("*.sql")) if "-- name:" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", NAMED, ids=lambda path: str(path.relative_to(STREAMS)))
def test_loading_says_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """aiosql warns, on the operator's terminal, of a statement that changes something and is not marked so."""
    assert aiosql.from_path(path, "psycopg", mandatory_parameters=False).available_queries
    assert caplog.messages == []
