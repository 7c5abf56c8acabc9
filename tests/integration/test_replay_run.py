"""`streams replay run`: a part of the log is read again beside the live reader, into its tables or a shadow of them."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams.contract import Context, DocumentSaved, Reject, Upsert, reader
from streams.errors import NotFound, ReplayRefused
from streams.ops.letters import Filters, redrive
from streams.ops.replay_diff import diff
from streams.ops.replay_runs import Asked, ReplayRuns, Run
from streams.ops.replay_worker import Seen
from tests.integration.replaying import Versions, begin, go, going, listed
from tests.readers_for_tests import kinds
from tests.rig import Rig, catches_up, unique
from tests.support import eventually

NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def test_only_the_window_is_read_whatever_the_order_of_times_and_the_replay_ends_by_itself(rig: Rig) -> None:
    topic, versions = rig.topic(partitions=3), Versions()
    ages = [5, 1, 4, 9, 2, 3, 0, 6, 7, 8]  # in hours, in no order
    for number in (0, 1):  # the third partition is empty
        for age in ages:
            name = f"{number}-{age}"
            stamp = NOW_MS - age * HOUR_MS
            rig.produce(topic, {"key": name, "value": rig.event(name), "partition": number, "timestamp": stamp})
    run = begin(rig, versions.reader, topic, iso(NOW_MS - 6 * HOUR_MS), iso(NOW_MS - 2 * HOUR_MS))
    seen: list[Seen] = []
    result = go(rig, versions.reader, run, seen.append)
    assert versions.calls == {(f"{number}-{age}", 1): 1 for number in (0, 1) for age in (6, 5, 4, 3)}
    assert (result.run.state, result.run.records_read, result.dead) == ("done", 8, 0)
    assert result.run.offsets_read == result.run.offsets > 8, "times are no bounds"
    assert seen[-1].records_read == 8
    assert rig.committed(run.group, topic) == {}, "a group that is done does not stay behind"
    with pytest.raises(ReplayRefused, match="is done"):
        go(rig, versions.reader, run)


def test_a_replay_into_the_live_tables_mends_the_newest_and_counts_nothing_twice(rig: Rig) -> None:
    topic, versions = rig.topic(partitions=2), Versions()
    for version in (1, 2, 3):
        for name in ("a", "b", "c"):
            rig.put(topic, name, version)
    with rig.worker(versions.reader, topic):
        catches_up(rig, versions.group, {"a": 3, "b": 3, "c": 3})
        before, versions.code = rig.output(versions.group), "new"
        versions.calls.clear()
        run = begin(rig, versions.reader, topic)
        rig.put(topic, "d")
        result = go(rig, versions.reader, run)
        catches_up(rig, versions.group, {"d": 1})
    assert before == {"all": {"versions": 9}} | {name: {"version": 3, "code": "old"} for name in "abc"}
    assert rig.output(versions.group) == {"all": {"versions": 10}, "d": {"version": 1, "code": "new"}} | {
        name: {"version": 3, "code": "new"} for name in "abc"
    }
    assert {key: count for key, count in versions.calls.items() if key[0] != "d"} == {(name, 3): 1 for name in "abc"}
    assert result.run.records_read == 9, "what came after the beginning is not its own"
    assert rig.progress(run.group) == {}


def test_a_replay_of_old_events_does_not_touch_what_the_reader_has_newer(rig: Rig) -> None:
    """The replay reads ahead of the reader, which then goes over the same documents."""
    topic, versions = rig.topic(), Versions()
    for version in (1, 2, 3):
        rig.put(topic, "a", version)
    versions.code = "replayed"
    go(rig, versions.reader, begin(rig, versions.reader, topic, "offset:1", "offset:2"))
    assert rig.output(versions.group)["a"] == {"version": 2, "code": "replayed"}
    versions.code = "live"
    with rig.worker(versions.reader, topic):
        catches_up(rig, versions.group, {"a": 3})
    go(rig, versions.reader, begin(rig, versions.reader, topic, "offset:0", "offset:2"))
    assert rig.output(versions.group) == {"a": {"version": 3, "code": "live"}, "all": {"versions": 2}}


def test_where_both_want_a_document_the_replay_gives_way(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    topic, versions = rig.topic(), Versions()
    rig.put(topic, "a")
    with rig.worker(versions.reader, topic):
        catches_up(rig, versions.group, {"a": 1})
    run, versions.code = begin(rig, versions.reader, topic), "new"
    with going(rig, versions.reader, run), rig.connect() as session:
        with session.transaction():
            session.execute("SELECT FROM readers.progress WHERE reader = %s FOR UPDATE", [versions.group])
            eventually(lambda: "due to lock timeout" in caplog.text)
            assert rig.output(versions.group)["a"] == {"version": 1, "code": "old"}
        eventually(lambda: listed(rig, run).state == "done")
    assert rig.output(versions.group)["a"] == {"version": 1, "code": "new"}


def test_handlers_in_processes_are_found_by_their_readers_name(rig: Rig) -> None:
    topic = rig.topic()
    rig.put(topic, "a", body="b")
    run = begin(rig, kinds.echoing, topic, target="shadow")
    assert go(rig, kinds.echoing, run).dead == 0
    assert shadowed(rig, run) == {"a": {"body": "bbbb"}}
    assert rig.progress(kinds.echoing.group).get("a") is None


def test_handlers_are_told_and_what_dies_stays_in_its_table(rig: Rig) -> None:
    topic, told = rig.topic(), list[tuple[str, bool, str]]()

    @reader(group=unique("told"))
    def tell(doc: DocumentSaved, ctx: Context) -> Upsert:
        told.append((doc.document_id, ctx.is_replay, ctx.idempotency_key))
        if doc.document_id == "bad":
            raise Reject("no")
        return Upsert(doc.document_id, {})

    for name in ("good", "bad"):
        rig.put(topic, name)
    run = begin(rig, tell, topic)
    assert go(rig, tell, run).dead == 1
    assert told == [(name, True, f"{tell.group}:{name}:1") for name in ("good", "bad")]
    assert rig.dead_letters(run.group, "document_id, state") == [("bad", "open")]
    assert rig.rows("SELECT count(*) FROM app.outbox WHERE topic LIKE %s", f"%{tell.group}%") == [(0,)]
    with rig.connect() as connection:
        assert redrive(connection, Filters(reader=run.group), None, None, lambda _: None) == 0
    words = [sys.executable, "-m", "streams.cli.main", "dlq", "redrive", "--reader", run.group, "--yes"]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "1 of 1 stay: they are of replays" in said.stdout
    with rig.worker(tell, topic):
        eventually(lambda: rig.dead_letters(tell.group, "state") == [("open",)])
    both = rig.rows(
        "SELECT array_agg(dead_letter_id) FROM readers.dead_letters WHERE reader = ANY(%s)", [run.group, tell.group]
    )
    with rig.connect() as connection:  # the older one, which stays, is not the one that the limit allows
        assert redrive(connection, Filters(ids=both[0][0]), 1, None, lambda _: None) == 1
    assert rig.dead_letters(tell.group, "state") == [("redriven",)]
    told.clear()
    go(rig, tell, begin(rig, tell, topic, external=True))
    assert [is_replay for _, is_replay, _ in told] == [False, False]


def test_a_rate_is_kept_and_one_that_is_stopped_goes_on(rig: Rig) -> None:
    topic, versions = rig.topic(), Versions()
    rig.produce(topic, *({"key": f"k{n}", "value": rig.event(f"k{n}")} for n in range(300)))
    run = begin(rig, versions.reader, topic, rate_per_second=100)
    with going(rig, versions.reader, run) as stop:
        eventually(lambda: len(versions.calls) > 20)
        began_at, before = time.monotonic(), len(versions.calls)
        eventually(lambda: len(versions.calls) >= before + 100)
        seconds = time.monotonic() - began_at
        with pytest.raises(ReplayRefused, match="another process"):
            go(rig, versions.reader, run)
        stop()
    assert seconds > 0.9
    done = len(versions.calls)
    assert (listed(rig, run).state, done < 300) == ("open", True)
    result = go(rig, versions.reader, ReplayRuns(rig.config).set_rate(run, 10_000))
    assert result.run.state == "done"
    assert versions.calls == {(f"k{n}", 1): 1 for n in range(300)}
    assert rig.output(versions.group)["all"] == {"versions": 300}


def test_a_replay_that_is_cancelled_ends_and_leaves_only_what_is_live(rig: Rig) -> None:
    topic, versions = rig.topic(), Versions()
    rig.produce(topic, *({"key": f"k{n}", "value": rig.event(f"k{n}")} for n in range(300)))
    run = begin(rig, versions.reader, topic, rate_per_second=50)
    with going(rig, versions.reader, run):
        eventually(lambda: len(versions.calls) > 20)
        assert listed(rig, run).shown_state == "running"
        ReplayRuns(rig.config).cancel(run)
    assert listed(rig, run).state == "cancelled"
    assert (rig.progress(run.group), rig.committed(run.group, topic)) == ({}, {})
    assert 20 < len(rig.done(versions.group)) < 300
    with pytest.raises(NotFound, match="no replay 0"):
        ReplayRuns(rig.config).get(0)


def test_a_dry_run_counts_records_not_offsets(rig: Rig) -> None:
    versions, since = Versions(), datetime.now(UTC)
    for n in range(5):  # the relay's transactions leave markers between them
        rig.save(f"{versions.group}-{n}")
    eventually(lambda: ReplayRuns(rig.config).plan(versions.reader, Asked(since.isoformat())).records_about == 5)
    planned = ReplayRuns(rig.config).plan(versions.reader, Asked(since.isoformat(), rate_per_second=2))
    assert planned.window.offsets > 5
    assert (planned.seconds, planned.at_most) == (2.5, False)
    assert rig.rows("SELECT count(*) FROM ops.replays WHERE reader = %s", versions.group) == [(0,)]
    early = iso(int((since - timedelta(days=1)).timestamp() * 1000))
    assert ReplayRuns(rig.config).plan(versions.reader, Asked(early, since.isoformat())).records_about >= 0


def shadowed(rig: Rig, run: Run) -> dict[str, Any]:
    """The rows of the shadow's copy of the shared table: key → value."""
    return dict(rig.rows(f"SELECT key, value FROM replay_{run.run}.output"))


