"""What Postgres adds to lag: samples over time by one recorder, marks, parked records, the relay; and doing without."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import TopicPartition

from streams.config import Settings
from streams.core.flow import Shape
from streams.core.groups import Partition
from streams.core.outlook import Outlook, Parked
from streams.core.sentences import sentence
from streams.database import connect
from streams.errors import Unavailable
from streams.ops import lag_history
from streams.ops.lag_facts import OUTBOX, RELAY, Aside
from streams.ops.lag_postgres import gather
from streams.ops.lag_recorder import Recorder, record
from streams.ops.lag_watch import LagWatch
from streams.ops.replay import Replays
from tests.integration.foreign import Foreign
from tests.rig import Rig, unique
from tests.support import eventually, free_port_base

STREAMS = [sys.executable, "-m", "streams.cli.main"]


@pytest.fixture(scope="module")
def foreign(stack: Settings) -> Foreign:
    return Foreign(stack)


@pytest.fixture
def group(foreign: Foreign) -> tuple[str, str]:
    """A group that has read 3 of 10 records, and its topic."""
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, [int(time.time() * 1000)] * 10)
    foreign.commit(group, TopicPartition(topic, 0, 3))
    return group, topic


@contextmanager
def _chosen(stack: Settings, *groups: str) -> Iterator[Recorder]:
    """A recorder that has the lock: the one of another test, or of an API, may have to let it go first."""
    with Recorder(stack, groups) as recorder:
        eventually(recorder.is_chosen, 30, "the lock is free")
        recorder.open()
        yield recorder


def _rows(stack: Settings, group: str) -> list[tuple[object, ...]]:
    with connect(stack) as connection:
        query = "SELECT lag_records, committed, log_ends FROM ops.lag_samples WHERE group_name = %s ORDER BY taken_at"
        return connection.execute(query, [group]).fetchall()


# ------------------------------------------------------------------------------------------------------- samples


def test_a_recorded_sample_comes_back_as_it_was(stack: Settings, foreign: Foreign, group: tuple[str, str]):
    name, topic = group
    with _chosen(stack, name) as recorder:
        recorder.sample()
        foreign.commit(name, TopicPartition(topic, 0, 5))
        recorder.sample()
    assert _rows(stack, name) == [(7, [3], [10]), (5, [5], [10])]
    with connect(stack) as connection:
        found = lag_history.recent(connection, 60, [name])[name]
        last = lag_history.last(connection, [name])[name]
    assert last == found[-1:]
    place = found[-1].places[Partition(topic, 0)]
    assert (place.committed, place.end, place.lag, place.backlog) == (5, 10, 5, 5.0)
    before = found[0].places[Partition(topic, 0)]
    assert (place.done - before.done, place.arrived - before.arrived) == (2.0, 0.0)


def test_a_new_recorder_goes_on_where_the_last_one_was(stack: Settings, foreign: Foreign, group: tuple[str, str]):
    name, topic = group
    for committed in (4, 5, 6):
        foreign.commit(name, TopicPartition(topic, 0, committed))
        with _chosen(stack, name) as recorder:
            recorder.sample()
    with connect(stack) as connection:
        found = lag_history.recent(connection, 60, [name])[name]
    done = [sample.places[Partition(topic, 0)].done for sample in found]
    assert [one - done[0] for one in done] == [0.0, 1.0, 2.0]


def test_one_recorder_at_a_time_and_the_next_one_takes_over(stack: Settings, group: tuple[str, str]):
    with Recorder(stack, [group[0]]) as second:
        with _chosen(stack, group[0]):
            assert not second.is_chosen()
        eventually(second.is_chosen, 10, "the lock is free")


def test_a_recorder_survives_the_end_of_its_session(stack: Settings, group: tuple[str, str]):
    ended = Event()
    thread = Thread(target=record, args=(stack, ended, [group[0]]), daemon=True)
    thread.start()
    try:
        eventually(lambda: _rows(stack, group[0]), 60, "it records")
        with connect(stack, autocommit=True) as connection:
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'distributary-lag'"
            connection.execute(end)
        count = len(_rows(stack, group[0]))
        eventually(lambda: len(_rows(stack, group[0])) > count + 1, 60, "it records again")
    finally:
        ended.set()
        thread.join(30)
    assert not thread.is_alive()


def test_lag_takes_the_rates_from_what_was_recorded(stack: Settings, foreign: Foreign, group: tuple[str, str]):
    name, topic = group
    with _chosen(stack, name) as recorder:
        for committed in (3, 4, 5):
            foreign.commit(name, TopicPartition(topic, 0, committed))
            foreign.produce(topic, 0, [int(time.time() * 1000)] * 5)
            recorder.sample()
    args = [*STREAMS, "lag", "--group", name, "--json"]
    (seen,) = json.loads(subprocess.run(args, capture_output=True, text=True, check=True).stdout)
    assert seen["rate_in_per_second"] > seen["rate_out_per_second"] > 0
    assert seen["shape"] == "ramp"
    assert seen["sentence"].startswith(f"{name}: ramp, falls ")


def test_old_samples_are_no_rates_of_now(stack: Settings, group: tuple[str, str]):
    with _chosen(stack, group[0]) as recorder:
        for _ in range(3):
            recorder.sample()
    with connect(stack, autocommit=True) as connection:
        assert group[0] in gather(connection, [group[0]]).samples
        age = "UPDATE ops.lag_samples SET taken_at = taken_at - interval '30 seconds' WHERE group_name = %s"
        connection.execute(age, [group[0]])
        assert group[0] not in gather(connection, [group[0]]).samples


def test_the_older_samples_are_the_fewer_are_kept(stack: Settings, group: tuple[str, str]):
    """Two hours of a sample every five seconds, the first of which is kept for long."""
    with _chosen(stack, group[0]) as recorder:
        recorder.sample()
        with connect(stack, autocommit=True) as connection:
            (sample,) = lag_history.last(connection, [group[0]])[group[0]]
            connection.execute("DELETE FROM ops.lag_samples WHERE group_name = %s", [group[0]])
            lag = recorder.lags()[0]
            start = time.time() // 600 * 600 - 7_200  # at a full ten minutes
            with connection.transaction():
                for n in range(0, 7_200, 5):
                    at = sample.__class__(start + n, sample.members, sample.places)
                    lag_history.write(connection, Outlook(lag), at)
            kept = "SELECT expires_at - taken_at, count(*) FROM ops.lag_samples WHERE group_name = %s GROUP BY 1"
            counts = {str(length): count for length, count in connection.execute(kept, [group[0]])}
            assert counts == {"1:00:00": 1_440 - 120, "1 day, 0:00:00": 120 - 12, "30 days, 0:00:00": 12}
            lag_history.thin(connection)
            left = "SELECT count(*) FROM ops.lag_samples WHERE group_name = %s AND taken_at < now() - interval '1 hour'"
            row = connection.execute(left, [group[0]]).fetchone()
    assert row is not None
    assert 60 <= row[0] <= 120  # a sample a minute of the hour and more before the last


# --------------------------------------------------------------------------------------------------------- marks


def test_what_is_done_to_a_group_is_marked_on_its_chart(stack: Settings, group: tuple[str, str], tmp_path: Path):
    name, _ = group
    replays = Replays(stack, watch_seconds=0.1)
    replays.apply(replays.plan(name, "earliest"))
    replays.undo(name)
    lag_history.mark(stack, "chaos", None, f"a test of {name}")
    with _chosen(stack, name) as recorder:
        recorder.sample()
        recorder.sample()
    chart = lag_history.chart(stack, [name], 600)
    assert [lag for _, lag in chart.curves[name]] == [7, 7]
    said = [(mark.kind, mark.group, mark.text) for mark in chart.marks if mark.group == name or name in mark.text]
    assert said == [
        ("replay", name, "1 partitions moved"),
        ("replay", name, "undone"),
        ("chaos", None, f"a test of {name}"),
    ]
    path = tmp_path / "lag.png"
    out = subprocess.run(
        [*STREAMS, "lag", "--group", name, "--plot", str(path)], capture_output=True, text=True, check=True
    )
    assert out.stdout == f"drew the lag of {name} into {path}\n"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_mark_is_never_in_the_way(stack: Settings):
    absent = stack.model_copy(update={"db_port": free_port_base()})
    lag_history.mark(absent, "replay", "g", "nobody hears it")
    assert lag_history.chart(absent, [], 600) == lag_history.Chart({})


# -------------------------------------------------------------------------------------------------------- parked


def _look(stack: Settings, *groups: str) -> list[Outlook]:
    """What is known now; a broker on a busy machine may need another try."""

    def look() -> list[Outlook]:
        try:
            with LagWatch(stack, groups) as watch:
                return watch.look()
        except Unavailable as error:
            raise AssertionError(error) from error

    return eventually(look)


def test_parked_records_are_those_of_readers_of_ours(rig: Rig, foreign: Foreign, group: tuple[str, str]):
    reader, topic = unique("lag-reader"), group[1]
    rig.groups.add(reader)
    foreign.commit(reader, TopicPartition(topic, 0, 10))
    rig.do("INSERT INTO readers.registered (reader) VALUES (%s)", reader)
    columns = 'reader, lane, version, topic, partition, "offset", lane_hash, "timestamp", header_names, header_values'
    parked = "SELECT %s, 'd-' || n, 1, %s, 0, n, 0, now(), '{}', '{}', now() - n * interval '1 minute'"
    rig.do(f"INSERT INTO readers.parked ({columns}, parked_at) {parked} FROM generate_series(1, 3) AS n", reader, topic)
    try:
        ours, foreigner = sorted(_look(rig.config, reader, group[0]), key=lambda seen: seen.parked is None)
    finally:
        rig.do("DELETE FROM readers.parked WHERE reader = %s", reader)
    assert ours.parked is not None
    assert (ours.lag.group, ours.parked.records) == (reader, 3)
    assert ours.parked.oldest_seconds == pytest.approx(180, abs=30)
    assert ours.of(Partition(topic, 0)).parked == ours.parked
    assert "; 3 parked, the oldest for 3 min " in sentence(ours)
    assert foreigner.parked is None
    (after,) = _look(rig.config, reader)
    assert after.parked == Parked(0, None)


# --------------------------------------------------------------------------------------------------------- relay


def test_the_relay_is_a_row_like_any_group(rig: Rig):
    def relay() -> Outlook:
        (seen,) = _look(rig.config, RELAY)
        return seen

    rig.save(unique("relayed"))
    caught_up = eventually(lambda: (seen := relay()).lag.lag_records == 0 and seen, 60, "the relay caught up")
    assert (caught_up.lag.age_seconds, caught_up.lag.state) == (0, "read")
    assert caught_up.slot_bytes is not None
    with rig.frozen("connect"):
        for _ in range(3):
            rig.save(unique("relayed"))
        waiting = eventually(lambda: (seen := relay()).lag.lag_records == 3 and seen, 30, "three rows wait")
        assert waiting.lag.age_seconds is not None
        assert 0 < waiting.lag.age_seconds < 60
        (row,) = waiting.lag.partitions
        assert row.log_end - row.committed == 3
        assert waiting.slot_bytes > 0
    eventually(lambda: relay().lag.lag_records == 0, 60, "the relay went on")


def test_the_relay_has_rates(rig: Rig):
    """Of those of its rows that are saved while it is watched."""
    with LagWatch(rig.config, [RELAY]) as watch:
        for _ in range(4):
            rig.save(unique("relayed"))
            (seen,) = watch.measure()
    assert seen.flow is not None
    first, *_, last = (sample.places[Partition(OUTBOX, 0)] for sample in list(seen.samples)[-4:])
    assert last.arrived - first.arrived >= 3
    assert last.backlog == last.lag


def test_the_relay_stands_last_and_a_named_group_alone(stack: Settings, group: tuple[str, str]):
    assert [seen.lag.group for seen in _look(stack)][-1] == RELAY
    assert [seen.lag.group for seen in _look(stack, group[0])] == [group[0]]
    assert [seen.lag.group for seen in _look(stack, group[0], RELAY)] == [group[0], RELAY]


# -------------------------------------------------------------------------------------------------- doing without


def test_a_cluster_without_our_postgres_is_shown_as_well(stack: Settings, group: tuple[str, str]):
    without = stack.model_copy(update={"db_port": free_port_base()})
    with LagWatch(without, [group[0]]) as watch:
        for _ in range(3):
            (seen,) = watch.measure()
    assert (seen.lag.lag_records, seen.parked) == (7, None)
    assert (seen.flow.rate_in_per_second, seen.shape) == (0, Shape.FLAT)
    assert watch.fault is not None
    assert watch.fault.endswith("cannot be used: Connection refused")
    assert RELAY not in [seen.lag.group for seen in _look(without)]


def test_a_summary_is_a_sentence_a_group(stack: Settings, group: tuple[str, str]):
    names = [*("--group", group[0]), *("--group", RELAY)]
    said = subprocess.run([*STREAMS, "lag", "--summary", *names], capture_output=True, text=True, check=True).stdout
    assert [line.split(": ")[0] for line in said.splitlines()] == [group[0], RELAY]


def test_the_relay_alone_is_told_or_why_it_cannot_be(stack: Settings):
    assert [seen.lag.group for seen in _look(stack, RELAY)] == [RELAY]
    for without, why in (
        ({"db_port": free_port_base()}, "cannot be used: Connection refused"),
        ({"db_name": "postgres"}, "the database postgres has no outbox"),
    ):
        with LagWatch(stack.model_copy(update=without), [RELAY]) as watch, pytest.raises(Unavailable, match=why):
            watch.look()


def test_a_database_of_somebody_else_is_as_good_as_none(stack: Settings):
    other = stack.model_copy(update={"db_name": "postgres"})
    with connect(other, autocommit=True) as connection:
        facts = gather(connection)
    assert (facts.parked, facts.samples, facts.relay, facts.fault) == ({}, {}, None, None)


def test_a_postgres_that_does_not_answer_costs_seconds_and_is_said(stack: Settings):
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # it takes connections, and says nothing
        silent = stack.model_copy(update={"db_port": nobody.getsockname()[1]})
        started = time.monotonic()
        with Aside(silent, [], with_relay=True) as aside:
            facts = aside.ask().facts()
    assert (facts.parked, facts.relay) == ({}, None)
    assert facts.fault is not None
    assert time.monotonic() - started < 10


def test_a_command_records_any_group_until_ctrl_c(stack: Settings, group: tuple[str, str]):
    with subprocess.Popen([*STREAMS, "lag", "--record", "--group", group[0]]) as process:
        try:
            eventually(lambda: len(_rows(stack, group[0])) > 1, 60, "it records")
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_the_api_records(stack: Settings, rig: Rig):
    """`streams api` keeps a recorder; so does `streams lag --record`, and one of them writes at a time."""
    reader = unique("recorded")
    rig.groups.add(reader)
    rig.commit(reader, rig.topic(), {0: 0})
    rig.do("INSERT INTO readers.registered (reader) VALUES (%s)", reader)
    args = [*STREAMS, "api", "--port", str(free_port_base())]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: len(_rows(stack, reader)) > 1, 90, "the API records")
        finally:
            process.terminate()
        assert process.wait(30) == 0
