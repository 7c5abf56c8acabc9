"""What the routes work with: the database behind a deadline, the encoder once the registry has answered, the door.

Made by `streams.api.app` for the life of the process, where the routes find it by `resources`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import psycopg
from fastapi import Request

from streams.api.door import Door
from streams.database import Connection, Pool
from streams.errors import StreamsError, Unavailable
from streams.kafka.codec import Codec
from streams.topics import DOCUMENTS_SAVED, Topic

P = ParamSpec("P")
T = TypeVar("T")

# A request is answered within 4 s, whatever Postgres does: callers commonly give up after 5. Before that, the wait for
# a free connection ends after 2 s and the wait for another save of the same document after 3.
ANSWER_SECONDS_MAX = 4.0
POOL_WAIT_SECONDS_MAX = 2.0
SESSION_OPTIONS = {"lock_timeout": "3s", "transaction_timeout": "10s", "application_name": "streams-api"}
# Each has a thread; more would only queue up inside a Postgres on the same few cores.
CONNECTIONS_MAX = 16
_ASK_AGAIN_SECONDS = 1.0
_NOT_SET_UP = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.ForeignKeyViolation)


class Database:
    """Runs blocking functions on pooled connections, in threads."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._threads = ThreadPoolExecutor(CONNECTIONS_MAX, "postgres")

    def close(self) -> None:
        """Take no more work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work(connection, …)`, committed. Raises Unavailable, and what `work` raises.

        After ANSWER_SECONDS_MAX the work is left to itself: a server that is frozen cannot be told to stop, so it is
        unknown whether it takes effect.
        """

        def on_a_connection() -> T:
            with self._pool.connection() as connection:
                return work(connection, *args, **kwargs)

        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await asyncio.get_running_loop().run_in_executor(self._threads, on_a_connection)
        except TimeoutError as error:
            raise Unavailable(f"Postgres has not answered within {ANSWER_SECONDS_MAX:g} s; try again") from error
        except _NOT_SET_UP as error:
            raise Unavailable("the database is not set up yet: run `streams setup`") from error
        except psycopg.OperationalError as error:
            raise Unavailable(f"Postgres cannot be used now: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


class Encoder:
    """Encodes events once the registry has given the schema's id; until then every write is refused."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.obstacle: str | None = "the schema registry has not answered yet"

    async def learn(self) -> None:
        """Ask the registry until it answers."""
        while self.obstacle is not None:
            try:
                await asyncio.to_thread(self._codec.schema_id, DOCUMENTS_SAVED)
                self.obstacle = None
            except StreamsError as error:
                self.obstacle = str(error)
                await asyncio.sleep(_ASK_AGAIN_SECONDS)

    def encode(self, topic: Topic, event: Mapping[str, Any]) -> bytes:
        """The event as a frame of the wire format."""
        return self._codec.encode(topic, event)

    def require(self) -> None:
        """Raises Unavailable, with why, until `encode` can be used."""
        if self.obstacle is not None:
            raise Unavailable(self.obstacle)


class Resources(NamedTuple):
    """One process's database, encoder and door."""

    database: Database
    encoder: Encoder
    door: Door


def resources(request: Request) -> Resources:
    """The process's resources, which the application's lifespan made."""
    found: Resources = request.state.resources
    return found