def compared(rig: Rig, run: Run) -> dict[str, int]:
    (table,) = diff(rig.config, listed(rig, run), 10)
    assert table.table == "output"
    return dict(table.rows)


def test_a_shadow_of_everything_differs_where_the_code_does(rig: Rig) -> None:
    topic, versions = rig.topic(partitions=2), Versions()
    for version in (1, 2):
        for name in ("same", "changed", "gone", "later"):
            rig.put(topic, name, version)
    with rig.worker(versions.reader, topic):
        catches_up(rig, versions.group, dict.fromkeys(("same", "changed", "gone", "later"), 2))
        rig.do("UPDATE readers.output SET value = value || '{\"code\": \"older\"}' WHERE key = 'changed'")
        rig.do("DELETE FROM readers.output WHERE reader = %s AND key = 'gone'", versions.group)
        rig.do(
            "INSERT INTO readers.output VALUES (%s, 'left over', 'same', 2, '{}'), (%s, 'odd', NULL, NULL, '{}')",
            versions.group,
            versions.group,
        )
        before = rig.output(versions.group)
        run = begin(rig, versions.reader, topic, target="shadow")
        rig.put(topic, "later", 3)
        rig.put(topic, "new")
        catches_up(rig, versions.group, {"later": 3, "new": 1})
        live = rig.output(versions.group)
        go(rig, versions.reader, run)
    assert rig.output(versions.group) == live, "a shadow touches nothing that is live"
    assert shadowed(rig, run) == {"all": {"versions": 8}} | {
        name: {"version": 2, "code": "old"} for name in ("same", "changed", "gone", "later")
    }
    # Changed: the document, and the counter, which has seen two more.
    assert compared(rig, run) == {"same": 1, "changed": 2, "only_shadow": 1, "only_live": 2, "newer": 2}
    assert before.keys() | {"new"} == live.keys()
    (table,) = diff(rig.config, run, 10)
    changed = {one.live["key"]: one.columns for one in table.examples if one.kind == "changed" and one.live}
    assert changed == {"changed": ["value"], "all": ["value"]}
    assert {one.live["key"] for one in table.examples if one.kind == "newer" and one.live} == {"later", "new"}


