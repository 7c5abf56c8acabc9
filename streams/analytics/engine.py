"""The Faust app: an agent on the log, a table on its changelog, and a consumer that begins where the table says.

Faust does the group, the partitions, the recovery of the table and the delivery of events, at least once. Three things
of it are replaced, because they lose events or hold the log back (docs/decisions/analytics.md):

- where a partition is read from: not where the group's offsets stand but where the keeper's position does;
- what is committed: the same positions, for `streams lag` and other tools to see, instead of Faust's count of what
  its agents acknowledged, which passes what raised and trails behind gaps;
- what is read: committed records alone.

Called by the worker; calls the keeper.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

import aiokafka
import faust
from aiokafka.errors import IllegalStateError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, EventT, RecordMetadata

from streams.analytics.keeper import Keeper, Sending
from streams.analytics.web import Recovery
from streams.config import Settings
from streams.kafka.codec import Codec
from streams.kafka.events import decoder
from streams.topics import DOCUMENTS_SAVED, MESSAGE_BYTES_MAX, Topic

log = logging.getLogger(__name__)

TABLE = "documents"
SAVE_SECONDS = 2.0  # between two positions: what is read again after a kill
SESSION_SECONDS = 10.0  # a worker that is killed is missed after this
LINGER_SECONDS = 0.05  # rows that come within this go in one request; alone, each would cost a millisecond
_BATCH_BYTES_MAX = 256 * 1024
_POLL_RECORDS_MAX = 1000  # the worker hears of nothing else while it takes so many
_REQUEST_SECONDS = 30.0
_NOTHING_SECONDS = 0.1


class Table(faust.Table[bytes, bytes]):
    """The changelog and its recovery are Faust's; the rows go to the keeper, which is where they are asked for."""

    app: App

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ends: dict[int, int] = {}  # partition → behind the last record that was read or written here

    def apply_changelog_batch(self, batch: Iterable[EventT[Any]]) -> None:
        """Recovery gives records here, which the keeper has: see `Consumer.recover`."""

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        """The group has given this worker these partitions; recovery follows, and then reading."""
        keeper, recovery = self.app.keeper, self.app.tables.recovery  # type: ignore[attr-defined]
        for partition in self.app.of_the_log(revoked):
            keeper.let_go(partition)
        for partition in set(self.app.of_the_log(assigned)).difference(keeper.partitions):
            keeper.take_over(partition)
            # From its start: a position is true for who has read all before it. Two rebalances at once can leave Faust
            # with a note of how far it was before the partition went.
            recovery.revoke(TP(self.changelog_topic_name, partition))
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    async def write(self, partition: int, key: bytes, value: bytes | None) -> Sending:
        """Send a record to the changelog; the future is done when the broker has it."""
        sending = cast(Sending, await self.changelog_topic.send(key=key, value=value, partition=partition))
        sending.add_done_callback(self._note_end)
        return sending

    def _note_end(self, sending: Sending) -> None:
        if not sending.cancelled() and sending.exception() is None:
            written = cast(RecordMetadata, sending.result())
            self.ends[written.partition] = written.offset + 1


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread that owns the client. Here each record of the log gets to know the one before it."""

    app: App

    def __post_init__(self) -> None:
        super().__post_init__()
        self.before: dict[tuple[int, int], int] = {}  # (partition, offset) → the offset fetched before it
        self._last: dict[int, int] = {}

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Faust reads what transactions abort unless it writes in some itself; the relay's do when it is killed.
        consumer._isolation_level = "read_committed"
        return consumer

    async def _seek_wait(self, consumer: aiokafka.AIOKafkaConsumer, partitions: Mapping[TP, int]) -> None:
        self._last |= {tp.partition: offset - 1 for tp, offset in partitions.items() if tp.topic == self.app.log_name}
        self.before.clear()
        await super()._seek_wait(consumer, partitions)

    async def _fetch_records(self, *args: Any, **kwargs: Any) -> Any:
        records = await super()._fetch_records(*args, **kwargs)
        for tp, batch in records.items():
            if tp.topic == self.app.log_name:
                for record in batch:
                    self.before[tp.partition, record.offset] = self._last[tp.partition]
                    self._last[tp.partition] = record.offset
        return records


class Consumer(driver.Consumer):
    """Begins at the keeper's positions, and commits them."""

    app: App
    _thread: ConsumerThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sought: set[TP] = set()
        self._told: dict[TP, int] = {}
        self._taken = 0

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """The group changes; what this worker had it may get again, but is not sure to."""
        self._sought.clear()
        self._told.clear()
        await super().on_partitions_revoked(revoked)

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Where to read from. Recovery seeks the changelog, and below the log is sought."""
        await super().seek_wait(partitions)
        self._sought |= partitions.keys()

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Called by Faust when recovery is complete, and here when events were lost on their way to the agent."""
        partitions = {tp for tp in self.assignment() if tp.topic == self.app.log_name}
        self._sought -= partitions
        earliest = await self.earliest_offsets(*partitions) if partitions else {}
        positions = {tp: self.app.keeper.position(tp.partition) for tp in partitions}
        starts = {tp: earliest[tp] if position is None else position for tp, position in positions.items()}
        await self.seek_wait(starts)
        self.app.keeper.begin({tp.partition: start for tp, start in starts.items()})
        return starts

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:
        """Faust resumes partitions before it seeks them: what it would read until then is from the wrong place."""
        ready = self._sought.intersection(active_partitions or ())
        if not ready:  # the client would take an empty set for all
            await asyncio.sleep(_NOTHING_SECONDS)
            return {}
        records = await super()._getmany(ready, timeout)
        return {
            tp: batch if tp.topic == self.app.log_name else self.recover(tp, batch) for tp, batch in records.items()
        }

    def recover(self, tp: TP, batch: list[Any]) -> list[Any]:
        """Give the changelog's records to the keeper as they are fetched; only the last goes on to Faust.

        From that one Faust knows how far recovery is. It would take a fifth of a millisecond for each, and lose those
        that it meets an error with.
        """
        for record in batch:
            self.app.keeper.recover(tp.partition, record.key, record.value)
        self.app.documents.ends[tp.partition] = batch[-1].offset + 1
        return batch[-1:]

    def before(self, partition: int, offset: int) -> int | None:
        """The offset of the record that was fetched before this one; asked once of each."""
        return self._thread.before.pop((partition, offset), None)

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Called by Faust every SAVE_SECONDS and at the end."""
        positions = await self.app.keeper.save()
        await self._read_again_if_need_be()
        assigned = self.assignment()
        table = self.app.documents
        known = {TP(self.app.log_name, partition): position for partition, position in positions.items()}
        known |= {TP(table.changelog_topic_name, partition): end for partition, end in table.ends.items()}
        moved = {tp: position for tp, position in known.items() if tp in assigned and self._told.get(tp) != position}
        if moved and not await self._commit(moved):
            return False
        self._told |= moved
        return True

    async def _read_again_if_need_be(self) -> None:
        """An event was lost if a later one came without it, or if it was fetched and nothing has come since."""
        keeper = self.app.keeper
        is_lost = keeper.has_holes or (bool(self._thread.before) and keeper.taken == self._taken)
        self._taken = keeper.taken
        if is_lost and not self.app.rebalancing and not self.should_stop:
            keeper.holes += 1
            log.warning("events were lost between the client and the agent: reading again from the last position")
            with suppress(IllegalStateError):  # the group changes again: what follows seeks too
                await self.perform_seek()


class Transport(driver.Transport):
    """Faust's transport on aiokafka, with our consumer."""

    Consumer = Consumer


