"""`streams replay promote | rollback`: a shadow's results become the reader's, at once, and back again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from streams.contract import DocumentSaved, Reader, Reject, Upsert, reader
from streams.errors import ReplayRefused
from streams.ops.replay_diff import diff
from streams.ops.replay_promote import Promotions
from streams.ops.replay_runs import ReplayRuns, Run
from tests.integration.replaying import Versions, begin, go, listed
from tests.rig import ROOT, Rig, catches_up, unique
from tests.support import eventually

NAMES = [f"k{n}" for n in range(40)]


def is_paused(rig: Rig, group: str) -> bool:
    """Whether the last member is gone: a static one that stopped stays for its session timeout."""
    return not rig.admin.describe_consumer_groups([group])[group].result().members


def replayed(rig: Rig, found: Reader, topic: str, *bounds: str) -> Run:
    """A shadow that is done."""
    run = begin(rig, found, topic, *bounds, target="shadow")
    assert go(rig, found, run).run.state == "done"
    return listed(rig, run)


def everything(rig: Rig, group: str) -> dict[str, object]:
    """What a reader has: its rows and its progress, to the last column."""
    tables = ("output", "progress")
    return {
        name: sorted(map(str, rig.rows(f"SELECT t FROM readers.{name} AS t WHERE reader = %s", group)))
        for name in tables
    }


@contextmanager
def reading(rig: Rig, group: str) -> Iterator[set[tuple[int, ...]]]:
    """Someone who reads the table all the time; gives each pair of counts seen, of old rows and new ones."""
    seen: set[tuple[int, ...]] = set()
    ended = Event()
    query = """SELECT count(*) FILTER (WHERE value ->> 'code' = 'old'), count(*) FILTER (WHERE value ->> 'code' = 'new')
        FROM readers.output WHERE reader = %s AND document_id IS NOT NULL"""

    def read() -> None:
        with rig.connect() as connection:
            while not ended.is_set():
                seen.add(connection.execute(query, [group]).fetchone())

    thread = Thread(target=read, daemon=True)
    thread.start()
    try:
        eventually(lambda: seen)
        yield seen
    finally:
        ended.set()
        thread.join(10)


def test_a_whole_shadow_takes_the_place_of_all_at_once_and_a_rollback_restores_it(rig: Rig) -> None:
    topic, versions = rig.topic(partitions=3), Versions()
    for name in NAMES:
        rig.put(topic, name)
    with rig.worker(versions.reader, topic):
        catches_up(rig, versions.group, dict.fromkeys(NAMES, 1))
        versions.code = "new"
        run = replayed(rig, versions.reader, topic)
        versions.code = "old"
        rig.put(topic, "meanwhile")
        catches_up(rig, versions.group, {"meanwhile": 1})
        with pytest.raises(ReplayRefused, match=r"has members \(.*\): stop them first"):
            Promotions(rig.config).promote(run)
    eventually(lambda: is_paused(rig, versions.group))
    with pytest.raises(ReplayRefused, match=r"the reader is further than it.* holds counters"):
        Promotions(rig.config).promote(run)
    rig.do("INSERT INTO readers.output VALUES (%s, 'stray', 'k0', 1, '{}')", versions.group)
    versions.code = "new"
    go(rig, versions.reader, ReplayRuns(rig.config).catch_up(run))
    assert len(versions.calls) == 41
    assert set(versions.calls.values()) == {2}, "the shadow, too, did each once"
    before = everything(rig, versions.group)
    with reading(rig, versions.group) as seen:
        promoted = Promotions(rig.config).promote(listed(rig, run))
        eventually(lambda: (0, 41) in seen)
    assert promoted.swaps
    assert seen == {(41, 0), (0, 41)}, "nobody sees a part of it"
    with pytest.raises(ReplayRefused, match="is promoted: begin another"):
        ReplayRuns(rig.config).catch_up(listed(rig, run))
    expected = {name: {"version": 1, "code": "new"} for name in [*NAMES, "meanwhile"]}
    assert rig.output(versions.group) == expected | {"all": {"versions": 41}}
    (table,) = diff(rig.config, listed(rig, run), 0)
    assert table.rows == {"same": 42}
    with rig.worker(versions.reader, topic):
        rig.put(topic, "after")
        catches_up(rig, versions.group, {"after": 1})
    assert rig.output(versions.group)["all"] == {"versions": 42}
    eventually(lambda: is_paused(rig, versions.group))
    Promotions(rig.config).rollback(run)
    assert everything(rig, versions.group) == before
    assert listed(rig, run).state == "done"
    with rig.worker(versions.reader, topic):
        catches_up(rig, versions.group, {"after": 1})
    assert rig.output(versions.group)["all"] == {"versions": 42}, "what came after the promotion is done again"


def test_a_part_is_merged_by_version_and_deletes_nothing(rig: Rig) -> None:
    topic, group, mended = rig.topic(), unique("part"), Event()

    @reader(group=group)
    def part(doc: DocumentSaved) -> Upsert:
        if doc.document_id == "bad" and not mended.is_set():
            raise Reject("not mended")
        return Upsert(doc.document_id, {"version": doc.version, "code": "new" if mended.is_set() else "old"})

    rig.put(topic, "before")
    for name, version in (("newer", 1), ("b", 1), ("bad", 1), ("newer", 2), ("outside", 1)):
        rig.put(topic, name, version)
    with rig.worker(part, topic):
        catches_up(rig, group, {"before": 1, "b": 1, "newer": 2, "outside": 1})
        eventually(lambda: rig.progress(group)["bad"] == ("dead", 1))
    rig.do("INSERT INTO readers.output VALUES (%s, 'stray', 'b', 1, '{}')", group)
    mended.set()
    run = replayed(rig, part, topic, "offset:1", "offset:4")
    eventually(lambda: is_paused(rig, group))
    before = everything(rig, group)
    assert not Promotions(rig.config).promote(run).swaps
    assert rig.output(group) == {
        "before": {"version": 1, "code": "old"},
        "b": {"version": 1, "code": "new"},
        "bad": {"version": 1, "code": "new"},
        "newer": {"version": 2, "code": "old"},
        "outside": {"version": 1, "code": "old"},
        "stray": {},
    }
    assert rig.done(group) == {"before": 1, "b": 1, "bad": 1, "newer": 2, "outside": 1}
    assert rig.dead_letters(group, "document_id, state") == [("bad", "resolved")]
    Promotions(rig.config).rollback(run)
    assert everything(rig, group) == before
    assert rig.dead_letters(group, "document_id, state") == [("bad", "open")]


def test_dead_letters_of_a_shadow_go_with_it_and_come_back(rig: Rig) -> None:
    topic, group, strict = rig.topic(), unique("strict"), Event()

    @reader(group=group)
    def picky(doc: DocumentSaved) -> Upsert:
        if strict.is_set():
            raise Reject("too strict")
        return Upsert(doc.document_id, {})

    rig.put(topic, "a")
    with rig.worker(picky, topic):
        catches_up(rig, group, {"a": 1})
    strict.set()
    run = replayed(rig, picky, topic)
    eventually(lambda: is_paused(rig, group))
    assert Promotions(rig.config).promote(run).swaps
    assert (rig.progress(group), rig.output(group)) == ({"a": ("dead", 1)}, {})
    assert rig.dead_letters(group, "document_id, state") == [("a", "open")]
    Promotions(rig.config).rollback(run)
    assert (rig.progress(group), rig.output(group)) == ({"a": ("done", 1)}, {"a": {}})
    assert (rig.dead_letters(group, "state"), rig.dead_letters(run.group, "state")) == ([], [("open",)])


def test_what_cannot_be_promoted_is_refused_and_nothing_changes(rig: Rig) -> None:
    topic, versions = rig.topic(), Versions()
    rig.put(topic, "a")
    promotions = Promotions(rig.config)
    with rig.worker(versions.reader, topic):
        catches_up(rig, versions.group, {"a": 1})
        run = replayed(rig, versions.reader, topic)
        before = everything(rig, versions.group)
        with pytest.raises(ReplayRefused, match=r"has members \(.*\): stop them first"):
            promotions.promote(run)
        with pytest.raises(ReplayRefused, match="not promoted"):
            promotions.rollback(run)
    eventually(lambda: is_paused(rig, versions.group))
    with pytest.raises(ReplayRefused, match="went into the live tables"):
        promotions.promote(begin(rig, versions.reader, topic))
    rig.do(f"ALTER TABLE replay_{run.run}.output RENAME COLUMN value TO other")
    with pytest.raises(ReplayRefused, match="nothing was changed, since Postgres refuses"):
        promotions.promote(run)
    assert everything(rig, versions.group) == before


def test_promotions_are_rolled_back_in_turn_by_the_command_line(rig: Rig) -> None:
    topic, versions = rig.topic(), Versions()
    rig.put(topic, "a")
    with rig.worker(versions.reader, topic):
        catches_up(rig, versions.group, {"a": 1})
    first, second = (replayed(rig, versions.reader, topic) for _ in range(2))
    eventually(lambda: is_paused(rig, versions.group))

    def streams(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "streams.cli.main", "replay", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    for run in (first, second):
        code, said = streams("promote", str(run.run), "--yes")
        assert (code, "are replaced by those of replay" in said) == (0, True), said
    code, said = streams("rollback", str(first.run), "--yes")
    assert (code, said.count("roll that back first")) == (7, 1), said
    for run in (second, first):
        code, said = streams("rollback", str(run.run), "--yes")
        assert code == 0, said
