"""The API as an application: routes, errors, and what lives as long as the process.

Made by `streams api` (and by tests) with `create_app`; the routes stand in writes, reads, saved_queries and health.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from streams.api import health, reads, saved_queries, writes
from streams.api.door import Door
from streams.api.limits import LimitSize
from streams.api.problems import RESPONSES, add_handlers
from streams.api.resources import CONNECTIONS_MAX, POOL_WAIT_SECONDS_MAX, SESSION_OPTIONS, Database, Encoder, Resources
from streams.config import Settings
from streams.database import pool
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry

# A tenth of a request's time, for spans that nobody collects; the event carries the caller's traceparent all the same.
_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}


def create_app(config: Settings) -> FastAPI:
    """The application; it connects when it starts, and starts also when Postgres or the registry is down."""
    app = FastAPI(
        title="Distributary",
        redirect_slashes=False,
        lifespan=_lifespan(config),
        responses=RESPONSES,
        telemetry=_NO_TELEMETRY,
    )
    app.add_middleware(LimitSize)
    add_handlers(app)
    for module in (writes, reads, saved_queries, health):
        app.include_router(module.router)
    return app


def _lifespan(config: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Any]]]:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        connections = pool(config, CONNECTIONS_MAX, wait_seconds_max=POOL_WAIT_SECONDS_MAX, **SESSION_OPTIONS)
        with connections as opened, closing(Database(opened)) as database, closing(Registry(config)) as registry:
            encoder = Encoder(Codec(registry))
            door = Door(config.outbox_backlog_bytes_max)
            beside = [asyncio.create_task(encoder.learn()), asyncio.create_task(door.watch(database))]
            yield {"resources": Resources(database, encoder, door)}
            for task in beside:
                task.cancel()

    return lifespan
