"""A client that has lost all its brokers is noticed and replaced: real clients, and a broker that can name none."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from threading import Thread

import pytest

from streams.config import Settings
from streams.core.density import Span
from streams.core.groups import Partition
from streams.core.offsets import Offset, Position
from streams.errors import Unavailable
from streams.kafka import brokers
from streams.kafka.admin import GroupsAdmin
from streams.kafka.consumer import KafkaLog
from streams.kafka.heads import Heads
from streams.kafka.published import PublishedEvents
from streams.kafka.publisher import Publisher, Row
from streams.kafka.record_counts import RecordCounts
from tests.support import eventually

# The requests that it knows, with the newest version.
METADATA, API_VERSIONS, PRODUCER_ID = 3, 18, 22
LEADER_NOT_AVAILABLE = 5
NEWEST = {METADATA: 4, API_VERSIONS: 0, PRODUCER_ID: 0}
TOPIC = "documents"
PLACE = Partition(TOPIC, 0)


class Broker:
    """Answers requests for metadata, of one partition without a leader; one whose session is over leaves out itself."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.is_named = True
        self.asked = 0
        self._connections: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Refuse new connections and end those that are there."""
        for each in (self._listener, *self._connections):
            with suppress(OSError):  # closed already
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while head := stream.read(4):
                request = stream.read(*struct.unpack(">i", head))
                api, version, number = struct.unpack(">hhi", request[:8])
                answer = struct.pack(">i", number) + self._answer(api, version)
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, api: int, version: int) -> bytes:
        if api == API_VERSIONS:
            unsupported = 35 if version else 0  # with which the client asks again, for version 0
            versions = (struct.pack(">hhh", known, 0, newest) for known, newest in NEWEST.items())
            return struct.pack(">hi", unsupported, len(NEWEST)) + b"".join(versions)
        return self._metadata() if api == METADATA else struct.pack(">ihqh", 0, 0, 1, 0)

    def _metadata(self) -> bytes:
        self.asked += 1
        broker = struct.pack(">i", 1) + _text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        named = struct.pack(">i", 1) + broker if self.is_named else struct.pack(">i", 0)
        partition = struct.pack(">hii", LEADER_NOT_AVAILABLE, 0, -1) + struct.pack(">ii", 0, 0)  # no replicas
        topic = struct.pack(">h", 0) + _text(TOPIC) + struct.pack(">?i", False, 1) + partition
        return struct.pack(">i", 0) + named + _text("cluster") + struct.pack(">ii", 1, 1) + topic


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.close()


@pytest.fixture
def config(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Its clients take no step back to the bootstrap server: here always, what else happens now and then."""
    options = Settings.kafka_client
    never = {"metadata.recovery.strategy": "none"}
    monkeypatch.setattr(Settings, "kafka_client", lambda config: {**options(config), **never})
    monkeypatch.setattr(brokers, "_STATISTICS_MS", 100)
    return Settings(bootstrap_servers=f"127.0.0.1:{broker.port}")


def test_a_log_that_has_lost_its_brokers_says_so(broker: Broker, config: Settings) -> None:
    records = KafkaLog(config, TOPIC, "readers", None)
    assert records.partitions() == 1
    for _ in range(10):
        assert records.poll(10, 0.1) == []
    broker.is_named = False
    records.partitions()
    broker.is_named = True
    with pytest.raises(Unavailable, match="has lost all its brokers"):
        eventually(lambda: records.poll(10, 0.1), 20)
    records.close()


def test_a_publisher_that_has_lost_its_brokers_says_so_instead_of_waiting(broker: Broker, config: Settings) -> None:
    with Publisher(config) as publisher:
        rows = [Row(1, TOPIC, "key", b"", "id", "type", None, 1)]
        assert publisher.publish(rows, polls(20)) == []
        broker.is_named = False
        with pytest.raises(Unavailable, match="has lost all its brokers"):
            publisher.publish([], polls(200))


def polls(number: int) -> Callable[[], bool]:
    """What gives up after so many of them, of 0.1 s."""
    left = iter(range(number))
    return lambda: next(left, None) is None


def test_a_broker_that_is_away_is_not_lost(broker: Broker, config: Settings) -> None:
    records = KafkaLog(config, TOPIC, "readers", None)
    assert records.partitions() == 1
    broker.close()
    for _ in range(20):
        assert records.poll(10, 0.1) == []
    records.close()


def test_an_admin_that_was_not_answered_asks_with_a_new_client(broker: Broker, config: Settings) -> None:
    admin = GroupsAdmin(config, 5.0)
    assert admin.cluster().topics == {TOPIC: 1}
    broker.is_named = False
    eventually(lambda: is_unavailable(admin), 20, "the client has lost its broker")
    broker.is_named = True
    assert admin.cluster().topics == {TOPIC: 1}


def is_unavailable(admin: GroupsAdmin) -> bool:
    try:
        admin.cluster()
    except Unavailable:
        return True
    return False


def asks_heads(config: Settings, resources: ExitStack) -> Callable[[], object]:
    heads = resources.enter_context(Heads(config, "read_committed"))
    return lambda: heads.read([(PLACE, Position(0))], 0.5)


def asks_counts(config: Settings, resources: ExitStack) -> Callable[[], object]:
    counts = resources.enter_context(RecordCounts(config))
    return lambda: counts.read({PLACE: Span(Offset(0), Offset(10))}, 0.5)


def asks_for_an_event(config: Settings, resources: ExitStack) -> Callable[[], object]:
    published = resources.enter_context(PublishedEvents(config, 0.5))

    def ask() -> None:
        with suppress(Unavailable):
            published.follow(TOPIC)
            published.wait_for("id", 0.5)

    return ask


@pytest.mark.parametrize("asks", [asks_heads, asks_counts, asks_for_an_event])
def test_who_only_asks_renews_the_client_that_did_not_answer(
    broker: Broker, config: Settings, asks: Callable[..., Callable[[], object]]
) -> None:
    with ExitStack() as resources:
        ask = asks(config, resources)
        ask()
        broker.is_named = False
        for _ in range(6):
            asked = broker.asked
            ask()
            ask()  # the first may find out only
            assert broker.asked > asked
