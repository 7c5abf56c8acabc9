"""The outbox's commands on the real stack: status, prune, re-emit, and a repair that is killed at every step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams.cdc import connector
from streams.cdc.connect import Connect
from streams.config import Settings
from streams.database import connect
from streams.errors import RelayError
from streams.ops import outbox
from tests.relay_rig import Events, doctor, own_topic, streams
from tests.support import eventually

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def events(stack: Settings) -> Iterator[Events]:
    with own_topic(stack, f"test-outbox-{os.urandom(3).hex()}") as events:
        yield events


@pytest.fixture
def relay_stopped(events: Events) -> Iterator[None]:
    with Connect(events.config) as worker:
        worker.stop(connector.NAME)
        connector.wait_until_stopped(worker)
        yield
        worker.resume(connector.NAME)
        connector.wait_until_running(worker, lambda: None)


def state_of(config: Settings) -> str:
    with Connect(config) as worker:
        state = worker.state(connector.NAME)
    return state.connector if state else "MISSING"


def status() -> dict[str, Any]:
    done = streams("streams outbox status --json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def seqs(config: Settings, topic: str) -> list[int]:
    with connect(config) as connection:
        rows = connection.execute("SELECT seq FROM app.outbox WHERE topic = %s ORDER BY seq", [topic]).fetchall()
    return [seq for (seq,) in rows]


def test_status_tells_what_waits(events: Events) -> None:
    events.emit(3)
    events.all_arrive()
    found = status()
    assert found["rows"] >= 3
    assert (found["unpublished_rows"], found["oldest_unpublished_age_seconds"]) == (0, 0.0)
    assert (found["publication"], found["connector"], found["task"]) == (True, "RUNNING", "RUNNING")
    assert found["slot"]["exists"]
    assert 0 <= found["slot"]["lag_bytes"] <= found["slot"]["held_bytes"]
    assert found["relay"] == "debezium"
    assert found["slot"]["safe_bytes"] > 0


def test_status_tells_what_an_open_transaction_holds_back(events: Events) -> None:
    """The relay has confirmed nearly all, and the write-ahead log cannot be removed for all that."""
    with connect(events.config) as open_one, connect(events.config, autocommit=True) as another:
        events._emit(open_one, "open", b"\0" * 10, events.topic)
        another.execute("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 20000000))")
        slot = eventually(lambda: (found := status()["slot"])["lag_bytes"] < 1_000_000 and found, 60, "confirmation")
        assert slot["held_bytes"] > 20_000_000


@pytest.mark.usefixtures("relay_stopped")
def test_status_counts_what_is_unpublished_and_its_age(events: Events) -> None:
    events.emit(3)
    found = status()
    assert found["unpublished_rows"] == 3
    assert found["oldest_unpublished_seq"] == seqs(events.config, events.topic)[0]
    assert 0 < found["oldest_unpublished_age_seconds"] < 120
    assert found["connector"] == "STOPPED"
    assert "unpublished  3, the oldest for" in streams("streams outbox status").stdout


def test_prune_deletes_what_the_slot_has_confirmed(events: Events) -> None:
    events.emit(3)
    events.all_arrive()
    assert "deleted 0 rows" in streams("streams outbox prune --older-than 3d").stdout
    done = streams("streams outbox prune --older-than 0s")
    assert done.returncode == 0, done.stderr
    assert seqs(events.config, events.topic) == []


@pytest.mark.usefixtures("relay_stopped")
def test_prune_keeps_what_is_unpublished_and_says_why(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "CONFIRM_SECONDS_MAX", 1.0)
    events.emit(3)
    done = outbox.prune(events.config, timedelta())
    assert len(seqs(events.config, events.topic)) == 3
    assert done.kept_rows >= 3
    assert "confirmed" in done.why


def test_prune_waits_for_no_save_that_stays_open(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old open save neither loses its row nor holds new saves up: prune gives up with one sentence."""
    monkeypatch.setattr(outbox, "_LOCK_TRIES", 3)
    with connect(events.config) as slow:
        events._emit(slow, "slow", b"\0" * 10, events.topic)
        with pytest.raises(RelayError, match="has been open"):
            outbox.prune(events.config, timedelta())
        before = datetime.now(UTC)
        events.emit()
        assert datetime.now(UTC) - before < timedelta(seconds=10)


