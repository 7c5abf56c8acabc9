"""What the tests of readers stand on: saves, topics, offsets, and workers inside the test or as processes.

Every reader here has a group of its own, forgotten at the end, so that tests share one stack without seeing each other.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import psutil
import psycopg
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from rich.console import Console

from streams.config import Settings
from streams.contract import Reader
from streams.database import connect
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry
from streams.kafka.topics_admin import TopicsAdmin
from streams.ops.worker import Wiring, assembled
from streams.outbox.save import Document, Origin, Saved, delete, save
from streams.runtime.loop import Loop
from streams.stack import local
from streams.stack.process import LocalProcess
from streams.topics import DOCUMENTS_SAVED, Topic, dead_letters
from tests.support import eventually

ROOT = Path(__file__).parents[1]
READERS = "tests.readers_for_tests"
BUILT_IN = ("summarizer", "ranker", "indexer")


def unique(name: str) -> str:
    """A name that no other test has."""
    return f"{name}-{uuid4().hex[:8]}"


@dataclass
class Worker:
    """A worker of a reader, in a thread of the test."""

    loop: Loop
    thread: Thread
    errors: list[BaseException]

    def stop(self) -> None:
        """Drain and end it, as SIGTERM does. Raises what it ended with."""
        self.loop.stop()
        self.thread.join(30)
        assert not self.thread.is_alive(), "the worker does not end"
        if self.errors:
            raise self.errors[0]


@dataclass
class Command:
    """`streams run` as a process, with what it said."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def starts(self) -> int:
        """How many workers have begun to read, the successors of others included."""
        return self.said().count("starts as")

    def workers(self) -> list[int]:
        """The pids of its worker processes."""
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def end(self) -> int:
        """SIGTERM and its exit code."""
        self.process.terminate()
        return self.process.wait(40)


