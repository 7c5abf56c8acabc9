"""The save: a document's next version, its job and its event in one Postgres transaction, or nothing at all.

Called by the API. Debezium reads the outbox row from the write-ahead log and puts it into `documents-saved`; nobody
writes to Kafka here. The SQL stands in sql/save.sql, with why the order of versions is the order of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4

from streams.database import Connection, queries
from streams.errors import InvalidField, NotFound
from streams.topics import DOCUMENTS_SAVED, Topic

Encode = Callable[[Topic, Mapping[str, Any]], bytes]

_SQL = queries(Path(__file__).parent / "sql" / "save.sql")


@dataclass(frozen=True, slots=True)
class Document:
    """What a save writes: text without NUL characters and lone surrogates, a body within BODY_BYTES_MAX."""

    document_id: str
    owner_id: str
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a write comes from. `event_id` is the job's id too; `request_hash` tells requests under one key apart."""

    idempotency_key: str | None = None
    request_hash: bytes = b""
    traceparent: str | None = None
    event_id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a write became: version `version` of the document, and the job that follows it to the readers."""

    job_id: UUID
    document_id: str
    version: int


def save(connection: Connection, encode: Encode, document: Document, origin: Origin) -> Saved:
    """Write the document's next version; a deleted document lives again.

    The same idempotency key gives the earlier answer and writes nothing. Raises InvalidField when the key was used
    for another request, SchemaError, psycopg.Error; then nothing was written.
    """
    with connection.transaction():
        return _earlier(connection, origin) or _emit(
            connection, encode, origin, document, "saved", _SQL.put_document(connection, **asdict(document))
        )


def delete(connection: Connection, encode: Encode, document_id: str, origin: Origin) -> Saved:
    """Write the document's deletion, a version of its own. Raises NotFound, and what `save` raises."""
    with connection.transaction():
        return _earlier(connection, origin) or _delete(connection, encode, document_id, origin)


def _delete(connection: Connection, encode: Encode, document_id: str, origin: Origin) -> Saved:
    row = _SQL.delete_document(connection, document_id=document_id)
    if row is None:
        raise NotFound(f"there is no document {document_id!r}")
    return _emit(connection, encode, origin, Document(document_id, row[0], "", ""), "deleted", row)


def _earlier(connection: Connection, origin: Origin) -> Saved | None:
    """The answer that the idempotency key already has; None if there is no key, or it is ours from now on."""
    if origin.idempotency_key is None:
        return None
    request_hash, event_id = _SQL.claim_key(
        connection,
        key=origin.idempotency_key,
        request_hash=origin.request_hash,
        event_id=origin.event_id,
    )
    if event_id == origin.event_id:
        return None
    if request_hash != origin.request_hash:
        raise InvalidField("Idempotency-Key", "was used before, for another request")
    return Saved(*_SQL.job(connection, event_id=event_id))


def _emit(
    connection: Connection,
    encode: Encode,
    origin: Origin,
    document: Document,
    event_type: Literal["saved", "deleted"],
    row: tuple[str, int, datetime],
) -> Saved:
    """Write the job and the event of the version in `row`, whose document is locked by this transaction."""
    _, version, saved_at = row
    event = {**asdict(document), "version": version, "saved_at": saved_at, "type": event_type}
    _SQL.emit(
        connection,
        event_id=origin.event_id,
        document_id=document.document_id,
        version=version,
        saved_at=saved_at,
        topic=DOCUMENTS_SAVED.name,
        type=event_type,
        payload=encode(DOCUMENTS_SAVED, event),
        traceparent=origin.traceparent,
    )
    return Saved(origin.event_id, document.document_id, version)
