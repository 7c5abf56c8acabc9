"""The API without its servers: the application as it is, on a database that writes nothing down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from streams.api.app import create_app
from streams.api.resources import Resources
from streams.config import Settings
from streams.outbox.save import Document, Origin, Saved


class DatabaseDouble:
    """Remembers the writes that it was asked for; `failure`, if set, is raised instead."""

    def __init__(self) -> None:
        self.writes: list[tuple[Document | str, Origin]] = []
        self.failure: Exception | None = None

    async def run(self, _work: Callable[..., Any], _encode: Any, subject: Document | str, origin: Origin) -> Saved:
        if self.failure is not None:
            raise self.failure
        self.writes.append((subject, origin))
        return Saved(origin.event_id, getattr(subject, "document_id", str(subject)), 1)


class EncoderDouble:
    """Knows its schema."""

    def require(self) -> None: ...

    def encode(self, *_: Any) -> bytes:
        return b"frame!"


class DoorDouble:
    """Open."""

    def require(self) -> None: ...


def client(database: DatabaseDouble, door: Any = None) -> TestClient:
    """A client of the application with the doubles in place; its lifespan, which connects, is not entered."""
    app = create_app(Settings())
    resources = Resources(database, EncoderDouble(), door or DoorDouble())  # type: ignore[arg-type]

    async def with_resources(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {"resources": resources}}, receive, send)

    return TestClient(with_resources, raise_server_exceptions=False)
