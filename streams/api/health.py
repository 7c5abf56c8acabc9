"""Whether the process lives, whether it can take writes, and the stack's metrics: asked by supervisors and Prometheus.

Called over HTTP; asks Postgres and the encoder, and for the metrics `streams.ops.stack_metrics`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from streams.api.resources import resources
from streams.database import MIGRATIONS, Connection, queries
from streams.errors import Unavailable
from streams.ops.stack_metrics import exposition, look
from streams.topics import DOCUMENTS_SAVED

router = APIRouter(tags=["health"])
_SQL = queries(Path(__file__).parent / "sql" / "reads.sql")


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """200 as long as the process runs."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(request: Request) -> dict[str, str]:
    """200 if a save would be taken: Postgres answers and is set up, and the event's schema is known. Else 503."""
    database, encoder, _ = resources(request)
    await database.run(_check_set_up)
    encoder.require()
    return {"status": "ready"}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """For Prometheus; without Postgres only that it does not answer, or is not set up."""
    facts = None
    with suppress(Unavailable):
        facts = await resources(request).database.run(look)
    return Response(exposition(facts), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _check_set_up(connection: Connection) -> None:
    applied = {name for (name,) in _SQL.migrations(connection)}
    missing = sorted({file.name for file in MIGRATIONS.glob("[0-9]*.sql")} - applied)
    if missing:
        raise Unavailable(f"the database lacks the migration {missing[0]}: run `streams setup`")
    if not _SQL.has_topic(connection, topic=DOCUMENTS_SAVED.name):
        raise Unavailable(f"the topic {DOCUMENTS_SAVED.name} is not set up yet: run `streams setup`")
