"""Postgres at the edge: connections, pools, named queries, migrations.

Called by every module that speaks SQL; reads `config` alone. A server that does not answer is `Unavailable`.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiosql
import psycopg
from psycopg_pool import ConnectionPool

from streams.config import Settings
from streams.errors import ConfigError, Unavailable

MIGRATIONS = Path(__file__).parent / "outbox" / "migrations"
CONNECT_SECONDS_MAX = 5
Connection = psycopg.Connection[tuple[Any, ...]]
# One arbitrary number, the same in every process: only one migrates at a time.
_MIGRATION_LOCK = 0x64697374


def queries(folder: Path) -> Any:
    """The named queries of the .sql files in `folder`, as functions of a connection."""
    return aiosql.from_path(folder, "psycopg", mandatory_parameters=False)


def connect(config: Settings, *, autocommit: bool = False, **options: str) -> Connection:
    """One connection; `options` are server settings for the session. Raises Unavailable."""
    try:
        return psycopg.connect(
            config.database_url, autocommit=autocommit, options=_flags(options), connect_timeout=CONNECT_SECONDS_MAX
        )
    except psycopg.OperationalError as error:
        raise Unavailable(_no_answer(config, error)) from error


def _no_answer(config: Settings, error: psycopg.OperationalError) -> str:
    """Of each address that was tried the first line says why, after who was asked; a hint follows it."""
    reason = str(error).strip().partition("\n")[0].rpartition(" failed: ")[2] or "no answer"
    return f"Postgres at {config.db_host}:{config.db_port} cannot be used: {reason}"


def _flags(options: dict[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in {"timezone": "UTC", **options}.items())


class Pool(ConnectionPool[Connection]):
    """A pool that hands out no connection whose server is gone.

    Its own check would cost a round trip each time, and wait a second after each dead connection but the first: a
    restarted Postgres would fail a request for every few of them.
    """

    def getconn(self, timeout: float | None = None) -> Connection:
        """As ConnectionPool's; the dead are replaced on the way. `timeout` in seconds, for each."""
        for _ in range(self.max_size):
            connection = super().getconn(timeout)
            if _is_open(connection):
                return connection
            connection.close()
            self.putconn(connection)  # which replaces it
        return super().getconn(timeout)


def _is_open(connection: Connection) -> bool:
    """Whether the server has not ended an idle connection: then there would be an end to read."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


@contextmanager
def pool(
    config: Settings, size_max: int, wait_seconds_max: float = CONNECT_SECONDS_MAX, **options: str
) -> Iterator[Pool]:
    """A pool of connections in autocommit.

    It opens lazily, so a server that is down fails the request and not the start. `options` are server settings for
    the sessions. Waiting longer than `wait_seconds_max` for a connection is a psycopg_pool.PoolTimeout.
    """
    with Pool(
        config.database_url,
        min_size=1,
        max_size=size_max,
        timeout=wait_seconds_max,
        # Each try to connect doubles the wait before the next, until this: a server that is back is soon found.
        reconnect_timeout=CONNECT_SECONDS_MAX,
        kwargs={"autocommit": True, "options": _flags(options), "connect_timeout": CONNECT_SECONDS_MAX},
    ) as opened:
        yield opened


def migrate(connection: psycopg.Connection[Any]) -> list[str]:
    """Apply the numbered files that the database lacks, all in one transaction; return their names.

    Raises ConfigError if the database has a migration that this version does not know.
    """
    files = sorted(MIGRATIONS.glob("[0-9]*.sql"))
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK])
        connection.execute("CREATE TABLE IF NOT EXISTS public.migrations (name text PRIMARY KEY)")
        have = {name for (name,) in connection.execute("SELECT name FROM public.migrations")}
        unknown = sorted(have - {file.name for file in files})
        if unknown:
            raise ConfigError(f"the database is newer than this version: it has the migration {unknown[-1]}")
        wanted = [file for file in files if file.name not in have]
        for file in wanted:
            connection.execute(file.read_bytes())
            connection.execute("INSERT INTO public.migrations VALUES (%s)", [file.name])
    return [file.name for file in wanted]
