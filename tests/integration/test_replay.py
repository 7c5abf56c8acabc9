"""`streams replay` on groups of a foreign application, checked with plain clients."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from streams.config import Settings
from streams.core.groups import Partition
from streams.errors import ConfigError, ReplayRefused, UnknownGroup
from streams.ops.replay import Replays
from streams.ops.saved_offsets import SavedOffsets
from tests.integration.foreign import PROTOCOLS, Committed, Foreign
from tests.support import eventually

STREAMS = [sys.executable, "-m", "streams.cli.main"]
NOW_MS = int(time.time() * 1000)
MINUTE_MS = 60_000


def _minutes(count: int, first: int = 60) -> list[int]:
    """Times of records, one a minute, the first so many minutes ago."""
    return [NOW_MS - (first - n) * MINUTE_MS for n in range(count)]


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


@pytest.fixture(scope="module")
def foreign(stack: Settings) -> Foreign:
    return Foreign(stack)


@pytest.fixture
def replays(stack: Settings) -> Replays:
    """With a watch that is short, but sees two samples."""
    return Replays(stack, watch_seconds=0.5)


@pytest.fixture
def read_half(foreign: Foreign) -> tuple[str, str]:
    """A group and a topic of three partitions: 20 records read to 10, 20 read to 15, 20 never committed."""
    group, topic = foreign.group(), foreign.topic(3)
    for partition in range(3):
        foreign.produce(topic, partition, _minutes(20))
    foreign.commit(group, TopicPartition(topic, 0, 10, "kept"), TopicPartition(topic, 1, 15))
    return group, topic


def _targets(replays: Replays, group: str, to: str, *topics: str) -> dict[int, int]:
    return {move.partition.number: move.to for move in replays.plan(group, to, topics).moves}


def _offsets(foreign: Foreign, group: str) -> dict[int, int]:
    return {number: commit.offset for (_, number), commit in foreign.committed(group).items()}


# ------------------------------------------------------------------------------------------------------ plan


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", {0: 0, 1: 0, 2: 0}),
        ("latest", {0: 20, 1: 20, 2: 20}),
        ("offset:7", {0: 7, 1: 7, 2: 7}),
        ("shift:-4", {0: 6, 1: 11}),
        ("shift:3", {0: 13, 1: 18}),
        (_iso(_minutes(20)[5]), {0: 5, 1: 5, 2: 5}),
        (_iso(_minutes(20)[5] + 1), {0: 6, 1: 6, 2: 6}),
        ("10000d", {0: 0, 1: 0, 2: 0}),
        ("1m", {0: 20, 1: 20, 2: 20}),
    ],
    ids=["earliest", "latest", "offset", "back", "forth", "same-time", "just-after", "before-all", "after-all"],
)
def test_a_plan_moves_all_partitions_of_the_groups_topics(replays: Replays, read_half, to: str, expected: dict):
    assert _targets(replays, read_half[0], to) == expected


def test_a_plan_changes_nothing(replays: Replays, foreign: Foreign, read_half):
    group, _ = read_half
    before = foreign.committed(group)
    replays.plan(group, "earliest")
    assert foreign.committed(group) == before


def test_a_plan_names_topics_and_partitions(replays: Replays, read_half):
    group, topic = read_half
    assert _targets(replays, group, "earliest", f"{topic}:1,2") == {1: 0, 2: 0}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_time_lands_on_the_first_record_at_or_after_it_inside_a_batch(foreign: Foreign, replays: Replays, codec: str):
    """Against a scan of the log; the times of one batch are in no order."""
    group, topic = foreign.group(), foreign.topic()
    times = [NOW_MS - MINUTE_MS * age for age in (90, 80, 85, 60, 70, 30, 40, 20, 25, 10)]
    foreign.produce(topic, 0, times, **{"compression.type": codec, "linger.ms": 500})
    foreign.commit(group, TopicPartition(topic, 0, 0))
    for since in [*times, *(one + 1 for one in times), *(one - 1 for one in times)]:
        first = next((offset for offset, one in enumerate(times) if one >= since), len(times))
        assert _targets(replays, group, _iso(since)) == {0: first}, since


def test_a_plan_says_spans_times_and_what_retention_took(foreign: Foreign, replays: Replays, read_half):
    group, topic = read_half
    foreign.truncate(topic, 0, 5)
    foreign.truncate(topic, 1, -1)
    moves = {move.partition.number: move for move in replays.plan(group, "earliest").moves}
    assert [(moves[n].to, moves[n].span, moves[n].taken) for n in range(3)] == [(5, 15, 5), (20, 0, 20), (0, 20, 0)]
    oldest = [moves[n].oldest and round(moves[n].oldest.timestamp() * 1000) for n in range(3)]
    assert oldest == [_minutes(20)[5], None, _minutes(20)[0]]
    (move, *_) = replays.plan(group, "shift:-7").moves
    assert (move.to, move.taken) == (5, 2)


def test_latest_is_the_stable_end(foreign: Foreign, replays: Replays):
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _minutes(5))
    foreign.commit(group, TopicPartition(topic, 0, 1))
    with foreign.open_transaction(topic, 0, _minutes(3)):
        assert _targets(replays, group, "latest") == {0: 5}


def test_a_time_in_the_future_is_the_end_and_is_said(replays: Replays, read_half):
    plan = replays.plan(read_half[0], "2100-01-01T00:00Z")
    assert {move.to for move in plan.moves} == {20}
    assert "in the future" in plan.notes[0]


def test_unknown_names_are_refused_with_the_nearest(replays: Replays, read_half):
    group, topic = read_half
    with pytest.raises(UnknownGroup, match=group):
        replays.plan(group[:-1], "earliest")
    with pytest.raises(ReplayRefused, match=f"no topic {topic[:-1]}; .*{topic}"):
        replays.plan(group, "earliest", [topic[:-1]])
    with pytest.raises(ReplayRefused, match="no partition 3; its partitions are 0 to 2"):
        replays.plan(group, "earliest", [f"{topic}:3"])


# ---------------------------------------------------------------------------------------------- apply and undo


def test_apply_moves_and_undo_restores_exactly(foreign: Foreign, replays: Replays, read_half):
    group, _ = read_half
    before = foreign.committed(group)
    replays.apply(replays.plan(group, "offset:7"))
    after = foreign.committed(group)
    assert {number: one.offset for (_, number), one in after.items()} == {0: 7, 1: 7, 2: 7}
    assert all(one.metadata == "" for one in after.values())
    replays.undo(group)
    assert foreign.committed(group) == before  # partition 2 has no commit again


def test_a_reader_goes_on_where_it_was_sent(foreign: Foreign, replays: Replays, read_half):
    group, topic = read_half
    replays.apply(replays.plan(group, "offset:18", [f"{topic}:0"]))
    with foreign.assigned(group, TopicPartition(topic, 0)) as consumer:
        assert eventually(lambda: consumer.poll(0.2), seconds=30).offset() == 18


def test_undo_restores_from_wherever_the_group_went_since(foreign: Foreign, replays: Replays, read_half):
    group, topic = read_half
    before = foreign.committed(group)
    replays.apply(replays.plan(group, "earliest"))
    foreign.commit(group, *(TopicPartition(topic, n, 12, "a reader's own") for n in range(3)))
    replays.undo(group)
    assert foreign.committed(group) == before


def test_undo_goes_back_one_replay_at_a_time_then_refuses(foreign: Foreign, replays: Replays, read_half):
    group, _ = read_half
    before = foreign.committed(group)
    replays.apply(replays.plan(group, "offset:3"))
    replays.apply(replays.plan(group, "offset:4"))
    replays.undo(group)
    assert set(_offsets(foreign, group).values()) == {3}
    replays.undo(group)
    assert foreign.committed(group) == before
    with pytest.raises(ReplayRefused, match="nothing to undo"):
        replays.undo(group)


def test_undo_leaves_alone_what_the_replay_did_not_touch(foreign: Foreign, replays: Replays, read_half):
    group, topic = read_half
    before = foreign.committed(group)
    replays.apply(replays.plan(group, "earliest", [f"{topic}:0"]))
    foreign.commit(group, TopicPartition(topic, 1, 19))
    replays.undo(group)
    assert foreign.committed(group) == {(topic, 0): before[topic, 0], (topic, 1): Committed(19, "")}


def test_undo_restores_a_commit_that_retention_has_passed(foreign: Foreign, replays: Replays, read_half):
    group, topic = read_half
    foreign.truncate(topic, 0, 12)
    before = foreign.committed(group)
    replays.apply(replays.plan(group, "earliest", [f"{topic}:0"]))
    replays.undo(group)
    assert foreign.committed(group) == before


METADATA = ["", "plain", "é\u202e😀", "trailing\x00", "m" * 4096]


@pytest.mark.parametrize("metadata", METADATA, ids=["empty", "plain", "unicode", "nul", "longest"])
def test_metadata_of_other_clients_comes_back_byte_for_byte(foreign: Foreign, replays: Replays, metadata: str):
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _minutes(5))
    foreign.commit_exactly(group, topic, 3, metadata)
    replays.apply(replays.plan(group, "earliest"))
    assert foreign.committed(group) == {(topic, 0): Committed(0, "")}
    replays.undo(group)
    assert foreign.committed(group) == {(topic, 0): Committed(3, metadata)}


def test_leader_epochs_are_restored(foreign: Foreign, replays: Replays):
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _minutes(5))
    foreign.commit(group, TopicPartition(topic, 0, 3, "x", 0))
    replays.apply(replays.plan(group, "earliest"))
    assert foreign.leader_epochs(group) == {(topic, 0): None}
    replays.undo(group)
    assert foreign.leader_epochs(group) == {(topic, 0): 0}


# ------------------------------------------------------------------------------------------------- refusals


def _refused(foreign: Foreign, group: str, act: Callable[[], object], why: str) -> None:
    before = foreign.committed(group)
    with pytest.raises(ReplayRefused, match=why):
        act()
    assert foreign.committed(group) == before


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_live_group_is_refused(foreign: Foreign, replays: Replays, read_half, protocol: str):
    group, topic = read_half
    plan = replays.plan(group, "earliest")
    with foreign.member(group, topic, **{"group.protocol": protocol}):
        eventually(lambda: replays.plan(group, "earliest").notes, seconds=30)
        _refused(foreign, group, lambda: replays.apply(plan), "has members")
        _refused(foreign, group, lambda: replays.undo(group), "nothing to undo")


def test_the_broker_refuses_when_a_member_joins_after_the_watch(foreign: Foreign, stack: Settings, read_half):
    """And nothing is left to undo, since nothing was changed."""
    group, topic = read_half
    replays = Replays(stack, watch_seconds=0)
    plan = replays.plan(group, "earliest")
    with foreign.member(group, topic):
        replays._without_members = replays._offsets.read
        _refused(foreign, group, lambda: replays.apply(plan), "has members")
    with pytest.raises(ReplayRefused, match="nothing to undo"):
        replays.undo_plan(group)


@contextmanager
def _committing(foreign: Foreign, group: str, topic: str) -> Iterator[None]:
    """A reader that assigns itself a partition, and so is listed nowhere, commits on and on."""
    stop = threading.Event()

    def commit() -> None:
        with foreign.assigned(group, TopicPartition(topic, 0)) as consumer:
            for offset in itertools.count():
                consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
                if stop.wait(0.05):
                    return

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_member_that_only_assigns_is_seen_by_its_commits(foreign: Foreign, replays: Replays, read_half):
    group, topic = read_half
    plan = replace(replays.plan(group, "latest"), expected=None)
    with _committing(foreign, group, topic), pytest.raises(ReplayRefused, match="someone commits for"):
        replays.apply(plan)
    assert set(foreign.committed(group)) == {(topic, 0), (topic, 1)}
    assert _offsets(foreign, group)[1] == 15


def test_a_group_that_moved_since_the_plan_is_refused(foreign: Foreign, replays: Replays, read_half):
    group, topic = read_half
    plan = replays.plan(group, "earliest")
    foreign.commit(group, TopicPartition(topic, 0, 11))
    _refused(foreign, group, lambda: replays.apply(plan), f"has moved since .*{topic}:0 was at 10 and is at 11")


@pytest.mark.parametrize(("to", "why"), [("offset:21", "ends at 20"), ("offset:3", "starts at 5"), ("shift:11", "21")])
def test_offsets_that_the_log_does_not_have_are_refused_by_name(
    foreign: Foreign, replays: Replays, read_half, to: str, why: str
):
    group, topic = read_half
    foreign.truncate(topic, 0, 5)
    plan = replays.plan(group, to, [f"{topic}:0"])
    _refused(foreign, group, lambda: replays.apply(plan), f"{topic}:0 has no offset .*{why}")


def test_undo_refuses_an_offset_past_the_end(foreign: Foreign, replays: Replays):
    """The topic was made anew since: what was saved would make a reader jump."""
    group, topic = foreign.group(), foreign.topic()
    foreign.produce(topic, 0, _minutes(5))
    foreign.commit(group, TopicPartition(topic, 0, 900))
    replays.apply(replays.plan(group, "earliest"))
    _refused(foreign, group, lambda: replays.undo(group), "has no offset 900: its log ends at 5")


def test_a_pending_transaction_on_the_offsets_is_refused(foreign: Foreign, replays: Replays, read_half):
    """A transactional reader that died commits its offsets when its transaction ends, after our change."""
    group, topic = read_half
    plan = replays.plan(group, "earliest")
    with foreign.member(group, topic) as consumer, foreign.open_transaction(topic, 0, []) as producer:
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 12)], metadata, 20)
        consumer.close()
        eventually(lambda: not replays._admin.describe([group])[group].members, seconds=30)
        _refused(foreign, group, lambda: replays.apply(plan), "a transaction is about to change")


def test_two_replays_of_a_group_do_not_interleave(foreign: Foreign, stack: Settings, replays: Replays, read_half):
    group, _ = read_half
    plan = replays.plan(group, "earliest")
    with SavedOffsets(stack, plan.cluster, group).locked():
        _refused(foreign, group, lambda: replays.apply(plan), "another replay")


# ---------------------------------------------------------------------------------------- files, command line


def _run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STREAMS, "replay", *args], capture_output=True, text=True, check=False, input="")


def test_plan_file_apply_and_undo_by_command(foreign: Foreign, read_half, tmp_path: Path):
    group, topic = read_half
    before = foreign.committed(group)
    path = str(tmp_path / "plan.csv")
    planned = _run("plan", group, "--to", "offset:7", "--out", path)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert planned.stdout.split()[:6] == ["TOPIC", "PARTITION", "NOW", "TO", "RECORDS", "OLDEST"]
    assert Path(path).read_text() == "".join(f"{topic},{n},7\n" for n in range(3))
    started = time.monotonic()
    applied = _run("apply", group, "--plan", path, "--yes")
    assert applied.returncode == 0, applied.stderr
    assert time.monotonic() - started >= 5  # the watch
    assert f"streams replay undo {group}" in applied.stdout
    assert set(_offsets(foreign, group).values()) == {7}
    again = _run("apply", group, "--plan", path, "--yes")
    assert again.returncode == 7
    assert f"has moved since the plan was made: {topic}:0 was at 10 and is at 7" in again.stderr
    undone = _run("undo", group, "--yes")
    assert undone.returncode == 0, undone.stderr
    assert foreign.committed(group) == before


def test_nothing_is_applied_without_a_yes(foreign: Foreign, read_half):
    group, _ = read_half
    before = foreign.committed(group)
    asked = _run("apply", group, "--to", "earliest")
    assert asked.returncode != 0
    assert foreign.committed(group) == before


def test_a_live_group_is_refused_by_the_command_with_exit_code_7(foreign: Foreign, read_half):
    group, topic = read_half
    before = foreign.committed(group)
    with foreign.member(group, topic):
        refused = _run("apply", group, "--to", "earliest", "--yes")
    assert refused.returncode == 7
    assert refused.stderr.startswith(f"error: {group} has members (")
    assert refused.stderr.count("\n") == 1
    assert foreign.committed(group) == before


def test_a_bad_argument_is_one_sentence_and_exit_code_2():
    answer = _run("apply", "any", "--yes", "--to", "2026-11-27")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("error: 2026-11-27 has no time zone")
    assert answer.stderr.count("\n") == 1


def test_a_plan_written_by_hand_or_by_another_tool_is_applied(foreign: Foreign, replays: Replays, read_half, tmp_path):
    group, topic = read_half
    path = tmp_path / "plan.csv"
    path.write_text(f"{group},{topic},1,4\nother,{topic},0,1\n")
    plan = replays.read_plan(group, path)
    assert "does not say what the offsets were" in plan.notes[0]
    replays.apply(plan)
    assert _offsets(foreign, group) == {0: 10, 1: 4}


def test_a_plan_for_another_group_is_refused(foreign: Foreign, replays: Replays, read_half, tmp_path):
    group, topic = read_half
    other = foreign.group()
    foreign.commit(other, TopicPartition(topic, 0, 1))
    path = tmp_path / "plan.csv"
    replays.write_plan(replays.plan(other, "latest"), path)
    _refused(foreign, group, lambda: replays.read_plan(group, path), f"was made for group {other}")


@pytest.mark.parametrize(
    ("rows", "error", "why"),
    [
        ("{topic},9,0\n", ReplayRefused, "has no partition 9"),
        ("nowhere-at-all,0,0\n", ReplayRefused, "no topic nowhere-at-all"),
        ("{topic},0\n", ConfigError, "line 1"),
        ("", ConfigError, "has no row"),
    ],
)
def test_a_plan_file_with_unknown_or_broken_rows_is_refused(
    foreign: Foreign, replays: Replays, read_half, tmp_path: Path, rows: str, error: type, why: str
):
    group, topic = read_half
    path = tmp_path / "plan.csv"
    path.write_text(rows.format(topic=topic))
    with pytest.raises(error, match=why):
        replays.read_plan(group, path)


def test_the_saved_offsets_are_readable(stack: Settings, foreign: Foreign, replays: Replays, read_half):
    group, topic = read_half
    replays.apply(replays.plan(group, "earliest", [f"{topic}:0,2"]))
    cluster = replays._admin.cluster().id
    saved = json.loads(SavedOffsets(stack, cluster, group).newest().read_text())
    assert saved["group"] == group
    assert [(one["partition"], one["offset"]) for one in saved["commits"]] == [(0, 10), (2, None)]
    assert Partition(topic, 0) == (topic, 0)
