"""One worker of one reader: the place where runtime, Kafka, Postgres and registry are put together.

Called by `streams run`; makes every client in its own process, after any fork. What it reads are documents, unless its
`Wiring` says otherwise.
"""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from threading import Thread

from streams import logs
from streams.config import Settings
from streams.contract import Reader
from streams.errors import ReaderError, Unavailable
from streams.kafka.codec import Codec
from streams.kafka.consumer import KafkaLog
from streams.kafka.events import decoder
from streams.kafka.membership import leaves_some_to_nobody, take_over
from streams.kafka.registry import Registry
from streams.ops.reports import Reporter
from streams.runtime.admission import Decode
from streams.runtime.clock import Clock
from streams.runtime.isolation import isolating
from streams.runtime.loop import Loop
from streams.runtime.ports import SinkBroken
from streams.sinks.letters import Encode
from streams.sinks.postgres import PostgresSink
from streams.sinks.slots import slot
from streams.stack.setup import ensure_reader
from streams.topics import DOCUMENTS_SAVED, dead_letters

log = logging.getLogger(__name__)


MakeSink = Callable[[Settings, Reader, str, Encode], PostgresSink]


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a reader is put together with: the topic that it reads, what its records are, and where results go.

    `prepare` makes what must be there before the reader joins its group.
    """

    topic: str = DOCUMENTS_SAVED.name
    decoder: Callable[[Codec], Decode] = decoder
    make_sink: MakeSink = PostgresSink
    prepare: Callable[[Settings, str], None] = ensure_reader


DOCUMENTS = Wiring()


def work(
    config: Settings,
    reader: Reader,
    is_wanted: Callable[[], bool],
    reporter: Reporter | None,
    wiring: Wiring = DOCUMENTS,
) -> None:
    """Run until SIGTERM or SIGINT, or until no longer wanted by who started it; what runs is finished first.

    Raises Unavailable if a server does not answer at the start, ConfigError if the broker does not know the group's
    protocol, ReaderError if the reader's tables and effects do not fit.
    """
    spare_the_collector()
    with assembled(config, reader, wiring) as loop:
        _obey_signals(loop)
        Thread(target=_follow, args=(is_wanted, loop.stop), daemon=True).start()
        Thread(target=_begin_anew, args=(config, wiring.topic, reader.group, loop.stop), daemon=True).start()
        with reporter.reporting(loop) if reporter else nullcontext():
            loop.run()


@contextmanager
def assembled(config: Settings, reader: Reader, wiring: Wiring = DOCUMENTS) -> Iterator[Loop]:
    """A loop on its clients, which are let go at the end. Raises as `work` does."""
    wiring.prepare(config, reader.group)
    codec = Codec(Registry(config))
    letters = dead_letters(reader.group)
    codec.schema_id(letters)  # now, not in the middle of a failure
    with slot(config, reader.group) as name:
        logs.name_worker(name)
        sink = wiring.make_sink(config, reader, name, lambda letter: codec.encode(letters, letter))
        take_over(config, wiring.topic, reader.group, name)
        records = KafkaLog(config, wiring.topic, reader.group, name)
        log.info("%s: starts as %s", reader.group, name)
        try:
            yield Loop(reader, records, sink, wiring.decoder(codec), isolating(reader), Clock(), name)
        except SinkBroken as error:
            raise ReaderError(f"reader {reader.group!r} stopped: {error}") from error
        finally:
            sink.close()
        log.info("%s: %s ends, all that it finished is committed", reader.group, name)


def spare_the_collector() -> None:
    """Let Python look for cycles less often: records have none, and each look walks over all that are in flight."""
    gc.freeze()  # what is imported stays
    gc.set_threshold(50_000, 20, 100)


def _obey_signals(loop: Loop) -> None:
    """Handlers only set flags: an exception inside poll would lose dequeued records.

    A signal to all processes at once comes here twice, by itself and passed on. What is to end at once is killed.
    """

    def obey(_number: int, _frame: object) -> None:
        loop.stop()

    signal.signal(signal.SIGTERM, obey)
    signal.signal(signal.SIGINT, obey)


def _follow(is_wanted: Callable[[], bool], stop: Callable[[], None]) -> None:
    """A worker does not outlive the command that started it."""
    while is_wanted():
        time.sleep(0.5)
    stop()


def _begin_anew(config: Settings, topic: str, group: str, stop: Callable[[], None]) -> None:
    """End a worker of whose name's former holder something is left to nobody: its successor will take that over."""
    with suppress(Unavailable):
        if leaves_some_to_nobody(config, topic, group):
            log.warning("%s: some partitions stay with nobody: this worker ends, for another to join anew", group)
            stop()
