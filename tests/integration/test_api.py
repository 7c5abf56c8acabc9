"""The API on the real stack, as its own process: what is answered 202 is saved, whatever dies meanwhile."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from psycopg import sql

from streams.outbox.save import Document, Origin, save
from tests.api_process import Api, Network, environment, free_port, serving, streams
from tests.rig import Rig, unique
from tests.support import eventually

BODY_BYTES_MAX = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def api(stack: object) -> Iterator[Api]:
    with serving() as running:
        yield running


def is_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    return problem


def is_unavailable(answer: httpx.Response) -> str:
    detail = str(is_problem(answer, 503)["detail"])
    assert int(answer.headers["retry-after"]) >= 1
    return detail


# ----------------------------------------------------------------------------------------- documents


def test_a_save_is_accepted_with_its_job(api: Api, rig: Rig) -> None:
    answer = api.save()
    accepted = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/jobs/{accepted['job_id']}"
    assert accepted["version"] == 1
    job = api.client.get(answer.headers["location"]).json()
    assert {name: job[name] for name in accepted} == accepted
    registered = {name for (name,) in rig.rows("SELECT reader FROM readers.registered")}
    assert set(job["readers"]) == registered


def test_put_makes_versions_delete_ends_them_and_put_revives(api: Api) -> None:
    path = f"/documents/{unique('notes')}/2026.md"
    content = {"owner_id": "ada", "title": "t", "body": "first"}
    versions = [api.client.put(path, json=content | {"body": body}).json()["version"] for body in ("first", "second")]
    assert api.client.get(path).json()["body"] == "second"
    deleted = api.client.delete(path)
    assert deleted.status_code == 202
    versions.append(deleted.json()["version"])
    is_problem(api.client.get(path), 404)
    is_problem(api.client.delete(path), 404)
    versions.append(api.client.put(path, json=content).json()["version"])
    assert versions == [1, 2, 3, 4]
    assert api.client.get(path).json()["version"] == 4


@pytest.mark.parametrize(
    ("title", "body"),
    [
        ("", ""),
        ("x" * 10_000, "a" * BODY_BYTES_MAX),
        ("عنوان من اليمين", "שלום \u202eעולם\u202c"),
        ("👩‍👩‍👧‍👦", "\U0001f600" * (BODY_BYTES_MAX // 4)),
        ("\u0001\u007f", "\r\n\t\u2028\ufeff\ufffd\\u0041"),
    ],
)
def test_a_document_is_read_back_as_it_was(api: Api, title: str, body: str) -> None:
    accepted = api.save(title=title, body=body).json()
    view = api.client.get(f"/documents/{accepted['document_id']}").json()
    assert (view["title"], view["body"], view["version"]) == (title, body, 1)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"body": "a" * (BODY_BYTES_MAX + 1)}, 413),
        ({"body": "a" * 30_000_000}, 413),
        ({"body": "a\0"}, 422),
        ({"title": "x" * 10_001}, 422),
        ({"owner_id": ""}, 422),
    ],
)
def test_a_refused_save_writes_nothing(api: Api, rig: Rig, fields: dict[str, str], status: int) -> None:
    name = unique("doc")
    is_problem(api.save(document_id=name, **fields), status)
    assert rig.rows("SELECT FROM app.documents WHERE document_id = %s", name) == []
    assert rig.rows("SELECT FROM app.outbox WHERE message_key = %s", name) == []


def test_a_hundred_saves_of_one_document_at_once(api: Api, rig: Rig) -> None:
    name = unique("doc")

    def save(number: int) -> httpx.Response:
        """As a client does: a busy server says when to come again, and by the key it is one save."""
        content = {"document_id": name, "owner_id": "ada", "title": "Notes", "body": str(number)}
        while True:
            answer = api.client.post("/documents", json=content, headers={"Idempotency-Key": f"{name} {number}"})
            if answer.status_code != 503:
                return answer
            time.sleep(int(answer.headers["Retry-After"]))

    with ThreadPoolExecutor(100) as threads:
        answers = list(threads.map(save, range(100)))
    assert {answer.status_code for answer in answers} == {202}
    assert sorted(answer.json()["version"] for answer in answers) == list(range(1, 101))
    [(last,)] = rig.rows("SELECT body FROM app.documents WHERE document_id = %s", name)
    assert [answer.json()["version"] for answer in answers][int(last)] == 100


def test_requests_under_one_key_are_one_save(api: Api) -> None:
    def post(body: str) -> httpx.Response:
        content = {"owner_id": "ada", "title": "t", "body": body}
        return api.client.post("/documents", json=content, headers={"Idempotency-Key": key})

    key = unique("key")
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda _: post("same"), range(10)))
    assert len({answer.text for answer in answers}) == 1
    assert len({answer.headers["location"] for answer in answers}) == 1
    errors = is_problem(post("other"), 422)["errors"]
    assert [error["field"] for error in errors] == ["Idempotency-Key"]


def test_a_document_shows_what_its_readers_made_of_it(api: Api, rig: Rig) -> None:
    owner, reader = unique("ada"), unique("reader")
    accepted = api.save(owner_id=owner).json()
    name = accepted["document_id"]
    bare = api.client.get(f"/documents/{name}").json()
    assert (bare["summary"], bare["scores"]) == (None, [])
    queries = [
        api.client.post("/queries", json={"owner_id": owner, "query": text}).json()["query_id"] for text in ("a", "b")
    ]
    rig.do("INSERT INTO readers.summaries VALUES (%s, 1, 'short', 'model', 7)", name)
    for query, score in [*zip(queries, (0.25, 0.5), strict=True), (str(uuid4()), 0.9)]:
        rig.do("INSERT INTO readers.scores VALUES (%s, %s, 'cosine', 1, %s)", name, query, score)
    with registered(rig, reader):
        progress(rig, reader, name, version=1, state="done", applied=1)
        view = api.client.get(f"/documents/{name}").json()
    assert view["summary"] == {"version": 1, "summary": "short", "model": "model"}
    assert [(score["query"], score["score"]) for score in view["scores"]] == [("b", 0.5), ("a", 0.25)]
    assert view["readers"] == {reader: {"state": "done", "version": 1, "applied_version": 1}}


# ---------------------------------------------------------------------------------------------- jobs


class registered:
    """A reader that the API knows of, for a block."""

    def __init__(self, rig: Rig, reader: str) -> None:
        self._rig, self._reader = rig, reader

    def __enter__(self) -> None:
        self._rig.do("INSERT INTO readers.registered (reader) VALUES (%s)", self._reader)

    def __exit__(self, *_: object) -> None:
        for table in ("registered", "progress", "dead_letters"):
            self._rig.do(f"DELETE FROM readers.{table} WHERE reader = %s", self._reader)


def progress(
    rig: Rig,
    reader: str,
    document_id: str,
    version: int,
    state: str,
    applied: int | None = None,
    completed: str = "{}",
    attempts: int = 0,
    error: str | None = None,
) -> None:
    rig.do(
        "INSERT INTO readers.progress (reader, document_id, version, state, applied_version, completed, pass, attempts,"
        " error, next_attempt_at) VALUES (%s, %s, %s, %s, %s, %s, 1, %s, %s, '2030-01-01T00:00:00Z')",
        *(reader, document_id, version, state, applied, completed, attempts, error),
    )


def parked(rig: Rig, reader: str, document_id: str, version: int, event_id: str, attempts: int, error: str) -> None:
    rig.do(
        'INSERT INTO readers.parked (reader, lane, version, topic, partition, "offset", lane_hash, "timestamp",'
        " header_names, header_values, event_id, attempts, error, next_attempt_at) VALUES (%s, %s, %s,"
        " 'documents-saved', 0, 0, 0, now(), '{}', '{}', %s, %s, %s, '2030-01-01T00:00:00Z')",
        *(reader, document_id, version, event_id, attempts, error),
    )


def dead_letter(rig: Rig, reader: str, event_id: str, state: str = "open") -> None:
    rig.do(
        'INSERT INTO readers.dead_letters (reader, topic, partition, "offset", "timestamp", header_names,'
        " header_values, event_id, error_class, error_message, traceback, attempts, worker, first_failed_at, lane,"
        " lane_hash, state) VALUES (%s, 'documents-saved', 0, 0, now(), '{}', '{}', %s, 'Reject', 'no text', '', 5,"
        " 'w', now(), 'lane', 0, %s)",
        *(reader, event_id, state),
    )


@pytest.mark.parametrize(
    ("row", "letter", "expected"),
    [
        (None, None, {"state": "pending"}),
        ({"version": 1, "state": "done", "applied": 1}, None, {"state": "pending"}),
        ({"version": 2, "state": "done", "applied": 2}, None, {"state": "done"}),
        (
            {"version": 2, "state": "retrying", "applied": 1, "attempts": 3, "error": "busy"},
            None,
            {"state": "retrying", "attempts": 3, "error": "busy", "next_attempt_at": "2030-01-01T00:00:00Z"},
        ),
        ({"version": 2, "state": "expired"}, None, {"state": "expired"}),
        # A later version: done if this one's effects were applied too, else it was overtaken.
        ({"version": 3, "state": "done", "applied": 3, "completed": "{[1,4)}"}, None, {"state": "done"}),
        ({"version": 3, "state": "done", "applied": 3, "completed": "{[3,4)}"}, None, {"state": "superseded"}),
        ({"version": 3, "state": "retrying", "applied": 2}, None, {"state": "done"}),
        ({"version": 3, "state": "retrying", "applied": 1}, None, {"state": "pending"}),
        # An open dead letter comes first, and only while it is open.
        ({"version": 2, "state": "dead"}, "open", {"state": "dead", "attempts": 5, "error": "Reject: no text"}),
        (
            {"version": 3, "state": "done", "applied": 3},
            "open",
            {"state": "dead", "attempts": 5, "error": "Reject: no text"},
        ),
        ({"version": 2, "state": "done", "applied": 2}, "resolved", {"state": "done"}),
        ({"version": 2, "state": "dead"}, "redriven", {"state": "pending"}),
    ],
)
def test_a_job_has_a_state_at_each_reader(
    api: Api, rig: Rig, row: dict[str, Any] | None, letter: str | None, expected: dict[str, Any]
) -> None:
    name, reader = unique("doc"), unique("reader")
    rig.save(name)
    job_id = str(rig.save(name).job_id)
    rig.save(name)
    with registered(rig, reader):
        if row is not None:
            progress(rig, reader, name, **row)
            if row["state"] == "retrying" and row["version"] == 2:
                parked(rig, reader, name, 2, job_id, row["attempts"], row["error"])
        if letter is not None:
            dead_letter(rig, reader, job_id, letter)
        job = api.client.get(f"/jobs/{job_id}").json()
    assert job["version"] == 2
    assert job["readers"][reader] == expected


def test_an_unknown_job_is_not_found(api: Api) -> None:
    assert "there is no job" in is_problem(api.client.get(f"/jobs/{uuid4()}"), 404)["detail"]


# --------------------------------------------------------------------------------------- saved queries


def test_saved_queries_are_an_owners_and_each_is_there_once(api: Api) -> None:
    owner, other = unique("ada"), unique("bob")

    def post(owner_id: str, query: str) -> httpx.Response:
        return api.client.post("/queries", json={"owner_id": owner_id, "query": query})

    first = post(owner, "streams")
    assert first.status_code == 201
    post(owner, "rivers")
    post(other, "streams")
    again = post(owner, "streams")
    assert (again.status_code, again.json()) == (200, first.json())
    found = api.client.get("/queries", params={"owner_id": owner}).json()["queries"]
    assert [query["query"] for query in found] == ["streams", "rivers"]
    path = f"/queries/{first.json()['query_id']}"
    assert api.client.delete(path).status_code == 204
    is_problem(api.client.delete(path), 404)
    left = api.client.get("/queries", params={"owner_id": owner}).json()["queries"]
    assert [query["query"] for query in left] == ["rivers"]


# ------------------------------------------------------------------------------------ when servers fail


def test_a_document_that_is_locked_for_long_is_refused_and_no_other(api: Api, rig: Rig) -> None:
    name = unique("doc")
    with rig.connect() as connection, connection.transaction():
        save(connection, rig.codec.encode, Document(name, "ada", "t", "b"), Origin())
        began = time.monotonic()
        detail = is_unavailable(api.save(document_id=name))
        assert time.monotonic() - began < 5
        assert "lock" in detail
        assert api.save().status_code == 202
    assert api.save(document_id=name).json()["version"] == 2


def test_a_silent_postgres_is_said_in_time_and_forgotten_when_it_speaks_again(rig: Rig) -> None:
    network = Network(rig.config.db_port)
    with serving(STREAMS_DB_PORT=str(network.port)) as api:
        assert api.save().status_code == 202
        network.silence()
        began = time.monotonic()
        with ThreadPoolExecutor(40) as threads:
            answers = list(threads.map(lambda _: api.save(), range(40)))
        assert time.monotonic() - began < 8
        assert all("Postgres" in is_unavailable(answer) for answer in answers)
        assert api.is_alive()
        is_unavailable(api.client.get("/readyz"))
        network.restore()
        eventually(lambda: api.save().status_code == 202, 20)
    network.close()


def test_a_postgres_that_came_back_is_found_by_the_next_save(rig: Rig) -> None:
    network = Network(rig.config.db_port)
    with serving(STREAMS_DB_PORT=str(network.port)) as api:
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda _: api.save(), range(64)))
        for _ in range(3):
            network.cut()
            # Every pooled connection is dead now, and none of them is given to a save.
            assert {api.save().status_code for _ in range(20)} == {202}
    network.close()


def test_an_absent_postgres_is_said(stack: object) -> None:
    with serving(ready=False, STREAMS_DB_PORT=str(free_port())) as api:
        for path in ("/readyz", "/documents/a", f"/jobs/{uuid4()}", "/queries?owner_id=ada"):
            assert "Postgres" in is_unavailable(api.client.get(path))
        eventually(lambda: "Postgres" in is_unavailable(api.save()), 20)


def test_an_absent_registry_holds_writes_back_until_it_is_there(rig: Rig) -> None:
    network = Network(int(rig.config.registry_url.split(":")[2].split("/")[0]))
    network.silence()
    url = rig.config.registry_url.replace(rig.config.registry_url.split(":")[2].split("/")[0], str(network.port))
    with serving(ready=False, STREAMS_REGISTRY_URL=url) as api:
        assert "registry" in is_unavailable(api.save())
        assert "registry" in is_unavailable(api.client.get("/readyz"))
        is_problem(api.client.get("/documents/nothing"), 404)
        network.restore()
        eventually(api.is_ready, 20)
        assert api.save().status_code == 202
    network.close()


def test_a_database_that_is_not_set_up_is_said(rig: Rig) -> None:
    name = unique("empty").replace("-", "_")
    rig.do(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))  # type: ignore[arg-type]
    try:
        with serving(ready=False, STREAMS_DB_NAME=name) as api:
            asks = (lambda: api.client.get("/readyz"), api.save, lambda: api.client.get("/documents/a"))
            for ask in asks:  # a save first says that the registry has not answered, for as long as that is so
                eventually(lambda ask=ask: "streams setup" in is_unavailable(ask()))  # type: ignore[misc]
    finally:
        rig.do(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- when the API ends


def test_what_was_answered_before_sigkill_is_saved(rig: Rig) -> None:
    answered: list[dict[str, Any]] = []
    owner = unique("ada")

    def save_until_it_dies(api: Api, worker: int) -> None:
        try:
            while True:
                answer = api.save(owner_id=owner, document_id=f"{owner}-{worker % 4}")
                assert answer.status_code == 202
                answered.append(answer.json())
        except httpx.TransportError:
            return

    with serving() as api, ThreadPoolExecutor(8) as threads:
        workers = [threads.submit(save_until_it_dies, api, number) for number in range(8)]
        eventually(lambda: len(answered) > 100, 30)
        api.process.kill()
        for worker in workers:
            worker.result(20)
    jobs = rig.rows("SELECT event_id::text, document_id, version FROM app.jobs WHERE document_id LIKE %s", f"{owner}%")
    assert {(one["job_id"], one["document_id"], one["version"]) for one in answered} <= set(jobs)
    # What was cut off in the middle is there wholly or not at all.
    events = rig.rows("SELECT event_id::text, message_key FROM app.outbox WHERE message_key LIKE %s", f"{owner}%")
    assert sorted(events) == sorted((job_id, document_id) for job_id, document_id, _ in jobs)
    versions = rig.rows("SELECT document_id, version FROM app.documents WHERE owner_id = %s", owner)
    for document_id, version in versions:
        of_document = sorted(one for _, name, one in jobs if name == document_id)
        assert of_document == list(range(1, version + 1))


def test_sigterm_lets_what_is_under_way_finish(rig: Rig) -> None:
    name = unique("doc")
    with serving() as api, ThreadPoolExecutor(1) as threads:
        with rig.connect() as connection, connection.transaction():
            save(connection, rig.codec.encode, Document(name, "ada", "t", "b"), Origin())
            waiting = threads.submit(api.save, document_id=name)
            eventually(lambda: _waits_for_a_lock(rig), 5)
            api.process.send_signal(signal.SIGTERM)
        assert waiting.result(10).json()["version"] == 2
        assert api.process.wait(10) == 0


def _waits_for_a_lock(rig: Rig) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE application_name = 'streams-api' AND wait_event_type = 'Lock'"
    return bool(rig.rows(query))


def test_a_port_in_use_is_said_in_one_sentence(api: Api) -> None:
    port = api.url.rpartition(":")[2]
    command = streams("api", "--port", port)
    done = subprocess.run(command, check=False, env=environment({}), capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr == f"error: the API cannot listen on 127.0.0.1:{port}: Address already in use\n"


# ------------------------------------------------------------------------------------------ streams save


def run_save(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = streams("save", *arguments)
    return subprocess.run(
        command, check=False, env=environment({}), input=stdin, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.md").write_text("# Heading\nText")
    (tmp_path / "b.html").write_text("<title>Page</title><p>Hello")
    return tmp_path


def test_files_are_saved_and_saved_again_as_the_same_documents(api: Api, rig: Rig, folder: Path) -> None:
    owner = unique("ada")
    for _ in range(2):
        done = run_save(str(folder), f"{folder}/*.md", "--owner", owner, "--url", api.url)
        assert (done.returncode, done.stdout) == (0, "saved 2, skipped 0\n")
    rows = rig.rows("SELECT title, body, version FROM app.documents WHERE owner_id = %s ORDER BY title", owner)
    assert rows == [("Heading", "# Heading\nText", 2), ("Page", "Hello", 2)]


def test_bad_files_are_named_and_skipped(api: Api, folder: Path) -> None:
    (folder / "picture.png").write_bytes(b"\x89PNG\0")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    done = run_save(str(folder), str(folder / "missing"), "--url", api.url)
    assert (done.returncode, done.stdout) == (1, "saved 2, skipped 3\n")
    for reason in ("picture.png is binary", "latin.txt is not UTF-8", "missing does not exist"):
        assert reason in done.stderr
    none = run_save(str(folder / "picture.png"), "--url", api.url)
    assert (none.returncode, none.stdout) == (3, "saved 0, skipped 1\n")


def test_standard_input_is_saved_under_a_title(api: Api, rig: Rig) -> None:
    owner = unique("ada")
    done = run_save("-", "--owner", owner, "--title", "Piped", "--url", api.url, stdin="some text")
    assert (done.returncode, done.stdout) == (0, "saved 1, skipped 0\n")
    assert rig.rows("SELECT title, body FROM app.documents WHERE owner_id = %s", owner) == [("Piped", "some text")]
    assert run_save("-", "--title", "x" * 10_001, "--url", api.url, stdin="text").returncode == 3


def test_without_an_api_nothing_is_saved(folder: Path, stack: object) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = run_save(str(folder), "--url", url)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"error: the API at {url} does not answer:")
    assert run_save(str(folder), "--title", "one for two").returncode == 2