class App(faust.App):
    """One worker's app. `failed` is what the agent raised: the worker ends with it, so that nothing is passed over."""

    keeper: Keeper
    documents: Table
    log_name: str
    failed: asyncio.Future[None]

    @property
    def reader(self) -> Consumer:
        """The consumer, as what it is."""
        return cast(Consumer, self.consumer)

    def recovery(self) -> Recovery:
        """How far the table is read from its changelog."""
        remaining = self.tables.recovery.active_remaining_total()  # type: ignore[attr-defined]  # Faust's own page asks so
        return Recovery(self.tables.actives_ready, max(0, remaining))

    def of_the_log(self, partitions: Iterable[TP]) -> list[int]:
        """The numbers of those that are partitions of the log."""
        return [tp.partition for tp in partitions if tp.topic == self.log_name]


def make_app(config: Settings, codec: Codec, group: str, source: Topic = DOCUMENTS_SAVED) -> App:
    """An app that has not begun; made in the running event loop. Its topics must exist."""
    app = App(
        group,
        broker=[f"kafka://{server.strip()}" for server in config.bootstrap_servers.split(",")],
        broker_credentials=credentials(config),
        broker_commit_interval=SAVE_SECONDS,
        broker_session_timeout=SESSION_SECONDS,
        broker_heartbeat_interval=SESSION_SECONDS / 4,
        broker_max_poll_records=_POLL_RECORDS_MAX,
        broker_request_timeout=_REQUEST_SECONDS,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=MESSAGE_BYTES_MAX,
        producer_acks=-1,
        producer_linger=LINGER_SECONDS,
        producer_max_batch_size=_BATCH_BYTES_MAX,
        datadir=str(config.home / "analytics"),
        env_prefix="STREAMS_FAUST_",  # or Faust would take BROKER_URL and fifty more from the environment
        key_serializer="raw",
        value_serializer="raw",
        processing_guarantee="at_least_once",
        store="memory://",
        stream_wait_empty=False,
        table_standby_replicas=0,
        topic_allow_declare=False,  # `streams setup` makes them
        topic_disable_leader=True,
        web_enabled=False,
        Table=Table,
    )
    app.transport = Transport(app.conf.broker_consumer, app)
    app.log_name = source.name
    app.failed = asyncio.get_running_loop().create_future()
    app.documents = cast(Table, app.Table(TABLE, key_type=bytes, value_type=bytes, partitions=source.partitions))
    app.keeper = Keeper(decoder(codec), app.documents.write)
    # Without acks: what Faust notes of each event for its own commits would grow for ever.
    app.agent(app.topic(source.name, key_type=bytes, value_type=bytes, acks=False), name="keep")(_keep(app))
    return app


def _keep(app: App) -> Any:
    """The agent. An event whose agent raises is done with for Faust, so this one ends the worker instead."""

    async def keep(stream: Any) -> None:
        async for event in stream.events():
            partition, offset = event.message.partition, event.message.offset
            try:
                await app.keeper.take(partition, offset, app.reader.before(partition, offset), event.message.value)
            except Exception as error:
                if not app.failed.done():
                    app.failed.set_exception(error)
                raise

    return keep


def credentials(config: Settings) -> Any:
    """Faust's way to say how to reach the cluster; None for PLAINTEXT."""
    protocol = config.kafka_security_protocol.upper()
    context = ssl.create_default_context(cafile=config.kafka_ssl_ca) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL"):
        return faust.SASLCredentials(
            mechanism=config.kafka_sasl_mechanism,
            username=config.kafka_sasl_username,
            password=config.kafka_sasl_password,
            ssl_context=context,
        )
    return faust.SSLCredentials(context=context) if context else None