def test_a_shadow_of_a_part_is_compared_in_that_part(rig: Rig) -> None:
    topic, group = rig.topic(), unique("plain")

    @reader(group=group)
    def plain(doc: DocumentSaved) -> Upsert:
        return Upsert(doc.document_id, {"version": doc.version})

    for name, version in (("a", 1), ("b", 1), ("a", 2), ("c", 1)):
        rig.put(topic, name, version)
    with rig.worker(plain, topic):
        catches_up(rig, group, {"a": 2, "b": 1, "c": 1})
    run = begin(rig, plain, topic, "offset:0", "offset:2", target="shadow")
    go(rig, plain, run)
    assert compared(rig, run) == {"same": 1, "newer": 1, "outside": 1}
    with pytest.raises(ReplayRefused, match="no shadow"):
        diff(rig.config, begin(rig, plain, topic), 1)
    ReplayRuns(rig.config).cancel(run)
    with pytest.raises(ReplayRefused, match="dropped"):
        diff(rig.config, listed(rig, run), 1)
    assert rig.rows("SELECT to_regnamespace(%s) IS NULL", f"replay_{run.run}") == [(True,)]


def test_a_shadow_of_a_readers_own_table_has_its_indexes_and_generated_columns(rig: Rig) -> None:
    from streams.readers.indexer import index

    group = unique("indexed")
    found, topic = replace(index, group=group), rig.topic()
    rig.groups.add(group)
    rig.put(topic, unique("words"), title="a title", body="some words to be found")
    run = begin(rig, found, topic, target="shadow")
    assert go(rig, found, run).dead == 0
    query = f"SELECT count(*) FROM replay_{run.run}.search_index WHERE words @@ to_tsquery('english', 'found')"
    assert rig.rows(query) == [(1,)]
    (table,) = diff(rig.config, run, 1)
    assert (table.table, table.rows["only_shadow"]) == ("search_index", 1)
    methods = "SELECT amname FROM pg_index JOIN pg_class ON oid = indexrelid JOIN pg_am AS a ON a.oid = relam"
    made = rig.rows(f"{methods} WHERE indrelid = 'replay_{run.run}.search_index'::regclass ORDER BY 1")
    assert made == [("btree",), ("gin",), ("hnsw",)]