def test_re_emit_repeats_a_range_in_order_with_the_same_ids(events: Events) -> None:
    sent = events.emit(5)
    events.all_arrive()
    first, *_, last = seqs(events.config, events.topic)
    assert streams(f"streams outbox re-emit --since {first} --until {last}").stdout == "emitted 5 events again\n"
    eventually(lambda: events.ids() == sent + sent, 60, "the second arrival")


def test_re_emit_by_time_emits_each_event_once(events: Events) -> None:
    events.emit(2)
    events.all_arrive()
    streams(f"streams outbox re-emit --since {seqs(events.config, events.topic)[0]}")
    done = streams("streams outbox re-emit --since 5m --until 0s")
    assert done.returncode == 0, done.stderr
    eventually(lambda: len(events.ids()) == 6, 60, "two events, thrice each")


def test_re_emitted_records_have_a_new_time(events: Events) -> None:
    """Else a replayed day would look like a day of lag."""
    events.emit()
    events.all_arrive()
    streams(f"streams outbox re-emit --since {seqs(events.config, events.topic)[0]}")
    eventually(lambda: len(events.ids()) == 2, 60, "the second arrival")
    first, second = events.records()
    assert second.timestamp()[1] > first.timestamp()[1]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("re-emit --since yesterday", "neither a time"),
        ("re-emit --since 2026-11-27T00:00", "no time zone"),
        ("prune --older-than 3", "not a length of time"),
        ("re-emit --since 1h --until 2h", "--since 1h is after --until 2h"),
        ("re-emit --since 99999999999999999999", "Postgres does not take that: bigint out of range"),
        ("skip 99999999999999999999", "Postgres does not take that"),
    ],
)
def test_a_bad_argument_is_one_sentence(stack: Settings, command: str, says: str) -> None:
    done = streams(f"streams outbox {command}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_skip_refuses_what_is_not_in_the_way(events: Events) -> None:
    events.emit()
    events.all_arrive()
    (published,) = seqs(events.config, events.topic)
    for seq, says in ((published, "the log has it already"), (10**12, "the outbox does not have it")):
        done = streams(f"streams outbox skip {seq}")
        assert (done.returncode, says in done.stderr) == (2, True)
    assert state_of(events.config) == "RUNNING"


def test_a_repair_of_what_is_well_changes_nothing(events: Events) -> None:
    events.emit(3)
    with events.flowing():
        assert "0 rows set aside" in streams("streams outbox repair").stdout
    events.all_arrive()
    assert events.came_in_order("one")
    assert len(events.ids()) == len(events.sent)


@pytest.mark.parametrize("step", ["connector stopped", "slot made", "rows set aside"])
def test_a_repair_that_is_killed_can_be_run_again(events: Events, step: str) -> None:
    """Killed after each step: setup will not go on over it, doctor names the command, and nothing is lost."""
    events.emit(3)
    events.all_arrive()
    lose_slot(events)
    with events.flowing():
        events.emit(3)
        kill_repair_after(step)
        refused = streams("streams setup")
        assert (refused.returncode, "streams outbox repair" in refused.stderr) == (6, True)
        assert doctor().commands == ["streams outbox repair"]
        assert streams("streams outbox repair").returncode == 0
    events.all_arrive()
    assert doctor().exit_code == 0
    assert events.came_in_order("flow")
    assert len(events.ids()) == len(events.sent), "an event came twice"


def lose_slot(events: Events) -> None:
    with Connect(events.config) as worker, connect(events.config, autocommit=True) as connection:
        worker.stop(connector.NAME)
        connector.wait_until_stopped(worker)
        connection.execute("SELECT pg_drop_replication_slot('docs_outbox')")


def kill_repair_after(step: str) -> None:
    """Run a repair and kill it as soon as it says that it has done the step."""
    command = [sys.executable, "-u", "-m", "streams.cli.main", "outbox", "repair"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as repair:
        assert repair.stdout is not None
        assert any(step in line for line in repair.stdout)
        repair.send_signal(signal.SIGKILL)
