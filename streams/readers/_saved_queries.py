"""An owner's saved queries, read from Postgres. Called by the ranker; calls Postgres, which it cannot write."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg_pool import ConnectionPool

from streams.config import Settings
from streams.contract import RetryLater
from streams.database import CONNECT_SECONDS_MAX, queries

CONNECTIONS_MAX = 4  # a worker's sixteen documents at once share them: each reads for a millisecond

_SQL = queries(Path(__file__).parent / "sql" / "ranker.sql")


class SavedQueries:
    """From an owner's id to its queries as (query_id, query). Opens no connection before the first document."""

    def __init__(self, config: Settings) -> None:
        self._pool = ConnectionPool(
            config.database_url,
            min_size=0,
            max_size=CONNECTIONS_MAX,
            open=True,
            timeout=CONNECT_SECONDS_MAX,
            check=ConnectionPool.check_connection,
            name="saved-queries",
            kwargs={
                "autocommit": True,
                "connect_timeout": CONNECT_SECONDS_MAX,
                "options": "-c default_transaction_read_only=on -c statement_timeout=10s",
            },
        )

    def __call__(self, owner_id: str) -> list[tuple[str, str]]:
        """Raises RetryLater while Postgres does not answer."""
        try:
            with self._pool.connection() as connection:
                return list(_SQL.saved_queries(connection, owner_id=owner_id))
        except psycopg.OperationalError as error:
            raise RetryLater(f"the saved queries cannot be read from Postgres: {error}") from error

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()