@dataclass
class Rig:
    """The stack as the tests of readers use it."""

    config: Settings
    scratch: Path
    groups: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)

    @cached_property
    def codec(self) -> Codec:
        return Codec(Registry(self.config))

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({**self.config.kafka_client(), "log_level": 0})

    @cached_property
    def producer(self) -> Producer:
        # As Connect partitions: librdkafka's default would put the same key elsewhere.
        # Idempotent: what is sent again must not come behind what was sent after it.
        options = {"partitioner": "murmur2_random", "message.max.bytes": 8_388_608, "enable.idempotence": True}
        return Producer({**self.config.kafka_client(), **options})

    @cached_property
    def host(self) -> str:
        """The name of this machine, which is part of a worker's."""
        return socket.gethostname()

    # ------------------------------------------------------------------------------------------- Postgres

    def connect(self) -> psycopg.Connection[Any]:
        return connect(self.config, autocommit=True)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query, values).fetchall()

    def do(self, statement: str, *values: Any) -> None:
        with self.connect() as connection:
            connection.execute(statement, values)

    def save(self, document_id: str, title: str = "a title", body: str = "a body", owner: str = "rig") -> Saved:
        with self.connect() as connection:
            return save(connection, self.codec.encode, Document(document_id, owner, title, body), Origin())

    def delete(self, document_id: str) -> Saved:
        with self.connect() as connection:
            return delete(connection, self.codec.encode, document_id, Origin())

    def progress(self, group: str) -> dict[str, tuple[str, int]]:
        """document id → (state, version)."""
        found = self.rows("SELECT document_id, state, version FROM readers.progress WHERE reader = %s", group)
        return {document_id: (state, version) for document_id, state, version in found}

    def states(self, group: str) -> dict[str, int]:
        """state → how many documents."""
        return Counter(state for state, _ in self.progress(group).values())

    def done(self, group: str) -> dict[str, int]:
        """document id → the version applied last."""
        query = "SELECT document_id, applied_version FROM readers.progress WHERE reader = %s AND state = 'done'"
        return dict(self.rows(query, group))

    def output(self, group: str) -> dict[str, Any]:
        """The reader's rows in the shared table: key → value."""
        return dict(self.rows("SELECT key, value FROM readers.output WHERE reader = %s", group))

    def dead_letters(self, group: str, columns: str) -> list[tuple[Any, ...]]:
        query = f'SELECT {columns} FROM readers.dead_letters WHERE reader = %s ORDER BY partition, "offset"'
        return self.rows(query, group)

    # ---------------------------------------------------------------------------------------------- Kafka

    def topic(self, partitions: int = 1) -> str:
        """A topic of this test alone, as the log is but for the partitions."""
        name = unique("test-documents")
        TopicsAdmin(self.config).create(Topic(name, partitions))
        self.topics.add(name)
        return name

    def event(self, document_id: str, version: int = 1, **fields: Any) -> bytes:
        """A document event's frame."""
        event = {
            "document_id": document_id,
            "owner_id": "rig",
            "version": version,
            "title": "a title",
            "body": "a body",
            "saved_at": datetime.now(UTC),
            "type": "saved",
        }
        return self.codec.encode(DOCUMENTS_SAVED, event | fields)

    def produce(self, topic: str, *records: Mapping[str, Any]) -> None:
        """Put records into the log and wait until it has them; each is what Producer.produce takes."""
        faults: list[object] = []
        producer = self.producer
        for record in records:
            producer.produce(topic, **record, on_delivery=lambda error, _: faults.append(error))
        try:
            eventually(lambda: producer.poll(0.02) >= 0 and len(faults) == len(records), 30, "the log has them")
        except AssertionError:
            del self.producer  # what it could not deliver would come in the way of other tests
            raise
        assert not any(faults), faults

    def put(self, topic: str, document_id: str, version: int = 1, partition: int | None = None, **fields: Any) -> None:
        """Put one document event into the log."""
        where = {} if partition is None else {"partition": partition}
        self.produce(topic, {"key": document_id, "value": self.event(document_id, version, **fields), **where})

    def ends(self, topic: str) -> dict[int, int]:
        """partition → the end that a reader of committed records can reach."""
        partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions}
        answers = self.admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
        return {one.partition: answer.result().offset for one, answer in answers.items()}

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """partition → (offset, metadata), for those that have a commit."""
        request = ConsumerGroupTopicPartitions(group)
        answer = self.admin.list_consumer_group_offsets([request])[group].result()
        return {
            one.partition: (one.offset, one.metadata or "")
            for one in answer.topic_partitions
            if one.topic == topic and one.offset >= 0
        }

    def lag(self, group: str, topic: str = DOCUMENTS_SAVED.name) -> int:
        """Records and markers between what is committed and the end, over all partitions."""
        committed = self.committed(group, topic)
        return sum(end - committed.get(number, (0, ""))[0] for number, end in self.ends(topic).items())

    def commit(self, group: str, topic: str, positions: Mapping[int, int], metadata: str | None = None) -> None:
        """Commit as another tool would, once the members of the group are gone."""
        consumer = Consumer({**self.config.kafka_client(), "group.id": group, "enable.auto.commit": False})
        marks: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
        offsets = [TopicPartition(topic, number, position, **marks) for number, position in positions.items()]

        def committed() -> bool:
            try:
                return all(one.error is None for one in consumer.commit(offsets=offsets, asynchronous=False) or ())
            except KafkaException as error:
                raise AssertionError(error) from error

        eventually(committed, 15)
        consumer.close()

    def start_at_end(self, group: str) -> None:
        """Let a group begin with what is saved from now on: the log holds other tests' documents."""
        self.commit(group, DOCUMENTS_SAVED.name, self.ends(DOCUMENTS_SAVED.name))

    # -------------------------------------------------------------------------------------------- readers

    @contextmanager
    def worker(self, reader: Reader, topic: str = DOCUMENTS_SAVED.name) -> Iterator[Worker]:
        """A worker in a thread; drained at the end, and the test fails with what it failed with."""
        self.groups.add(reader.group)
        made: list[Loop] = []
        errors: list[BaseException] = []
        begun = Event()

        def run() -> None:
            try:
                with assembled(self.config, reader, Wiring(topic)) as loop:
                    made.append(loop)
                    begun.set()
                    loop.run()
            except BaseException as error:  # noqa: BLE001 - the test raises it
                errors.append(error)
            finally:
                begun.set()

        thread = Thread(target=run, name=reader.group, daemon=True)
        thread.start()
        assert begun.wait(60), "the worker does not start"
        if not made:
            raise errors[0]
        worker = Worker(made[0], thread, errors)
        try:
            yield worker
        finally:
            worker.stop()

    @contextmanager
    def command(self, prefix: str, *names: str, workers: int = 1, **environment: str) -> Iterator[Command]:
        """`streams run` as a process, of readers in tests/readers_for_tests, whose groups begin with `prefix`.

        Without a prefix it runs the built-in ones.
        """
        command, env = self.invocation(prefix, *names, workers=workers, **environment)
        log = self.scratch / f"{unique('run')}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(command, env=env, stdout=said, stderr=said)
        try:
            yield Command(process, log)
        finally:
            if process.poll() is None:
                process.kill()  # its workers follow within a second
            process.wait(10)

    def invocation(
        self, prefix: str, *names: str, workers: int, **environment: str
    ) -> tuple[list[str], dict[str, str]]:
        """What `command` runs, and its environment."""
        groups = [prefix + name for name in names]
        self.groups.update(groups)
        path = os.pathsep.join([str(self._plugin), str(ROOT)])
        env = {**os.environ, "PYTHONPATH": path, "TEST_GROUP_PREFIX": prefix, **environment}
        return [sys.executable, "-m", "streams.cli.main", "run", *groups, "--workers", str(workers)], env

    @cached_property
    def _plugin(self) -> Path:
        """A folder for the module path that offers the tests' readers as an installed package does."""
        folder = self.scratch / "plugin"
        info = folder / "distributary_test_readers-0.dist-info"
        info.mkdir(parents=True)
        modules = sorted(path.stem for path in (ROOT / READERS.replace(".", "/")).glob("[a-z]*.py"))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: distributary-test-readers\nVersion: 0\n")
        (info / "entry_points.txt").write_text(
            "[streams.readers]\n"
            + "".join(f"{module} = {READERS}.{module}\n" for module in modules)
            + "[streams.scorers]\nstrict = tests.scorers_for_tests:Strict\n"
        )
        return folder

    @contextmanager
    def frozen(self, part: str) -> Iterator[None]:
        """A server of the stack that neither answers nor closes its connections: stopped by SIGSTOP."""
        process = self.server(part)
        family = [process, *process.children(recursive=True)]
        for one in family:
            one.suspend()
        try:
            yield
        finally:
            for one in family:
                one.resume()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Postgres ends the sessions of readers and refuses new ones."""
        allow = f'ALTER DATABASE "{self.config.db_name}" ALLOW_CONNECTIONS %s'
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'distributary-reader'"
        with connect(self.config.model_copy(update={"db_name": "postgres"}), autocommit=True) as session:
            session.execute(allow % "false")
            try:
                session.execute(end)
                yield
            finally:
                session.execute(allow % "true")

    def fill_disk(self, part: str) -> None:
        """No write of a server of the stack to any file succeeds from now on: for it the disk is full.

        A limit on the size of its files does that without a disk to fill, and without privilege. It ends with it.
        """
        server = self.server(part)
        _, hard = server.rlimit(psutil.RLIMIT_FSIZE)
        server.rlimit(psutil.RLIMIT_FSIZE, (1, hard))

    def kill(self, part: str) -> None:
        """kill -9 of a server of the stack."""
        server = self.server(part)
        server.kill()
        server.wait(60)

    def heal(self) -> None:
        """What `streams up` does."""
        local.up(self.config, Console(stderr=True))
        self._renew()

    def runs(self, part: str) -> bool:
        """Whether a server of the stack runs."""
        return LocalProcess(part, self.config.home.resolve()).running() is not None

    def server(self, part: str) -> psutil.Process:
        found = LocalProcess(part, self.config.home.resolve()).running()
        assert found is not None, f"{part} does not run"
        return found

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Afterwards the readers and topics made in between are gone: jobs would wait for them, the broker be slow."""
        groups, topics = set(self.groups), set(self.topics)
        self._renew()
        try:
            yield
        finally:
            self._renew()
            self._forget(self.groups - groups - set(BUILT_IN), self.topics - topics)
            self.groups, self.topics = groups, topics

    def _renew(self) -> None:
        """Have new clients: the broker that these knew may have been killed or frozen (streams.kafka.brokers)."""
        for name in ("admin", "producer"):
            self.__dict__.pop(name, None)

    def _forget(self, groups: set[str], topics: set[str]) -> None:
        """A topic of dead letters that were sent stays: the relay may still have to put them there."""
        self.do("DELETE FROM readers.registered WHERE reader = ANY(%s)", list(groups))
        letters = [dead_letters(group).name for group in groups]
        unused = "name = ANY(%s) AND NOT EXISTS (SELECT FROM app.outbox WHERE topic = name)"
        gone = {name for (name,) in self.rows(f"DELETE FROM app.topics WHERE {unused} RETURNING name", letters)}
        if gone | topics:
            for answer in self.admin.delete_topics(list(gone | topics)).values():
                answer.result()


@pytest.fixture(scope="session")
def _rig(stack: Settings, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(stack, tmp_path_factory.mktemp("rig"))


@pytest.fixture
def rig(_rig: Rig) -> Iterator[Rig]:
    """The stack as the tests of readers use it; what a test made there is forgotten after it."""
    with _rig.forgetting():
        yield _rig


def catches_up(rig: Rig, reader: str, versions: Mapping[str, int], seconds: float = 30.0) -> None:
    """Wait until a reader has applied these versions of these documents."""

    def all_done() -> bool:
        done = rig.done(reader)
        missing = {key: (version, done.get(key)) for key, version in versions.items() if done.get(key) != version}
        assert not missing, missing
        return True

    eventually(all_done, seconds, f"{reader} has done all")
