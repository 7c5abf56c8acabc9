"""`streams setup` on the real stack: nothing to do, several at once, what is missing, what it must not do alone."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Producer

from streams.cdc import connector, slot
from streams.cdc.connect import Connect, ConnectorState
from streams.config import Settings
from streams.database import connect
from streams.errors import Incompatible
from streams.kafka.registry import Registry
from streams.kafka.topics_admin import TopicsAdmin
from streams.stack.setup import ensure_reader
from streams.topics import HEARTBEAT, Topic, dead_letters
from tests.relay_rig import doctor, own_topic, streams
from tests.support import eventually

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def group(stack: Settings) -> Iterator[str]:
    """A reader's group of this test alone."""
    group = f"test-setup-{os.urandom(3).hex()}"
    yield group
    with connect(stack, autocommit=True) as connection:
        connection.execute("DELETE FROM readers.registered WHERE reader = %s", [group])
        connection.execute("DELETE FROM app.topics WHERE name = %s", [dead_letters(group).name])
    admin = TopicsAdmin(stack)
    if dead_letters(group).name in admin.partitions():
        admin.delete(dead_letters(group).name)


def test_a_second_setup_changes_nothing(stack: Settings) -> None:
    streams("streams setup")
    done = streams("streams setup")
    assert done.returncode == 0, done.stderr
    for line in done.stderr.splitlines():
        assert "kept" in line or "registered" in line


def test_a_connector_that_waits_for_a_transaction_without_a_writer_is_freed(
    stack: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads its offsets first, as far as they are committed."""
    endless = {"transactional.id": "gone", "transaction.timeout.ms": 900_000}
    gone = Producer({**stack.kafka_client(), **endless})
    gone.init_transactions(30)
    gone.begin_transaction()
    gone.produce(connector.OFFSETS_TOPIC, b"{}", b'["of nobody"]')
    assert gone.flush(30) == 0
    monkeypatch.setattr(connector, "STUCK_SECONDS", 8.0)
    with own_topic(stack, f"test-setup-{os.urandom(3).hex()}") as events, Connect(stack) as worker:
        worker.restart(connector.NAME, only_failed=False)
        eventually(lambda: not state(worker).running, 30)
        events.emit()
        done = streams("streams setup")
        assert done.returncode == 0, done.stderr
        assert "restarted, running" in done.stderr
        events.all_arrive(60)


def state(worker: Connect) -> ConnectorState:
    found = worker.state(connector.NAME)
    assert found is not None
    return found


def test_the_relay_is_made_as_it_must_be(stack: Settings) -> None:
    with connect(stack) as connection:
        state = slot.read_state(connection)
        assert (state.usable, state.failover) == (True, True)
        (rows,) = connection.execute(
            "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication"
        ).fetchall()
        assert rows == (True, False, False, False)
    with Connect(stack) as worker:
        assert worker.config(connector.NAME) == connector.wanted()
        assert "${env:STREAMS_DB_PASSWORD}" in connector.wanted()["database.password"]


def test_setups_at_once_leave_one_of_each(stack: Settings) -> None:
    httpx.delete(f"{stack.connect_url}/connectors/{connector.NAME}").raise_for_status()
    TopicsAdmin(stack).delete(HEARTBEAT.name)
    command = [sys.executable, "-m", "streams.cli.main", "setup"]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [setup.communicate(timeout=180)[1] for setup in running]
    assert [setup.returncode for setup in running] == [0, 0, 0], said
    assert sum("connector    made" in text for text in said) == 1
    assert doctor().exit_code == 0


def test_a_paused_connector_and_a_changed_one_are_put_right(stack: Settings) -> None:
    with Connect(stack) as worker:
        worker.put(connector.NAME, {**connector.wanted(), "poll.interval.ms": "400"})
        httpx.put(f"{stack.connect_url}/connectors/{connector.NAME}/pause").raise_for_status()
        eventually(lambda: (state := worker.state(connector.NAME)) and state.connector == "PAUSED", 30, "the pause")
        assert streams("streams setup").returncode == 0
        assert worker.config(connector.NAME) == connector.wanted()
        state = worker.state(connector.NAME)
        assert state is not None
        assert state.running


def test_a_readers_topic_schema_and_registration_are_made_once(stack: Settings, group: str) -> None:
    topic = dead_letters(group)
    for _ in range(2):
        ensure_reader(stack, group)
    state = TopicsAdmin(stack).describe([topic.name])[topic.name]
    assert (state.partitions, state.differs(topic)) == (topic.partitions, {})
    with connect(stack) as connection:
        assert connection.execute("SELECT count(*) FROM app.topics WHERE name = %s", [topic.name]).fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM readers.registered WHERE reader = %s", [group]).fetchone() == (
            1,
        )


def test_the_registry_refuses_an_incompatible_schema(stack: Settings, group: str) -> None:
    ensure_reader(stack, group)
    other = '{"type": "record", "name": "DeadLetter", "namespace": "distributary.v1", "fields": []}'
    with pytest.raises(Incompatible):
        Registry(stack).register(dead_letters(group).subject, other)


def test_a_setting_that_the_broker_refuses_is_left_out_and_said(
    stack: Settings, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(dead_letters(group).name, 3, config={"no.such.setting": "1", "retention.ms": "1000"})
    admin = TopicsAdmin(stack)
    with caplog.at_level(logging.WARNING):
        admin.create(topic)
    assert "no.such.setting" in caplog.text
    state = eventually(lambda: admin.describe([topic.name]).get(topic.name))
    assert state is not None
    assert state.partitions == 3
    eventually(lambda: admin.describe([topic.name])[topic.name].config["retention.ms"] == "1000")


def test_setup_does_not_replace_a_lost_slot_by_itself(stack: Settings) -> None:
    """A new slot would begin after what waits; so setup stops, and names the command that looks for it first."""
    with Connect(stack) as worker, connect(stack, autocommit=True) as connection:
        worker.stop(connector.NAME)
        connector.wait_until_stopped(worker)
        slot.drop_slot(connection)
        refused = streams("streams setup")
        assert refused.returncode == 6
        assert "run `streams outbox repair`" in refused.stderr
        assert not slot.read_state(connection).slot_exists
    assert streams("streams outbox repair").returncode == 0
    assert doctor().exit_code == 0
