"""Each fault made for real: the doctor names it, the command that it prints mends it, and nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import httpx
import psycopg
import pytest

from streams.cdc import connector, slot
from streams.cdc.connect import Connect
from streams.config import Settings
from streams.database import connect
from streams.kafka.topics_admin import TopicsAdmin
from streams.stack import local
from streams.stack.setup import ensure_reader
from streams.topics import HEARTBEAT, MESSAGE_BYTES_MAX, Topic, dead_letters
from tests.relay_rig import Events, doctor, own_topic, streams
from tests.support import eventually

pytestmark = pytest.mark.timeout(600)

READER = "test-doctor"


@pytest.fixture
def events(stack: Settings) -> Iterator[Events]:
    with own_topic(stack, f"test-doctor-{os.urandom(3).hex()}") as events:
        yield events


@pytest.fixture(autouse=True, scope="module")
def reader(stack: Settings) -> Iterator[None]:
    ensure_reader(stack, READER)
    yield
    execute(stack, f"DELETE FROM readers.registered WHERE reader = '{READER}'")
    execute(stack, f"DELETE FROM app.topics WHERE name = '{dead_letters(READER).name}'")
    TopicsAdmin(stack).delete(dead_letters(READER).name)


def execute(config: Settings, statement: str) -> None:
    with connect(config, autocommit=True) as connection:
        connection.execute(statement)


def drop_slot(events: Events) -> None:
    def dropped() -> bool:
        with connect(events.config, autocommit=True) as connection:
            slot.end_reader(connection)
            try:
                slot.drop_slot(connection)
            except psycopg.errors.ObjectInUse:
                return False  # the relay was quicker to come back
            return True

    eventually(dropped, message="the drop of the slot")


def drop_publication(events: Events) -> None:
    execute(events.config, "DROP PUBLICATION docs_outbox")


def delete_connector(events: Events) -> None:
    httpx.delete(f"{events.config.connect_url}/connectors/{connector.NAME}").raise_for_status()


def fail_task(events: Events) -> None:
    """A task that starts while there is no publication fails, and stays so when there is one again.

    What is saved in between would be passed over, so nothing is.
    """
    with Connect(events.config) as worker, connect(events.config, autocommit=True) as connection:
        execute(events.config, "DROP PUBLICATION docs_outbox")
        worker.restart_task(connector.NAME)
        eventually(lambda: (state := worker.state(connector.NAME)) and state.failed, 60, "the task's failure")
        slot.create_publication(connection)


def delete_heartbeat_topic(events: Events) -> None:
    TopicsAdmin(events.config).delete(HEARTBEAT.name)


def shrink_topic(events: Events) -> None:
    """A dead-letter topic that lost its partitions; it is a reader's of its own, for its records go."""
    name = dead_letters(READER).name
    admin = TopicsAdmin(events.config)
    admin.delete(name)
    eventually(lambda: name not in admin.partitions(), message="the topic's removal")
    admin.create(Topic(name, 1))


def kill_registry(events: Events) -> None:
    parts = {part["name"]: part for part in local.status(events.config)["parts"]}
    os.kill(parts["registry"]["pid"], signal.SIGKILL)


