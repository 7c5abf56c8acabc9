"""Whether the process lives, and whether it can take writes: asked by supervisors and by `streams up`.

Called over HTTP; asks Postgres and the encoder.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request

from streams.api.resources import resources
from streams.database import MIGRATIONS, Connection, queries
from streams.errors import Unavailable
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
    database, encoder = resources(request)
    await database.run(_check_set_up)
    encoder.require()
    return {"status": "ready"}


def _check_set_up(connection: Connection) -> None:
    applied = {name for (name,) in _SQL.migrations(connection)}
    missing = sorted({file.name for file in MIGRATIONS.glob("[0-9]*.sql")} - applied)
    if missing:
        raise Unavailable(f"the database lacks the migration {missing[0]}: run `streams setup`")
    if not _SQL.has_topic(connection, topic=DOCUMENTS_SAVED.name):
        raise Unavailable(f"the topic {DOCUMENTS_SAVED.name} is not set up yet: run `streams setup`")
