"""Reading back: documents with what the readers made of them, and jobs with their state at each reader.

Called over HTTP; calls the named queries in sql/reads.sql.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request

from streams.api.models import DocumentView, Id, Job, ReaderState
from streams.api.resources import resources
from streams.database import Connection, queries
from streams.errors import NotFound

router = APIRouter()
_SQL = queries(Path(__file__).parent / "sql" / "reads.sql")


@router.get("/documents/{document_id:path}", tags=["documents"])
async def get_document(document_id: Id, request: Request) -> DocumentView:
    """The document, its summary and scores, and how far each reader is with it."""
    return await resources(request).database.run(_document, document_id)


@router.get("/jobs/{job_id}", tags=["jobs"], response_model_exclude_none=True)
async def get_job(job_id: str, request: Request) -> Job:
    """One save or deletion, and its state at every reader."""
    return await resources(request).database.run(_job, uuid_or_not_found("job", job_id))


def uuid_or_not_found(what: str, text: str) -> UUID:
    """The id; one that no id looks like names nothing. Raises NotFound."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"there is no {what} {text!r}") from None


def _document(connection: Connection, document_id: str) -> DocumentView:
    row = _SQL.document(connection, document_id=document_id)
    if row is None:
        raise NotFound(f"there is no document {document_id!r}")
    return DocumentView(**dict(zip(DocumentView.model_fields, row, strict=True)))


def _job(connection: Connection, job_id: UUID) -> Job:
    row = _SQL.job(connection, job_id=job_id)
    if row is None:
        raise NotFound(f"there is no job {str(job_id)!r}")
    _, document_id, version, saved_at = row
    states = _SQL.job_states(connection, job_id=job_id, document_id=document_id, version=version)
    return Job(
        job_id=job_id,
        document_id=document_id,
        version=version,
        saved_at=saved_at,
        readers={reader: _state(*columns) for reader, *columns in states},
    )


def _state(
    state: Any,
    dead_attempts: int | None,
    dead_error: str | None,
    attempts: int | None,
    next_attempt_at: Any,
    error: str | None,
) -> ReaderState:
    if state == "dead":
        return ReaderState(state=state, attempts=dead_attempts, error=dead_error)
    if state == "retrying":
        return ReaderState(state=state, attempts=attempts, next_attempt_at=next_attempt_at, error=error)
    return ReaderState(state=state)
