"""Worker slots: the stable names by which the group knows its members.

A slot is held by an advisory lock of a session of its own: it ends with the worker, however that ends, and a second
launcher on the same host takes the next free ones. Called by streams/ops/worker.py.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread
from typing import Any

import psycopg

from streams.config import Settings
from streams.database import connect
from streams.errors import Unavailable

log = logging.getLogger(__name__)

KEEP_SECONDS = 1.0
_CLOSE_SECONDS_MAX = 2.0


@contextmanager
def slot(config: Settings, group: str) -> Iterator[str]:
    """Hold the lowest free slot of this host; gives its name, `<group>-<host>-<number>`. Raises Unavailable."""
    session = _session(config)
    names = (f"{group}-{socket.gethostname()}-{number}" for number in count())
    name = next(name for name in names if _lock(session, name))
    ended = Event()
    keeper = Thread(target=_keep, args=(config, session, name, ended), name="slot", daemon=True)
    keeper.start()
    try:
        yield name
    finally:
        ended.set()
        keeper.join(_CLOSE_SECONDS_MAX)  # a Postgres that does not answer is not waited for


def _keep(config: Settings, session: psycopg.Connection[Any], name: str, ended: Event) -> None:
    """Lock again when the session broke: Postgres was restarted, and the next worker would take a name in use."""
    while not ended.wait(KEEP_SECONDS):
        try:
            session.execute("SELECT 1")
        except psycopg.Error:
            session = _locked_again(config, name) or session
    session.close()


def _locked_again(config: Settings, name: str) -> psycopg.Connection[Any] | None:
    try:
        session = _session(config)
        if not _lock(session, name):
            log.warning("the slot %s was taken by another worker; Kafka keeps one of us", name)
    except (Unavailable, psycopg.Error):
        return None
    return session


def _session(config: Settings) -> psycopg.Connection[Any]:
    return connect(config, autocommit=True, application_name="distributary-slot")


def _lock(session: psycopg.Connection[Any], name: str) -> bool:
    row = session.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [name]).fetchone()
    return row is not None and bool(row[0])
