"""Re-scoring on the real stack: workers killed in the middle, bad documents, runs that are cancelled and resumed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
import psycopg
import pytest

from streams.database import Connection
from streams.errors import RescoreRefused, SchemaError
from streams.ops import rescore
from streams.ops.rescore import Status
from streams.sinks.rescored import _SQL, Rescored, _values
from streams.topics import RESCORE, RESCORER, Topic
from tests.rig import ROOT, Command, Rig, unique
from tests.scorers_for_tests import VERSION
from tests.support import eventually

START_SECONDS_MAX = 120.0


@pytest.fixture
def owner(rig: Rig) -> Iterator[str]:
    """Somebody with one query, whose documents are no other test's to score; a run that is left would refuse others."""
    name = unique("owner")
    rig.do("INSERT INTO app.saved_queries (owner_id, query) VALUES (%s, 'a query')", name)
    yield name
    for (document,) in rig.rows(
        "SELECT document_id FROM app.documents WHERE owner_id = %s AND deleted_at IS NULL", name
    ):
        rig.delete(document)  # not a row alone: the log would know of documents that Postgres does not
    rig.do("UPDATE ops.rescores SET cancelled_at = clock_timestamp() WHERE cancelled_at IS NULL")


def documents(rig: Rig, owner: str, count: int, malformed: int = 0) -> list[str]:
    """Save so many; the first ones no scorer takes."""
    names = [unique(f"doc-{number:03}") for number in range(count)]
    for number, name in enumerate(names):
        rig.save(name, owner=owner, body="malformed" if number < malformed else "a body")
    return names


def start(rig: Rig, chunk: int = 20, model: str = VERSION, **options: Any) -> int:
    with rig.connect() as connection:
        return rescore.start(connection, rig.codec.encode, "strict", model, chunk, **options)[0]


def status(rig: Rig, run: int) -> Status:
    with rig.connect() as connection:
        return rescore.status(connection, run)


def over(rig: Rig, run: int, seconds: float = START_SECONDS_MAX) -> Status:
    """How the run stands when it is over."""

    def found() -> Status:
        now = status(rig, run)
        assert now.state == "done", now
        return now

    return eventually(found, seconds)


@contextmanager
def workers(rig: Rig, count: int = 1) -> Iterator[Command]:
    with rig.command("", RESCORER, workers=count) as command:
        rig.groups.discard(RESCORER)  # its topics are everybody's
        yield command
        assert command.end() == 0, command.said()


def scores(rig: Rig, names: list[str]) -> Mapping[str, int]:
    """Of those that have a score, the version that was scored."""
    query = "SELECT document_id, version FROM readers.scores WHERE document_id = ANY(%s) AND model_version = %s"
    return dict(rig.rows(query, names, VERSION))


def command(rig: Rig, *words: str) -> subprocess.CompletedProcess[str]:
    _, environment = rig.invocation("", workers=1)
    run = [sys.executable, "-m", "streams.cli.main", "rescore", *words]
    return subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_workers_are_killed_and_every_chunk_is_done_once_with_the_errors_named(rig: Rig, owner: str) -> None:
    names = documents(rig, owner, 300, malformed=5)
    run = start(rig, chunk=10)
    with workers(rig, 2) as fleet:
        for done in (2, 6, 10):
            eventually(lambda done=done: status(rig, run).counts.chunks_done >= done, START_SECONDS_MAX)
            assert status(rig, run).state == "running"
            psutil.Process(fleet.workers()[done % 2]).kill()
            eventually(lambda: len(fleet.workers()) == 2, 30)
        found = over(rig, run)
    assert found.counts.failed == 5
    assert found.counts.documents == found.counts.scored + 5
    assert scores(rig, names) == dict.fromkeys(names[5:], 1)
    with rig.connect() as connection:
        named = rescore.errors(connection, run)
    assert named == [(name, 1, "ValueError: that is no text") for name in sorted(names[:5])]
    assert rig.dead_letters(RESCORER, "error_message") == []
    assert rig.rows("SELECT FROM readers.registered WHERE reader = %s", RESCORER) == []  # no job waits for it


