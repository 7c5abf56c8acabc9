"""One worker of one reader: the place where runtime, Kafka, Postgres and registry are put together.

Called by `streams run`; makes every client in its own process, after any fork.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from streams.config import Settings
from streams.contract import DocumentSaved, Reader
from streams.errors import BrokenFrame, ReaderError
from streams.kafka.codec import Codec
from streams.kafka.consumer import KafkaLog
from streams.kafka.registry import Registry
from streams.runtime.clock import Clock
from streams.runtime.executors import executor_for
from streams.runtime.loop import Loop
from streams.runtime.ports import SinkBroken
from streams.sinks.postgres import PostgresSink
from streams.sinks.slots import slot
from streams.stack.setup import ensure_reader
from streams.topics import DOCUMENTS_SAVED, dead_letters

log = logging.getLogger(__name__)


def work(config: Settings, reader: Reader, parent: int | None = None) -> None:
    """Run until SIGTERM or SIGINT; a second signal stops at once, with exit code 130.

    With `parent`, also until that process is gone. Raises Unavailable if a server does not answer at the start,
    ReaderError if the reader's tables and effects do not fit.
    """
    with assembled(config, reader) as loop:
        _obey_signals(loop)
        if parent is not None:
            Thread(target=_follow, args=(parent, loop.stop), daemon=True).start()
        loop.run()


@contextmanager
def assembled(config: Settings, reader: Reader, topic: str = DOCUMENTS_SAVED.name) -> Iterator[Loop]:
    """A loop on its clients, which are let go at the end; `topic` holds document events. Raises as `work` does."""
    ensure_reader(config, reader.group)
    codec = Codec(Registry(config))
    letters = dead_letters(reader.group)
    codec.schema_id(letters)  # now, not in the middle of a failure
    with slot(config, reader.group) as name:
        sink = PostgresSink(config, reader, name, lambda letter: codec.encode(letters, letter))
        records = KafkaLog(config, topic, reader.group, name)
        log.info("%s: starts as %s", reader.group, name)
        try:
            yield Loop(reader, records, sink, decoder(codec), executor_for(reader), Clock())
        except SinkBroken as error:
            raise ReaderError(f"reader {reader.group!r} stopped: {error}") from error
        finally:
            sink.close()
        log.info("%s: %s ends, all that it finished is committed", reader.group, name)


def decoder(codec: Codec) -> Callable[[bytes | None], DocumentSaved]:
    """From a record's value to the document event."""

    def decode(value: bytes | None) -> DocumentSaved:
        document = DocumentSaved(**codec.decode(DOCUMENTS_SAVED, value))
        # Progress is kept by these two: Postgres stores no NUL, and versions begin with 1.
        if "\0" in document.document_id or document.version < 1:
            raise BrokenFrame(f"{document.document_id!r} version {document.version} is no document's version")
        return document

    return decode


def _obey_signals(loop: Loop) -> None:
    """Handlers only set flags: an exception inside poll would lose dequeued records."""
    asked = False

    def obey(_number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            os._exit(130)
        asked = True
        loop.stop()

    signal.signal(signal.SIGTERM, obey)
    signal.signal(signal.SIGINT, obey)


def _follow(parent: int, stop: Callable[[], None]) -> None:
    """A worker does not outlive the command that started it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    stop()