FAULTS: dict[str, tuple[Callable[[Events], None], str, str]] = {
    "slot dropped": (drop_slot, "slot", "streams outbox repair"),
    "publication missing": (drop_publication, "publication", "streams outbox repair"),
    "connector deleted": (delete_connector, "connector", "streams setup"),
    "task failed": (fail_task, "task", "streams setup"),
    "heartbeat topic missing": (delete_heartbeat_topic, f"topic {HEARTBEAT.name}", "streams setup"),
    "topic with one partition": (shrink_topic, f"topic {dead_letters(READER).name}", "streams setup"),
    "registry down": (kill_registry, "registry", "streams up"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_its_command_mends_it(events: Events, fault: str) -> None:
    make, name, command = FAULTS[fault]
    events.emit(3)
    make(events)
    with events.flowing():
        events.emit(3)
        found = doctor()
        assert found.exit_code == 6
        assert name in found.faults
        assert found.commands == [command], found.faults
        done = streams(command)
        assert done.returncode == 0, done.stderr
        events.emit(3)
    events.all_arrive()
    healed = doctor()
    assert (healed.exit_code, healed.faults) == (0, {})
    assert_order_is_kept(events)


def assert_order_is_kept(events: Events) -> None:
    """By key, the first arrival of each event is in the order of the commits."""
    for key in ("one", "flow"):
        arrived = list(dict.fromkeys(events.ids(key)))
        assert arrived == [event_id for event_id in events.sent if event_id in set(arrived)]


@pytest.fixture
def without_size_check(stack: Settings) -> Iterator[None]:
    execute(stack, "ALTER TABLE app.outbox DROP CONSTRAINT outbox_payload_check")
    yield
    check = "CHECK (octet_length(payload) BETWEEN 6 AND 6291456)"
    execute(stack, f"ALTER TABLE app.outbox ADD CONSTRAINT outbox_payload_check {check}")


@pytest.mark.usefixtures("without_size_check")
def test_a_row_that_is_too_large_is_named_and_set_aside(events: Events) -> None:
    events.emit()
    (poison,) = events.emit(payload=bytes(MESSAGE_BYTES_MAX + 1))
    events.emit(3)
    assert_skipped(events, poison, "bytes")


@pytest.mark.usefixtures("without_size_check")
def test_several_bad_rows_are_set_aside_by_one_command(events: Events) -> None:
    bad = [*events.emit(payload=bytes(MESSAGE_BYTES_MAX + 1)), *events.emit(payload=bytes(MESSAGE_BYTES_MAX + 2))]
    events.emit(3)
    found = doctor()
    assert found.commands == [f"streams outbox skip {' '.join(str(events.seq(event_id)) for event_id in bad)}"]
    assert streams(found.commands[0]).returncode == 0
    events.sent = [event_id for event_id in events.sent if event_id not in bad]
    events.all_arrive()


def test_a_row_for_a_topic_that_no_broker_takes_is_set_aside(events: Events) -> None:
    execute(events.config, "INSERT INTO app.topics VALUES ('not a topic!')")
    try:
        events.emit()
        (poison,) = events.emit(topic="not a topic!")
        events.emit(3)
        assert_skipped(events, poison, "no topic of the name")
    finally:
        execute(events.config, "DELETE FROM app.topics WHERE name = 'not a topic!'")


def assert_skipped(events: Events, poison: str, reason: str) -> None:
    """The doctor names the row, its command sets it aside, all others arrive, and the row is kept."""
    seq = events.seq(poison)
    found = doctor()
    assert found.exit_code == 6
    assert f"row {seq} " in found.faults["outbox"]
    assert reason in found.faults["outbox"]
    assert found.commands == [f"streams outbox skip {seq}"]
    repaired = streams("streams outbox repair")  # which alone would only emit the row again
    assert (repaired.returncode, f"run `streams outbox skip {seq}`" in repaired.stderr) == (6, True)
    done = streams(found.commands[0])
    assert done.returncode == 0, done.stderr
    events.sent.remove(poison)
    events.all_arrive()
    with connect(events.config) as connection:
        kept = connection.execute("SELECT event_id::text FROM app.outbox_skipped WHERE seq = %s", [seq]).fetchall()
        assert kept == [(poison,)]
    assert doctor().exit_code == 0


def test_a_row_for_a_topic_that_is_missing_waits_until_setup_makes_it(events: Events) -> None:
    with own_topic(events.config, f"{events.topic}-later") as later:
        TopicsAdmin(events.config).delete(later.topic)
        later.emit()
        events.emit(3)
        found = doctor()
        assert "missing" in found.faults[f"topic {later.topic}"]
        assert found.commands == ["streams setup"]
        assert streams("streams setup").returncode == 0
        events.all_arrive()
        later.all_arrive()
        assert doctor().exit_code == 0


def test_rows_passed_over_in_silence_are_found(events: Events) -> None:
    """A publication that was gone for a while and made again by hand: the relay runs, and has left rows out."""
    events.emit(3)
    events.all_arrive()
    drop_publication(events)
    passed_over = events.emit(3)
    with connect(events.config, autocommit=True) as connection:
        slot.create_publication(connection)
    events.emit(3)
    eventually(lambda: events.missing() == set(passed_over), 60, "the arrival of all but those passed over")
    eventually(lambda: "outbox" in (found := doctor()).faults and found.commands == ["streams outbox repair"], 90)
    assert streams("streams outbox repair").returncode == 0
    events.all_arrive()
    assert doctor().exit_code == 0


def test_two_faults_are_mended_by_their_commands_in_the_order_given(events: Events) -> None:
    delete_heartbeat_topic(events)
    drop_publication(events)
    events.emit(3)
    found = doctor()
    assert found.commands == ["streams outbox repair", "streams setup"]
    for command in found.commands:
        assert streams(command).returncode == 0
    events.all_arrive()
    assert doctor().exit_code == 0