def replay(rig: Rig, prefix: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """`streams replay` as a process that finds the tests' readers."""
    command, env = rig.invocation(prefix, "recorder", workers=1)
    return [*command[:3], "replay", *words], env


@pytest.mark.parametrize("into", ["live", "shadow"])
def test_a_replay_that_is_killed_goes_on_where_it_was(rig: Rig, into: str) -> None:
    """By the command line. Each row says which process made it."""
    prefix, since = f"{unique('killed')}-", datetime.now(UTC).isoformat()
    group, names = f"{prefix}recorder", [f"{unique('doc')}" for _ in range(200)]
    for name in names:
        rig.save(name)
    eventually(lambda: ReplayRuns(rig.config).plan(Versions().reader, Asked(since)).records_about >= 200)
    command, env = replay(rig, prefix, "run", group, "--from", since, "--into", into, "--rate", "100")
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    number = eventually(lambda: rig.rows("SELECT run FROM ops.replays WHERE reader = %s", group))[0][0]
    eventually(lambda: len(rig.done(f"{group}@{number}")) >= 50, 60)
    process.kill()
    process.communicate()
    before = rig.done(f"{group}@{number}")
    assert 50 <= len(before) < 200
    rig.do("UPDATE ops.replays SET records_read = 0 WHERE run = %s", number)  # as if it had died before it noted any
    command, env = replay(rig, prefix, "run", "--resume", str(number), "--rate", "10000")
    again = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert f"Replay {number} is done" in again.stdout
    place = "readers" if into == "live" else f"replay_{number}"
    rows = rig.rows(f"SELECT key, value ->> 'pid' FROM {place}.output WHERE reader = %s", group)
    assert set(names) <= {key for key, _ in rows}
    assert sum(int(pid) == process.pid for _, pid in rows) >= len(before), "what was done was done again"
    assert bool(rig.output(group)) == (into == "live")
    listing = subprocess.run(replay(rig, prefix, "runs")[0], env=env, capture_output=True, text=True, check=True)
    assert any(line.split()[:3] == [str(number), group, into] for line in listing.stdout.splitlines())
    run = ReplayRuns(rig.config).get(number)
    assert run.records_read == pytest.approx(run.records_about, rel=0.05), "what the killed one had not noted counts"
    ReplayRuns(rig.config).cancel(run)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "indexer"], "where from with --from"),
        (["run", "indexer", "--from", "soon"], "--from is earliest, latest"),
        (["run", "indexer", "--from", "1d", "--into", "nowhere"], "--into is live or shadow"),
        (["run", "nobody", "--from", "1d"], "nobody"),
        (["run", "--resume", "999999"], "there is no replay 999999"),
        (["cancel", "999999"], "there is no replay 999999"),
    ],
)
def test_bad_input_gets_one_clear_sentence(rig: Rig, words: list[str], says: str) -> None:
    command, env = replay(rig, "", *words)
    failed = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert says in failed.stderr
    assert len(failed.stderr.splitlines()) == 1
