"""`make demo` as a user types it: from nothing, interrupted, with a broken reader, and with the relay stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
from rich.console import Console

from streams.config import Settings, settings
from streams.database import connect
from streams.lab import services
from streams.lab.demo import OWNER, READERS, obstacle
from streams.ops.client import Client
from streams.stack import local
from streams.stack.process import LocalProcess
from tests.support import eventually, free_port_base

ROOT = Path(__file__).parents[2]
SAVES = 10


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Settings]:
    """The settings of a stack that is not there yet, in a path with a space."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMS_HOME", str(tmp_path / "a home"))
        patch.setenv("STREAMS_PORT_BASE", str(free_port_base()))
        settings.cache_clear()
        try:
            yield settings()
        finally:
            local.down(settings(), Console(stderr=True), wipe=True)
    settings.cache_clear()


def demo(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`make demo`, to its end."""
    command = ["make", "demo", f"DEMO={' '.join(words)}"]
    return subprocess.run(command, cwd=ROOT, env=_environment(env), capture_output=True, text=True, check=False)


def _environment(more: dict[str, str] | None = None) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return {**outside, **(more or {})}


def rows(config: Settings, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(config.database_url) as connection:
        return connection.execute(query.encode()).fetchall()


def processes_of(config: Settings) -> list[str]:
    """Whatever runs with this home: servers, the API, readers and their workers."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("STREAMS_HOME") == str(config.home) and process.pid != os.getpid():
                found.append(" ".join(process.cmdline())[:200])
        except psutil.Error:
            continue
    return found


@pytest.mark.timeout(600)  # a minute on an idle machine
def test_from_nothing_every_reader_is_done_for_every_document(home: Settings, tmp_path: Path) -> None:
    numbers_file = tmp_path / "numbers.json"
    done = demo("--exit", "--json", str(numbers_file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert processes_of(home) == []

    numbers = json.loads(numbers_file.read_text())
    assert list(numbers) == ["documents", "summaries", "scores", "indexed", "dead", "seconds"]
    assert numbers["documents"] == numbers["summaries"] == numbers["indexed"] >= 200
    assert numbers["scores"] == 5 * numbers["documents"]
    assert numbers["dead"] == 0
    for said in ("Some summaries", "The best document for each saved query", home.api_url):
        assert said in done.stdout

    local.up(home, Console(stderr=True))
    assert rows(home, "SELECT count(*) FROM app.documents") == [(numbers["documents"],)]
    assert rows(
        home, "SELECT reader, count(*) FROM readers.progress WHERE state = 'done' AND version = 1 GROUP BY 1 ORDER BY 1"
    ) == [(name, numbers["documents"]) for name in sorted(READERS)]
    wanted = "SELECT count(*) FROM app.documents JOIN app.saved_queries USING (owner_id)"
    assert rows(home, wanted) == rows(home, "SELECT count(*) FROM readers.scores") == [(numbers["scores"],)]


@pytest.mark.timeout(300)
def test_ctrl_c_while_the_servers_start_leaves_nothing_running(home: Settings) -> None:
    process = _interactive()
    eventually(lambda: LocalProcess("kafka", home.home).running(), 120, "Kafka is started")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everything in the foreground gets it
    assert process.wait(120) != 0
    assert processes_of(home) == []


@pytest.mark.timeout(400)
def test_saves_are_taken_while_the_relay_is_down_and_finish_when_it_is_back(stack: Settings) -> None:
    with services.api(stack), services.readers(stack, READERS), Client(stack.api_url) as client:
        _wait_for_jobs(stack, [_save(client, 0)[0]])
        LocalProcess("connect", stack.home).stop()
        saves = [_save(client, number) for number in range(SAVES)]
        assert sorted(milliseconds for _, milliseconds in saves)[SAVES // 2] < 200
        jobs = [job for job, _ in saves]

        still_pending_at = time.monotonic() + 5
        while time.monotonic() < still_pending_at:
            assert _states(stack, jobs) == {"pending"}
            time.sleep(0.5)

        local.up(stack, Console(stderr=True))
        _wait_for_jobs(stack, jobs)


@pytest.mark.timeout(400)
def test_it_stays_until_ctrl_c_and_leaves_a_stack_that_ran_before(stack: Settings, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as said:
        process = _interactive(said)
    eventually(lambda: "Ctrl-C stops" in log.read_text(), 300, "the demo is through")
    assert services.is_ready(stack)
    os.killpg(process.pid, signal.SIGINT)
    # make says 2 for an interrupted target, or ends by the signal itself.
    assert process.wait(60) in (0, 2, -signal.SIGINT), log.read_text()
    assert not services.is_ready(stack)
    assert LocalProcess(services.READERS, stack.home).running() is None
    assert {part["state"] for part in local.status(stack)["parts"]} == {"running"}


def test_a_reader_that_cannot_start_ends_it_with_one_sentence(stack: Settings, tmp_path: Path) -> None:
    numbers_file = tmp_path / "numbers.json"
    done = demo("--exit", "--json", str(numbers_file), env={"STREAMS_RANKER_MODEL": "nonsense"})
    assert done.returncode != 0
    sentence = next(line for line in done.stderr.splitlines() if line.startswith("error:"))
    assert "readers ended: " in sentence
    assert "STREAMS_RANKER_MODEL names the scorer 'nonsense'" in sentence
    assert "Traceback" not in done.stderr
    assert not numbers_file.exists()
    assert not services.is_ready(stack)
    assert LocalProcess(services.READERS, stack.home).running() is None


@pytest.mark.timeout(300)
def test_a_late_reader_is_named_with_what_is_in_its_way(stack: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        provider = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = demo("--exit", "--seconds-max", "1", env={"STREAMS_PROVIDER_URL": provider})
    assert done.returncode != 0
    sentence = next(line for line in done.stderr.splitlines() if line.startswith("error:"))
    # On a slow machine others are late too; the one furthest behind is named, by name if several are.
    late = re.search(r"1 s after the last save, of \d+ documents are done: (.*summarizer 0.*): the stack is", sentence)
    assert late, sentence
    assert f"the stack is well, {late[1].split()[0]} needs more time" in sentence
    assert not services.is_ready(stack)


def test_a_document_that_fails_again_and_again_is_what_is_in_the_way(
    stack: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.lab.demo.examine", lambda _config: [])  # whatever the doctor sees comes first
    with connect(stack) as connection:
        connection.execute(
            "INSERT INTO app.documents (document_id, owner_id, title, body, version, saved_at) "
            "VALUES ('stubborn', %s, '', '', 1, now())",
            [OWNER],
        )
        connection.execute(
            "INSERT INTO readers.progress (reader, document_id, version, state, pass, attempts, error) "
            "VALUES ('ranker', 'stubborn', 1, 'retrying', 1, 99, 'TimeoutError: no answer')"
        )
        said = obstacle(stack, connection, "ranker", LocalProcess("readers", tmp_path))
        connection.rollback()
    assert said == "ranker has failed 99 times at stubborn: TimeoutError: no answer"


def test_a_numbers_file_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = demo("--exit", "--json", str(tmp_path / "absent" / "numbers.json"))
    assert done.returncode != 0
    assert "--json: there is no folder" in done.stderr


def _save(client: Client, number: int) -> tuple[str, float]:
    """Save a document; its job and how many milliseconds the answer took."""
    began = time.monotonic()
    answer = client.save({"owner_id": "e2e", "title": "While the relay is down", "body": f"Save number {number}."})
    return str(answer["job_id"]), 1000 * (time.monotonic() - began)


def _states(config: Settings, jobs: list[str]) -> set[str]:
    """The states of these jobs at the three readers, as the API tells them."""
    answers = [httpx.get(f"{config.api_url}/jobs/{job}", timeout=10).json()["readers"] for job in jobs]
    return {answer[reader]["state"] for answer in answers for reader in READERS}


def _wait_for_jobs(config: Settings, jobs: list[str]) -> None:
    def all_done() -> bool:
        assert _states(config, jobs) == {"done"}
        return True

    eventually(all_done, 150, "every reader is done")


def _interactive(said: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["make", "demo"], cwd=ROOT, env=_environment(), stdout=said, stderr=said, start_new_session=True
    )
