"""Saving and deleting documents: each write is one transaction of the outbox, answered 202 with its job.

Called over HTTP; calls `streams.outbox.save`. This is the hot path: the headers are read by hand, and nothing is a
FastAPI dependency, which would double the time that a request spends in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request, Response

from streams.api.models import ID_CHARACTERS_MAX, Accepted, DocumentContent, Id, NewDocument
from streams.api.resources import resources
from streams.errors import InvalidField
from streams.outbox.save import Document, Origin, Saved, delete, save

KEY_HEADER = "Idempotency-Key"
# W3C Trace Context, version 00: trace id and span id are not all zeros.
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_HEADERS = {
    "parameters": [
        {
            "name": KEY_HEADER,
            "in": "header",
            "description": "The same request under the same key is one write, and gets the same answer.",
            "schema": {"type": "string", "minLength": 1, "maxLength": ID_CHARACTERS_MAX},
        },
        {
            "name": "traceparent",
            "in": "header",
            "description": "W3C Trace Context; goes with the event to every reader.",
            "schema": {"type": "string"},
        },
    ]
}

router = APIRouter(prefix="/documents", tags=["documents"])


@router.post("", status_code=202, openapi_extra=_HEADERS)
async def post_document(new: NewDocument, request: Request, response: Response) -> Accepted:
    """Save a document: a new one, or the next version of the one with this id."""
    document = Document(new.document_id or str(uuid4()), new.owner_id, new.title, new.body)
    return await _write(request, response, save, document, new.model_dump_json)


@router.put("/{document_id:path}", status_code=202, openapi_extra=_HEADERS)
async def put_document(document_id: Id, new: DocumentContent, request: Request, response: Response) -> Accepted:
    """Save the document with this id: its first version, or its next."""
    document = Document(document_id, new.owner_id, new.title, new.body)
    return await _write(request, response, save, document, new.model_dump_json)


@router.delete("/{document_id:path}", status_code=202, openapi_extra=_HEADERS)
async def delete_document(document_id: Id, request: Request, response: Response) -> Accepted:
    """Delete the document; the deletion is a version, which reaches every reader."""
    return await _write(request, response, delete, document_id, str)


async def _write(
    request: Request, response: Response, write: Callable[..., Saved], subject: Any, content: Callable[[], str]
) -> Accepted:
    """Run `write`, and answer with its job; `content` tells requests to one path apart."""
    database, encoder, door = resources(request)
    encoder.require()
    door.require()
    saved = await database.run(write, encoder.encode, subject, _origin(request, content))
    response.headers["Location"] = f"/jobs/{saved.job_id}"
    return Accepted(job_id=saved.job_id, document_id=saved.document_id, version=saved.version)


def _origin(request: Request, content: Callable[[], str]) -> Origin:
    """What the headers say. A malformed traceparent is not passed on. Raises InvalidField for a bad key."""
    key = request.headers.get(KEY_HEADER)
    trace = request.headers.get("traceparent")
    if trace is not None and not _TRACEPARENT.fullmatch(trace):
        trace = None
    if key is None:
        return Origin(traceparent=trace)
    if not 1 <= len(key) <= ID_CHARACTERS_MAX:
        raise InvalidField(KEY_HEADER, f"must have 1 to {ID_CHARACTERS_MAX} characters")
    asked = f"{request.method} {request.url.path}\n{content()}"
    return Origin(idempotency_key=key, request_hash=sha256(asked.encode()).digest(), traceparent=trace)
