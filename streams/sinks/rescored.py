"""The sink of re-scored chunks: the guarded batch write, with a chunk's scores, errors and end in one statement.

Called by the runtime for the re-scorer (streams/ops/rescorer.py), whose handler returns `Rescored`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from streams.contract import Replace
from streams.core.outcomes import Done
from streams.database import queries
from streams.runtime.ports import Result
from streams.sinks.effects import Statement
from streams.sinks.postgres import PostgresSink

_SQL = queries(Path(__file__).parent / "sql" / "rescored.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored(Replace):
    """A chunk's scores, as rows of many documents, each of which counts only where the document is as it was scored.

    `versions` has every document that was read; `errors` those without scores, and why.
    """

    run_id: int
    chunk: int
    model_version: str
    versions: Mapping[str, int]
    errors: Mapping[str, str]
    seconds: float  # that all this took


class RescoreSink(PostgresSink):
    """Writes chunks, where the plain sink writes documents."""

    # By the lengths of the arrays at hand: a plan for any length would compare each row with each.
    session: ClassVar[Mapping[str, str]] = {**PostgresSink.session, "plan_cache_mode": "force_custom_plan"}

    def _statements(self, one: Result, first_time: bool) -> Iterator[Statement]:
        assert isinstance(one.outcome, Done)
        for effect in one.outcome.effects:
            assert isinstance(effect, Rescored)
            yield Statement(_SQL.finish_chunk.sql, {**_values(effect), "worker": self._worker}, None)


def _values(effect: Rescored) -> dict[str, Any]:
    return {
        "run_id": effect.run_id,
        "chunk": effect.chunk,
        "model_version": effect.model_version,
        "seconds": effect.seconds,
        "document_ids": list(effect.versions),
        "versions": list(effect.versions.values()),
        "errors": [effect.errors.get(document_id) for document_id in effect.versions],
        "scored_ids": [key[0] for key in effect.rows],
        "query_ids": [key[1] for key in effect.rows],
        "scores": [row["score"] for row in effect.rows.values()],
    }
