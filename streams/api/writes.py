"""Saving and deleting documents: each write is one transaction of the outbox, answered 202 with its job.

Called over HTTP; calls `streams.outbox.save`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Depends, Header, Request, Response

from streams.api.limits import json_only
from streams.api.models import Accepted, DocumentContent, Id, NewDocument
from streams.api.resources import FromResources, Resources
from streams.outbox.save import Document, Origin, Saved, delete, save

router = APIRouter(prefix="/documents", tags=["documents"])

# W3C Trace Context, version 00: trace id and span id are not all zeros.
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a write's headers say, and which route it took."""

    route: str
    idempotency_key: str | None
    traceparent: str | None

    def origin(self, content: str = "") -> Origin:
        """The write's origin; `content` tells requests of one route apart. A malformed traceparent is not passed on."""
        valid = self.traceparent is not None and _TRACEPARENT.fullmatch(self.traceparent)
        return Origin(
            idempotency_key=self.idempotency_key,
            request_hash=sha256(f"{self.route}\n{content}".encode()).digest() if self.idempotency_key else b"",
            traceparent=self.traceparent if valid else None,
        )


async def _stamp(
    request: Request,
    idempotency_key: Annotated[Id | None, Header(alias="Idempotency-Key")] = None,
    traceparent: Annotated[str | None, Header()] = None,
) -> Stamp:
    return Stamp(f"{request.method} {request.url.path}", idempotency_key, traceparent)


FromStamp = Annotated[Stamp, Depends(_stamp)]


@router.post("", status_code=202, dependencies=[Depends(json_only)])
async def post_document(new: NewDocument, stamp: FromStamp, resources: FromResources, response: Response) -> Accepted:
    """Save a document: a new one, or the next version of the one with this id."""
    document = Document(new.document_id or str(uuid4()), new.owner_id, new.title, new.body)
    return await _write(resources, response, save, document, stamp.origin(new.model_dump_json()))


@router.put("/{document_id:path}", status_code=202, dependencies=[Depends(json_only)])
async def put_document(
    document_id: Id, new: DocumentContent, stamp: FromStamp, resources: FromResources, response: Response
) -> Accepted:
    """Save the document with this id: its first version, or its next."""
    document = Document(document_id, new.owner_id, new.title, new.body)
    return await _write(resources, response, save, document, stamp.origin(new.model_dump_json()))


@router.delete("/{document_id:path}", status_code=202)
async def delete_document(document_id: Id, stamp: FromStamp, resources: FromResources, response: Response) -> Accepted:
    """Delete the document; the deletion is a version, which reaches every reader."""
    return await _write(resources, response, delete, document_id, stamp.origin())


async def _write(
    resources: Resources, response: Response, write: Callable[..., Saved], subject: Any, origin: Origin
) -> Accepted:
    resources.encoder.require()
    saved = await resources.database.run(write, resources.encoder.encode, subject, origin)
    response.headers["Location"] = f"/jobs/{saved.job_id}"
    return Accepted(job_id=saved.job_id, document_id=saved.document_id, version=saved.version)
