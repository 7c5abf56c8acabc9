"""Analytics on the real stack: SQL's totals whatever happens to workers, group and offsets; how a worker ends."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Event, Thread

import pytest
from confluent_kafka import Producer

from streams.errors import NotFound
from streams.kafka.topics_admin import TopicsAdmin
from streams.outbox.save import Document, Origin, delete, save
from streams.topics import DOCUMENTS_SAVED, changelog
from tests.analytics_rig import START_SECONDS_MAX, agree, group_of, sql_totals, totals, worker
from tests.rig import Rig, unique
from tests.support import eventually, free_port_base

pytestmark = pytest.mark.timeout(480)
LOG = DOCUMENTS_SAVED.name


def change(rig: Rig, owner: str, count: int, documents: int = 30) -> None:
    """Saves and deletions of some documents of an owner, several versions of each."""
    with rig.connect() as connection:
        for _ in range(count):
            name, title, body = f"{owner}-{random.randrange(documents)}", "é" * random.randrange(9), "x" * 99
            with suppress(NotFound):
                if random.random() < 0.2:
                    delete(connection, rig.codec.encode, name, Origin())
                else:
                    save(connection, rig.codec.encode, Document(name, owner, title, body), Origin())


@contextmanager
def changing(rig: Rig, owner: str) -> Iterator[None]:
    """Saves go on during the block."""
    done = Event()

    def work() -> None:
        while not done.is_set():
            change(rig, owner, 5)

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


# ------------------------------------------------------------------------------------------------- the views


def test_totals_owners_windows_and_hot_keys_are_sqls(rig: Rig) -> None:
    owner, hot = unique("owner"), unique("hot")
    change(rig, owner, 60)
    with rig.connect() as connection:
        for _ in range(400):
            save(connection, rig.codec.encode, Document(hot, owner, "", ""), Origin())
    rig.delete(hot)
    with worker(rig, group_of(rig)) as analytics:
        analytics.reads()
        agree(rig, analytics)
        change(rig, owner, 60)
        rig.save(hot, title="é", body="alive again", owner=owner)
        agree(rig, analytics)
        views = analytics.views()
        assert {each["document_id"]: each["versions"] for each in views["hottest"]}[hot] == 402
        versions = rig.rows("SELECT version FROM app.documents ORDER BY version DESC LIMIT 20")
        assert [(each["versions"],) for each in views["hottest"]] == versions
        alive = "count(*) FILTER (WHERE deleted_at IS NULL)"
        sizes = rig.rows(f"SELECT {alive} FROM app.documents GROUP BY owner_id ORDER BY 1 DESC LIMIT 20")
        assert [(each["documents"],) for each in views["owners"]] == sizes
        for each in views["owners"]:
            assert each == {"owner_id": each["owner_id"], **sql_totals(rig, each["owner_id"])}
        minutes = rig.rows(
            "SELECT date_trunc('minute', saved_at) AS start, count(*) FILTER (WHERE deleted_at IS NULL),"
            " sum(octet_length(title) + octet_length(body)) FROM app.documents GROUP BY 1 ORDER BY 1 DESC LIMIT 60"
        )
        shown = [(datetime.fromisoformat(each["start"]), each["documents"], each["bytes"]) for each in views["minutes"]]
        assert shown == minutes
        assert views["unreadable"] == {}
        assert views["holes"] == 0
        metrics = analytics.ask("/metrics").text
        assert f"streams_analytics_saves {sql_totals(rig)['saves']}.0" in metrics
        largest = views["owners"][0]
        assert f'streams_analytics_owner_documents{{owner="{largest["owner_id"]}"}} {largest["documents"]}.0' in metrics
        assert hot in analytics.ask("/").text


def test_what_cannot_be_read_is_counted_and_what_was_aborted_is_not_read(rig: Rig) -> None:
    source = rig.topic(partitions=2)
    group = group_of(rig, partitions=2)
    rig.put(source, "first", partition=0, owner_id="<b>")
    rig.produce(source, {"key": "k", "value": b"nonsense", "partition": 0}, {"key": "k", "value": None, "partition": 0})
    aborted = Producer({**rig.config.kafka_client(), "transactional.id": group})
    aborted.init_transactions()
    aborted.begin_transaction()
    aborted.produce(source, key="never", value=rig.event("never"), partition=0)
    assert aborted.flush(20) == 0
    aborted.abort_transaction()
    rig.put(source, "first", version=3, partition=0, owner_id="<b>", body="four")
    rig.put(source, "first", version=2, partition=0, owner_id="<b>", body="late and old")
    with worker(rig, group, source, 2) as analytics:
        analytics.reads(0, 1)
        wanted = {"documents": 1, "deleted": 0, "saves": 3, "bytes": len("a title") + 4}
        eventually(lambda: totals([analytics]) == wanted, 30, "the last event is read")
        assert analytics.views()["unreadable"] == {"BrokenFrame": 2}
        assert "unreadable and passed over" in analytics.said()
        assert "<td>&lt;b&gt;</td>" in analytics.ask("/").text
        # Its positions are for all to see: behind the last event, where at most the marker of the transaction stands.
        eventually(lambda: rig.lag(group, source) <= 1, 60, "it commits")
        assert set(rig.committed(group, source)) == {0, 1}


# ------------------------------------------------------------------------------------------------- what happens


def test_a_worker_that_is_killed_again_and_again_misses_and_doubles_nothing(rig: Rig) -> None:
    group, owner = group_of(rig), unique("owner")
    with changing(rig, owner):
        for _ in range(3):
            with worker(rig, group) as analytics:
                analytics.reads()
                before = totals([analytics])["saves"]
                eventually(lambda analytics=analytics, before=before: totals([analytics])["saves"] > before + 50, 60)
                analytics.kill()
    with worker(rig, group) as analytics:
        analytics.reads()
        agree(rig, analytics)
        # What it shows it has in its table, and not only since it was read again.
        assert analytics.end() == 0
    with worker(rig, group) as analytics:
        analytics.reads()
        assert totals([analytics]) == sql_totals(rig)


@pytest.mark.parametrize("to", ["latest", "earliest"])
def test_offsets_that_another_tool_resets_change_nothing(rig: Rig, to: str) -> None:
    group, owner = group_of(rig), unique("owner")
    change(rig, owner, 30)
    with worker(rig, group) as analytics:
        analytics.reads()
        agree(rig, analytics)
        analytics.kill()
    before = sum(rig.ends(LOG).values())
    change(rig, owner, 30)
    eventually(lambda: sum(rig.ends(LOG).values()) > before, 20, "events are in the log")
    rig.commit(group, LOG, rig.ends(LOG) if to == "latest" else dict.fromkeys(range(12), 0))
    with worker(rig, group) as analytics:
        analytics.reads()
        agree(rig, analytics)
        eventually(lambda: rig.lag(group) <= 12, 60, "it commits its positions")  # a marker may stand behind each


def test_two_workers_share_the_partitions_and_one_takes_over(rig: Rig) -> None:
    group, owner = group_of(rig), unique("owner")
    with worker(rig, group) as first:
        first.reads()
        with changing(rig, owner), worker(rig, group) as second:
            eventually(lambda: 0 < len(second.views()["partitions"]) < 12, START_SECONDS_MAX, "it shares")
            second.reads(*second.views()["partitions"])
            time.sleep(1)  # saves go to both
            third = worker(rig, group)
            with third as joining:
                eventually(lambda: joining.views()["partitions"] != [], START_SECONDS_MAX, "it shares too")
                joining.kill()
            both = lambda: sorted(first.views()["partitions"] + second.views()["partitions"])  # noqa: E731
            eventually(lambda: both() == list(range(12)), 60, "two have them all again")
            second.kill()
        first.reads()
        agree(rig, first)
        with worker(rig, group) as second:
            eventually(lambda: 0 < len(second.views()["partitions"]) < 12, START_SECONDS_MAX, "it shares")
            agree(rig, first, second)
            assert second.end() == 0
            first.reads()
            agree(rig, first)


def test_a_worker_that_was_frozen_wakes_up_beside_its_successor_and_harms_nothing(rig: Rig) -> None:
    group, owner = group_of(rig), unique("owner")
    with worker(rig, group) as frozen:
        frozen.reads()
        with changing(rig, owner):
            eventually(lambda: owner in str(frozen.views()["owners"]), 60)
            frozen.send(signal.SIGSTOP)
            with worker(rig, group) as successor:
                successor.reads()
                change(rig, owner, 100)
                frozen.send(signal.SIGCONT)
                change(rig, owner, 100)
                eventually(lambda: 0 < len(frozen.views()["partitions"]) < 12, START_SECONDS_MAX, "they share")
        frozen.reads()
        agree(rig, frozen)
        frozen.kill()
    with worker(rig, group) as analytics:
        analytics.reads()
        agree(rig, analytics)


# ------------------------------------------------------------------------------------------------- start and end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_within_seconds_while_it_is_idle(rig: Rig, number: int) -> None:
    with worker(rig, group_of(rig)) as analytics:
        analytics.reads()
        agree(rig, analytics)
        assert analytics.end(number) == 0
        assert "analytics ends" in analytics.said()
        assert "Traceback" not in analytics.said()


def test_it_ends_within_seconds_at_any_moment_of_its_start(rig: Rig) -> None:
    group = group_of(rig)
    for wait_seconds in (0.0, 0.4, 0.8, 1.6, 2.4, 3.2):
        with worker(rig, group) as analytics:
            eventually(lambda analytics=analytics: "shows itself" in analytics.said(), START_SECONDS_MAX)
            time.sleep(wait_seconds)
            assert analytics.end() == 0, wait_seconds


def test_it_ends_within_seconds_while_the_broker_does_not_answer(rig: Rig) -> None:
    with worker(rig, group_of(rig)) as analytics:
        analytics.reads()
        rig.save(unique("any"))
        with rig.frozen("kafka"):
            assert analytics.end() == 0


def test_a_second_signal_stops_at_once(rig: Rig) -> None:
    with worker(rig, group_of(rig)) as analytics:
        analytics.reads()
        analytics.send(signal.SIGSTOP)  # both arrive before it can do anything
        analytics.send(signal.SIGTERM)
        analytics.send(signal.SIGINT)
        analytics.send(signal.SIGCONT)
        assert analytics.process.wait(30) == 130  # one that only drains ends with 0


def test_topics_that_are_not_as_they_must_be_are_told(rig: Rig) -> None:
    with worker(rig, unique("no-changelog")) as analytics:
        assert analytics.process.wait(START_SECONDS_MAX) != 0
        assert "-documents-changelog does not exist: run `streams setup`" in analytics.said()
    group = group_of(rig, partitions=3)
    with worker(rig, group) as analytics:
        assert analytics.process.wait(START_SECONDS_MAX) != 0
        assert f"{LOG} has 12 partitions, and {changelog(group).name} has 3" in analytics.said()


def command(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    run = [sys.executable, "-m", "streams.cli.main", "analytics", *options]
    return subprocess.run(
        run, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_port_in_use_and_a_broker_that_is_not_there_are_one_sentence_each(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command("--port", str(port))
        assert done.returncode == 3
        assert done.stderr.splitlines()[-1] == (
            f"error: the analytics cannot listen on 127.0.0.1:{port}: Address already in use"
        )
    done = command(
        STREAMS_BOOTSTRAP_SERVERS=f"127.0.0.1:{free_port_base()}", STREAMS_ANALYTICS_PORT=str(free_port_base())
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("error: Kafka at 127.0.0.1:")


def test_setup_makes_the_changelog_compacted_and_nothing_else_makes_topics(rig: Rig) -> None:
    topic = changelog("analytics")
    assert TopicsAdmin(rig.config).describe([topic.name])[topic.name].differs(topic) == {}
    before = set(TopicsAdmin(rig.config).partitions())
    with worker(rig, group := group_of(rig)) as analytics:
        analytics.reads()
    assert set(TopicsAdmin(rig.config).partitions()) - before == {changelog(group).name}
