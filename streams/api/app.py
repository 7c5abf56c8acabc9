"""The API as an application: routes, errors, and what lives as long as the process.

Made by `streams api` (and by tests) with `create_app`; the routes stand in writes, reads, saved_queries and health.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any

from anyio import create_task_group
from fastapi import FastAPI

from streams.api import health, reads, saved_queries, writes
from streams.api.limits import LimitSize
from streams.api.problems import add_handlers
from streams.api.resources import CONNECTIONS_MAX, POOL_WAIT_SECONDS_MAX, SESSION_OPTIONS, Database, Encoder, Resources
from streams.config import Settings
from streams.database import pool
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry


def create_app(config: Settings) -> FastAPI:
    """The application; it connects when it starts, and starts also when Postgres or the registry is down."""
    app = FastAPI(title="Distributary", redirect_slashes=False, lifespan=_lifespan(config))
    app.add_middleware(LimitSize)
    add_handlers(app)
    for module in (writes, reads, saved_queries, health):
        app.include_router(module.router)
    return app


def _lifespan(config: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Any]]]:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        connections = pool(config, CONNECTIONS_MAX, wait_seconds_max=POOL_WAIT_SECONDS_MAX, **SESSION_OPTIONS)
        with connections as opened, closing(Registry(config)) as registry:
            encoder = Encoder(Codec(registry))
            async with create_task_group() as tasks:
                tasks.start_soon(encoder.learn)
                yield {"resources": Resources(Database(opened), encoder)}
                tasks.cancel_scope.cancel()

    return lifespan