def test_what_was_saved_again_or_deleted_since_is_left_to_the_ranker(rig: Rig, owner: str) -> None:
    stays, saved_again, deleted = names = documents(rig, owner, 3)
    run = start(rig)
    later = documents(rig, owner, 2)
    rig.save(saved_again, owner=owner)
    rig.delete(deleted)
    with workers(rig):
        found = over(rig, run)
    assert scores(rig, [*names, *later]) == {stays: 1}
    assert (found.counts.moved_on, found.counts.failed) == (2, 0)


def finish(connection: Connection, run: int, names: list[str], queries: list[str], **changes: Any) -> None:
    """What the sink does with a chunk whose documents were all scored at version 1."""
    rows = {(name, query, VERSION): {"score": 0.5} for name in names for query in queries}
    made = {"rows": rows, "versions": dict.fromkeys(names, 1), "errors": {}, "seconds": 1.0}
    effect = Rescored(run_id=run, chunk=0, model_version=VERSION, **(made | changes))
    connection.execute(_SQL.finish_chunk.sql, {**_values(effect), "worker": "test"})


def test_only_the_version_that_was_scored_is_written_and_is_held_still_meanwhile(rig: Rig, owner: str) -> None:
    (query,) = (str(one) for (one,) in rig.rows("SELECT query_id FROM app.saved_queries WHERE owner_id = %s", owner))
    stays, saved_again, deleted = names = documents(rig, owner, 3)
    run = start(rig)
    rig.save(saved_again, owner=owner)
    rig.delete(deleted)
    with rig.connect() as connection, connection.transaction():
        finish(connection, run, names, [query])
        with rig.connect() as other:
            other.execute("SET lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("UPDATE app.documents SET version = version + 1 WHERE document_id = %s", [stays])
    assert scores(rig, names) == {stays: 1}

    with rig.connect() as connection:  # again, when that query is gone and the text is refused: the scores are a set
        finish(connection, run, [stays], [], errors={stays: "ValueError: no"}, rows={})
        assert scores(rig, names) == {stays: 1}
        finish(connection, run, [stays], [])
        assert scores(rig, names) == {}


def test_the_eta_is_the_busiest_workers_unless_partitions_moved_lately(rig: Rig, owner: str) -> None:
    """Thirty-six chunks done in 10 s, twelve to do; two thirds of the partitions are one worker's."""
    documents(rig, owner, 48)
    workers_of = "CASE WHEN mod(chunk, 12) < 8 THEN 'a' ELSE 'b' END"
    done = f"UPDATE ops.rescore_chunks SET done_at = clock_timestamp(), seconds = 10, worker = {workers_of}"
    owners = f"SELECT %s, %s, chunk, 1, {workers_of} FROM generate_series(0, 11) AS chunk"
    with rig.connect() as connection, connection.transaction(force_rollback=True):
        connection.execute("DELETE FROM app.documents WHERE owner_id <> %s", [owner])
        connection.execute("DELETE FROM readers.owners WHERE reader = %s", [RESCORER])
        connection.execute(
            f"INSERT INTO readers.owners (reader, topic, partition, epoch, worker) {owners}", [RESCORER, RESCORE.name]
        )
        run, chunks = rescore.start(connection, rig.codec.encode, "strict", "strict-3", 1)
        assert chunks == 48
        assert rescore.status(connection, run).eta_seconds is None
        connection.execute(f"{done} WHERE run_id = %s AND chunk < 36", [run])
        assert rescore.status(connection, run).eta_seconds == pytest.approx(8 / (36 / 10 / 2), rel=0.02)
        connection.execute("UPDATE ops.rescore_chunks SET worker = 'b' WHERE run_id = %s AND chunk = 0", [run])
        assert rescore.status(connection, run).eta_seconds == pytest.approx(12 / (36 / 10), rel=0.02)


def test_cancelled_nothing_more_begins_and_resumed_all_is_done(rig: Rig, owner: str) -> None:
    names = documents(rig, owner, 40)
    run = start(rig, chunk=10)
    with rig.connect() as connection:
        assert rescore.cancel(connection, run).state == "cancelled"
        with pytest.raises(RescoreRefused, match=f"^run {run} is cancelled already$"):
            rescore.cancel(connection, run)
    chunks = status(rig, run).counts.chunks
    states = f"SELECT count(*) FROM readers.progress WHERE reader = '{RESCORER}' AND document_id LIKE %s"
    with workers(rig):
        eventually(lambda: rig.rows(states, f"{run}/%") == [(chunks,)], START_SECONDS_MAX)
        assert status(rig, run).counts.chunks_done == 0
        assert scores(rig, names) == {}
        with rig.connect() as connection:
            assert rescore.resume(connection, rig.codec.encode, run) == (run, chunks)
        over(rig, run)
    assert scores(rig, names) == dict.fromkeys(names, 1)
    with rig.connect() as connection, pytest.raises(RescoreRefused, match="is done, so there is nothing to resume"):
        rescore.resume(connection, rig.codec.encode, run)


def test_of_two_starts_at_once_one_is_refused_and_a_start_that_fails_leaves_nothing(rig: Rig, owner: str) -> None:
    documents(rig, owner, 30)

    def fail(_topic: Topic, _event: Mapping[str, Any]) -> bytes:
        raise SchemaError("it does not fit")

    before = rig.rows("SELECT count(*) FROM ops.rescores")
    with rig.connect() as connection, pytest.raises(SchemaError):
        rescore.start(connection, fail, "strict", VERSION, 10)
    assert rig.rows("SELECT count(*) FROM ops.rescores") == before

    def outcome(_: int) -> int | str:
        try:
            return start(rig, chunk=10)
        except RescoreRefused as error:
            return str(error)

    with ThreadPoolExecutor(2) as both:
        run, refusal = sorted(both.map(outcome, range(2)), key=lambda one: isinstance(one, str))
    assert f"run {run} of strict ({VERSION}) began at " in str(refusal)
    assert start(rig, model="another") != run
    with rig.connect() as connection:
        rescore.cancel(connection, None)
        rescore.cancel(connection, int(run))


def test_a_chunk_without_its_model_is_tried_again_until_it_is_there(rig: Rig, owner: str) -> None:
    documents(rig, owner, 1)
    run = start(rig, chunk=5_000, model="strict-2")
    with workers(rig):
        eventually(lambda: status(rig, run).counts.chunks_retrying == 1, START_SECONDS_MAX)
        found = status(rig, run).counts.obstacle
    assert found == f"ReaderError: the re-score wants strict as strict-2, and here it is {VERSION}"
    with rig.connect() as connection:
        rescore.cancel(connection, run)


def test_the_command_line_begins_shows_and_ends_a_run(rig: Rig, owner: str) -> None:
    names = documents(rig, owner, 20, malformed=1)
    with workers(rig):
        begun = command(rig, "start", "--model", "strict", "--chunk", "10", "--deadline", "2h", "--watch")
    assert begun.returncode == 0, begun.stderr
    assert "The ranker scores what is saved from now on with wordllama, not with strict." in begun.stdout
    assert "100%" in begun.stdout
    assert f"{names[0]} version 1: ValueError: that is no text" in begun.stdout
    shown = command(rig, "status", "--json")
    found = json.loads(shown.stdout)
    assert (found["state"], found["failed"], found["documents"]) == ("done", 1, found["documents_done"])
    assert found["errors"] == [{"document_id": names[0], "version": 1, "error": "ValueError: that is no text"}]
    assert scores(rig, names) == dict.fromkeys(names[1:], 1)

    again = command(rig, "start", "--model", "strict", "--deadline", "2h")  # there is a rate to go by now
    assert "if it goes as the last run of this model did" in again.stdout
    refused = command(rig, "start", "--model", "strict")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (10, 1)
    assert "is not done: wait for it, or run `streams rescore cancel" in refused.stderr
    assert command(rig, "cancel").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["start", "--model", "nonsense"], 4, "error: --model names the scorer 'nonsense', but there are only "),
        (["start", "--deadline", "soon"], 2, "error: soon is not a length of time, such as 90s, 30m, 12h or 3d"),
        (["status", "987654321"], 10, "error: there is no re-score 987654321"),
        (["cancel", "987654321"], 10, "error: there is no re-score 987654321"),
        (["resume", "987654321"], 10, "error: there is no re-score 987654321"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(rig: Rig, words: list[str], code: int, sentence: str) -> None:
    done = command(rig, *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1), done.stderr
    assert done.stderr.startswith(sentence)


def test_the_topic_is_made_by_setup(rig: Rig) -> None:
    assert set(rig.ends(RESCORE.name)) == set(range(RESCORE.partitions))
