"""The saved queries of an owner, which its documents are scored against.

Called over HTTP; calls the named queries in sql/saved_queries.sql. A query counts for the versions saved after it.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from fastapi import APIRouter, Request, Response

from streams.api.models import Id, NewQuery, SavedQueries, SavedQuery
from streams.api.reads import uuid_or_not_found
from streams.api.resources import resources
from streams.database import Connection, queries
from streams.errors import NotFound

router = APIRouter(prefix="/queries", tags=["saved queries"])
_SQL = queries(Path(__file__).parent / "sql" / "saved_queries.sql")


@router.post("", status_code=201)
async def post_query(new: NewQuery, request: Request, response: Response) -> SavedQuery:
    """Save a query: 201, or 200 if its owner has it already."""
    saved, is_new = await resources(request).database.run(_save, new)
    if not is_new:
        response.status_code = 200
    return saved


@router.get("")
async def get_queries(owner_id: Id, request: Request) -> SavedQueries:
    """All saved queries of the owner, oldest first."""
    return SavedQueries(queries=await resources(request).database.run(_of_owner, owner_id))


@router.delete("/{query_id}", status_code=204)
async def delete_query(query_id: str, request: Request) -> None:
    """Delete a saved query; its scores are no longer shown."""
    await resources(request).database.run(_delete, uuid_or_not_found("query", query_id))


def _save(connection: Connection, new: NewQuery) -> tuple[SavedQuery, bool]:
    *columns, is_new = _SQL.save_query(connection, owner_id=new.owner_id, query=new.query)
    return _saved_query(columns), is_new


def _of_owner(connection: Connection, owner_id: str) -> list[SavedQuery]:
    return [_saved_query(row) for row in _SQL.saved_queries(connection, owner_id=owner_id)]


def _delete(connection: Connection, query_id: UUID) -> None:
    if not _SQL.delete_query(connection, query_id=query_id):
        raise NotFound(f"there is no query {str(query_id)!r}")


def _saved_query(row: object) -> SavedQuery:
    return SavedQuery(**dict(zip(SavedQuery.model_fields, row, strict=True)))  # type: ignore[call-overload]
