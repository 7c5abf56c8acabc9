"""Plans as pure functions, and what is kept on disk: each row says why it is so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streams.cli import replay as command
from streams.config import Settings
from streams.core import replay as core
from streams.core.groups import Cluster, Commit, Log, Partition
from streams.core.replay import Move, Plan, Target
from streams.errors import ConfigError, ReplayRefused
from streams.ops.replay import undo_command
from streams.ops.saved_offsets import SavedOffsets, Snapshot

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
DAY_MS = 86_400_000
P, Q = Partition("t", 0), Partition("t", 1)
LOG = Log(10, 20, 22)
CLUSTER = Cluster("c", {"t": 2, "orders": 12})


@pytest.mark.parametrize(
    ("text", "kind", "value", "why"),
    [
        ("earliest", "earliest", 0, "the log's start"),
        ("latest", "latest", 0, "the stable end"),
        ("2d", "time", NOW_MS - 2 * DAY_MS, "a length of time is counted back from now"),
        ("90m", "time", NOW_MS - 5_400_000, "m is minutes"),
        ("1h30m", "time", NOW_MS - 5_400_000, "units add up"),
        ("1w", "time", NOW_MS - 7 * DAY_MS, "w is weeks"),
        ("2026-11-27T00:00Z", "time", 1_795_737_600_000, "a time in UTC"),
        ("2026-11-27T01:00+01:00", "time", 1_795_737_600_000, "the same time elsewhere"),
        ("2026-11-27T00:00:00.001Z", "time", 1_795_737_600_001, "milliseconds count"),
        ("999999w", "earliest", 0, "before 1970: the broker would read a negative time as a name"),
        ("1970-01-01T00:00Z", "earliest", 0, "all records are later"),
        ("offset:17", "offset", 17, "an offset"),
        ("shift:-100", "shift", -100, "back"),
        ("shift:+5", "shift", 5, "forth"),
        ("shift:5", "shift", 5, "forth without a sign"),
    ],
)
def test_to_is_understood(text, kind, value, why):
    target = core.parse_target(text, NOW)
    assert (target.kind, target.value, target.note) == (kind, value, ""), why


def test_a_time_in_the_future_is_the_end_and_is_said():
    target = core.parse_target("2030-01-01T00:00Z", NOW)
    assert target.kind == "latest"
    assert "in the future" in target.note


@pytest.mark.parametrize(
    ("text", "said", "why"),
    [
        ("2026-11-27T00:00", "no time zone", "whose midnight?"),
        ("2026-11-27", "no time zone", "whose day?"),
        ("yesterday", "not yesterday", "no language is guessed"),
        ("", "earliest, latest", "nothing"),
        ("-2d", "not -2d", "a length has no sign"),
        ("2", "not 2", "2 of what?"),
        ("offset:-1", "not offset:-1", "no offset is negative"),
        ("shift:", "not shift:", "by how much?"),
        ("2026-13-01T00:00Z", "not 2026-13-01", "no such month"),
    ],
)
def test_to_is_refused_in_one_sentence(text, said, why):
    with pytest.raises(ConfigError) as error:
        core.parse_target(text, NOW)
    assert said in str(error.value), why


def test_only_a_group_with_commits_is_offered_to_shift_them():
    with pytest.raises(ConfigError, match="or shift:-N; not soon"):
        core.parse_target("soon", NOW)
    with pytest.raises(ConfigError, match=r"--from is earliest.* offset:N; not soon"):
        core.parse_target("soon", NOW, "--from", has_commits=False)


RESOLVED = [
    # target, committed, first record since the time, to, span, taken, why
    (Target("earliest"), 15, None, 10, 10, 10, "the start; retention took 0..9"),
    (
        Target("latest"),
        15,
        None,
        20,
        0,
        0,
        "the stable end, not the high watermark: an open transaction is still to read",
    ),
    (Target("time", 5), 15, 13, 13, 7, 0, "the first record at or after the time"),
    (Target("time", 5), 15, 10, 10, 10, 10, "it is the log's first: retention may have taken more of them"),
    (Target("time", 5), 15, None, 20, 0, 0, "no record is as late: the end"),
    (Target("shift", -3), 15, None, 12, 8, 0, "three back"),
    (Target("shift", -100), 15, None, 10, 10, 10, "as far back as the log goes; the rest is counted as taken"),
    (Target("shift", -7), 15, None, 10, 10, 2, "asked for 8: 8 and 9 are taken"),
    (Target("shift", 3), 15, None, 18, 2, 0, "three forth"),
    (Target("shift", 90), 15, None, 105, 0, 0, "past the end stays as asked: apply names and refuses it"),
    (Target("offset", 17), 15, None, 17, 3, 0, "an offset"),
    (Target("offset", 4), 15, None, 4, 10, 6, "below the start stays as asked: apply names and refuses it"),
    (Target("offset", 17), None, None, 17, 3, 0, "a group without a commit there"),
]


@pytest.mark.parametrize(("target", "committed", "since", "to", "span", "taken", "why"), RESOLVED)
def test_a_target_is_resolved_against_the_log(target, committed, since, to, span, taken, why):
    commits = {} if committed is None else {P: Commit(committed)}
    (move,) = core.resolve(target, [P], commits, {P: LOG}, {P: since})
    assert (move.to, move.span, move.taken) == (to, span, taken), why
    assert move.before == commits.get(P)


def test_a_shift_leaves_alone_what_has_no_commit():
    moves = core.resolve(Target("shift", -1), [P, Q], {Q: Commit(15)}, {P: LOG, Q: LOG}, {})
    assert [(move.partition, move.to) for move in moves] == [(Q, 14)]


def test_a_move_forward_says_what_is_skipped():
    (move,) = core.resolve(Target("latest"), [P], {P: Commit(15)}, {P: LOG}, {})
    assert move.skipped == 5
    (back,) = core.resolve(Target("earliest"), [P], {P: Commit(15)}, {P: LOG}, {})
    assert back.skipped == 0


@pytest.mark.parametrize(
    ("to", "said", "why"),
    [
        (10, None, "the start"),
        (20, None, "the stable end"),
        (22, None, "the high watermark: a read_uncommitted reader stood there"),
        (23, "t:0 has no offset 23: its log ends at 22", "past the end a live reader jumps"),
        (9, "t:0 has no offset 9 any more: its log starts at 10", "below the start it jumps too"),
    ],
)
def test_offsets_outside_the_log_are_named(to, said, why):
    assert core.out_of_bounds({P: to}, {P: LOG}) == ([said] if said else []), why


@pytest.mark.parametrize(
    ("expected", "current", "said"),
    [
        ({P: Commit(5)}, {P: Commit(5)}, []),
        ({P: Commit(5)}, {P: Commit(5, "other metadata")}, []),
        ({P: Commit(5)}, {P: Commit(9)}, ["t:0 was at 5 and is at 9"]),
        ({P: Commit(5)}, {}, ["t:0 was at 5 and is at no commit"]),
        ({P: None}, {P: Commit(9)}, ["t:0 was at no commit and is at 9"]),
        ({P: None}, {}, []),
        ({P: Commit(5)}, {P: Commit(5), Q: Commit(1)}, []),
    ],
)
def test_changes_since_the_plan_are_named(expected, current, said):
    assert core.changes(expected, current) == said


def test_a_sentence_names_five_faults_and_counts_the_rest():
    assert core.sentence(["a"]) == "a"
    assert core.sentence(list("abcdefg")) == "a; b; c; d; e; and 2 more"


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (["t"], {P, Q}),
        (["t:1"], {Q}),
        (["t:0,1", "t:1"], {P, Q}),
        (["t:0", "orders:11"], {P, Partition("orders", 11)}),
    ],
)
def test_topics_are_chosen_whole_or_by_partition(given, chosen):
    assert core.parse_topics(given, CLUSTER) == chosen


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ("order", ReplayRefused, "there is no topic order; the nearest names are orders"),
        ("order:0", ReplayRefused, "there is no topic order; the nearest names are orders"),
        ("t:2", ReplayRefused, "topic t has no partition 2; its partitions are 0 to 1"),
        ("t:", ConfigError, "not t:"),
        ("t:0-1", ConfigError, "not t:0-1"),
    ],
)
def test_unknown_topics_and_partitions_are_refused_with_the_nearest(given, error, said):
    with pytest.raises(error, match=said):
        core.parse_topics([given], CLUSTER)


def test_the_csv_is_the_one_that_kafkas_own_tool_exports_for_one_group():
    assert core.to_csv([Move(P, None, 3, 1), Move(Partition("a.b_c-d", 11), None, 0, 1)]) == "t,0,3\na.b_c-d,11,0\n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("t,0,3\nt,1,4\n", {P: 3, Q: 4}),
        ("t,1,4\r\nt,0,3", {P: 3, Q: 4}),
        ("g,t,0,3\nother,t,0,9\n", {P: 3}),
        ("\nt,0,3\n\n", {P: 3}),
    ],
)
def test_csv_of_one_group_or_of_several_is_read(text, read):
    assert core.from_csv(text, "g") == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no row for g"),
        ("other,t,0,3\n", "has no row for g"),
        ("t,0,3\nt,0,4\n", "line 2 of the plan names t:0 a second time"),
        ("t,٣,5\n", "line 1 of the plan is not topic,partition,offset: t,٣,5"),
        ("t,0\n", "line 1 of the plan is not topic,partition,offset: t,0"),
        ("t,0,-1\n", "line 1"),
        ("t,zero,1\n", "line 1"),
        ("TOPIC,PARTITION,OFFSET\nt,0,3\n", "line 1"),
        ("t 0 3\n", "line 1"),
        ("a,b,c,d,e\n", "line 1"),
    ],
)
def test_a_broken_csv_is_refused_by_line(text, said):
    with pytest.raises(ConfigError, match=said):
        core.from_csv(text, "g")


def _plan(*moves: Move, notes: tuple[str, ...] = ()) -> Plan:
    return Plan("g", "c", moves, {}, notes)


def test_a_plan_is_shown_with_what_retention_took():
    shown = command._shown(
        _plan(Move(P, Commit(15), 10, 10, 10, NOW), Move(Q, None, 20, 0), notes=("something",))
    ).splitlines()
    assert shown[0].split() == ["TOPIC", "PARTITION", "NOW", "TO", "RECORDS", "OLDEST", "TAKEN"]
    assert shown[1].split() == ["t", "0", "15", "10", "10", "2026-11-29T12:00:00Z", "10"]
    assert shown[2].split() == ["t", "1", "-", "20", "0", "-"]
    assert "Retention has already taken up to 10 offsets of what was asked for." in shown
    assert shown[-1] == "Note: something."


def test_an_unknown_time_is_a_question_mark():
    assert "?" in command._shown(_plan(Move(P, Commit(15), 10, 10))).splitlines()[1].split()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"to": "2026-11-27"}, "has no time zone"),
        ({"to": "soon"}, "not soon"),
        ({}, "say where to with --to"),
        ({"to": "latest", "plan": Path("x.csv")}, "or give a --plan"),
        ({"topic": ["t"], "plan": Path("x.csv")}, "or give a --plan"),
        ({"plan": Path("no-such-file.csv")}, r"no-such-file\.csv cannot be read"),
    ],
)
def test_bad_arguments_are_refused_before_the_broker_is_asked(given, said):
    with pytest.raises(ConfigError, match=said):
        command.apply("g", **given, yes=True)


def test_the_undo_command_survives_a_shell():
    assert undo_command("a group") == "streams replay undo 'a group'"


COMMITS = {P: Commit(5, "pass:3", 2), Q: None, Partition("t", 2): Commit(6, ""), Partition("t", 3): Commit(7, None)}


def _saved(home: Path, group: str = "g", cluster: str = "c") -> SavedOffsets:
    return SavedOffsets(Settings(home=home), cluster, group)


def _snapshot(at: datetime = NOW) -> Snapshot:
    return Snapshot.of("g", "c", at, COMMITS)


def test_saved_commits_come_back_exactly(tmp_path):
    saved = _saved(tmp_path)
    with saved.locked():
        saved.save(_snapshot())
    assert Snapshot.read(_saved(tmp_path).newest()).before() == COMMITS


def test_the_newest_is_undone_first_then_the_one_before_it_then_none(tmp_path):
    saved = _saved(tmp_path)
    with saved.locked():
        first, second = saved.save(_snapshot()), saved.save(_snapshot(NOW + timedelta(seconds=1)))
        assert saved.newest() == second
        saved.forget(second)
        assert saved.newest() == first
        saved.forget(first)
    with pytest.raises(ReplayRefused, match="nothing to undo"):
        saved.newest()


@pytest.mark.parametrize("group", ["a/b", "..", "a b", "Ä" * 200, "x" * 300])
def test_any_group_name_makes_a_folder_of_its_own(tmp_path, group):
    with _saved(tmp_path, group).locked():
        path = _saved(tmp_path, group).save(_snapshot())
    assert path.is_relative_to(tmp_path / "replay" / "c")
    with pytest.raises(ReplayRefused):
        _saved(tmp_path, group + "2").newest()


def test_clusters_are_kept_apart(tmp_path):
    with _saved(tmp_path).locked():
        _saved(tmp_path).save(_snapshot())
    with pytest.raises(ReplayRefused):
        _saved(tmp_path, cluster="another").newest()


def test_two_replays_of_a_group_do_not_run_at_once(tmp_path):
    with (
        _saved(tmp_path).locked(),
        _saved(tmp_path, "other").locked(),
        pytest.raises(ReplayRefused, match="another replay of g is at work"),
        _saved(tmp_path).locked(),
    ):
        pass
    with _saved(tmp_path).locked():
        pass


def test_a_file_that_is_not_ours_is_named(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r"x\.json"):
        Snapshot.read(path)
