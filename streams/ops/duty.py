"""Work that is done again and again by one process at a time, however many are ready to: under a lock of Postgres.

Called by the recorder of lag, the prober and the care for the connector, which run beside `streams api`. A server that
is away for a while costs rounds, nothing else.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import ClassVar, Self

import psycopg

import streams.ops
from streams.config import Settings
from streams.database import Connection, connect, queries
from streams.errors import StreamsError

log = logging.getLogger(__name__)

_END_SECONDS_MAX = 3.0

_sql = queries(Path(streams.ops.__file__).parent / "sql" / "duty.sql")


class Duty(ABC):
    """One session that holds, or waits for, the lock. Use it in a `with`. Raises StreamsError and psycopg.Error."""

    LOCK: ClassVar[int]  # one arbitrary number, the same in every process
    TABLE: ClassVar[str]  # without which there is nothing to do yet

    def __init__(self, config: Settings, name: str, **session: str) -> None:
        self._config = config
        self._resources = ExitStack()
        self._connection: Connection = self._resources.enter_context(
            connect(config, autocommit=True, application_name=f"distributary-{name}", **session)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def is_chosen(self) -> bool:
        """Whether this session has the lock, which it keeps."""
        return bool(_sql.try_lock(self._connection, lock=self.LOCK, table=self.TABLE))

    @abstractmethod
    def open(self) -> None:
        """Get ready, once it has: clients that connect when they are asked."""

    @abstractmethod
    def round(self) -> None:
        """What is done each time."""


@contextmanager
def beside(name: str, work: Callable[[Event], None]) -> Iterator[None]:
    """Work in a thread while the block runs; the event tells it to end."""
    ended = Event()
    thread = Thread(target=work, args=(ended,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_SECONDS_MAX)  # a server that does not answer is not waited for


def perform(make: Callable[[], Duty], seconds: float, ended: Event, otherwise: str) -> None:
    """A round every `seconds` until told to end, by one process of all; `otherwise` is logged, with why, once each."""
    told = ""
    while not ended.is_set():
        try:
            with make() as duty:
                for _ in _rounds(duty, seconds, ended):
                    if told:
                        log.info("%s: that is over", otherwise)
                    told = ""
        except (StreamsError, psycopg.Error) as error:
            if str(error) != told:
                log.warning("%s: %s", otherwise, error)
            told = str(error)
        ended.wait(seconds)


def _rounds(duty: Duty, seconds: float, ended: Event) -> Iterator[None]:
    """Gives control back after each."""
    while not duty.is_chosen():
        if ended.wait(seconds):
            return
    duty.open()
    next_at = time.monotonic()
    while not ended.wait(max(0.0, next_at - time.monotonic())):
        next_at = max(next_at, time.monotonic() - seconds) + seconds
        duty.round()
        yield
