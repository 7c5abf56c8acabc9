"""The local stack as its users see it: real servers in a home of their own, killed, healed, refused, taken down."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError

from streams.stack.local import NAMES
from tests.support import eventually, free_port_base


class Stack:
    """A stack that is driven by the command line alone."""

    def __init__(self, home: Path, **env: str) -> None:
        self.home = home
        self.base = free_port_base()
        self.env = {**os.environ, "STREAMS_HOME": str(home), "STREAMS_PORT_BASE": str(self.base), **env}

    def begin(self, *words: str, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "streams.cli.main", *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env={**self.env, **env}, **pipes)

    def run(self, *words: str, **env: str) -> tuple[int, str, str]:
        """Exit code, output, errors."""
        with self.begin(*words, **env) as process:
            out, errors = process.communicate()
        return process.returncode, out, errors

    def up(self) -> str:
        code, _, errors = self.run("up")
        assert code == 0, errors
        return errors.splitlines()[-1]

    def status(self) -> dict[str, Any]:
        code, out, errors = self.run("status", "--json")
        assert code == 0, errors
        return json.loads(out)

    def pids(self) -> dict[str, int]:
        return {part["name"]: part["pid"] for part in self.status()["parts"]}

    def processes(self) -> list[psutil.Process]:
        """All that the stack started, known by its home in their command line or, for Postgres's own, their folder."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return str(self.home) in " ".join(process.cmdline()) or str(self.home) in process.cwd()
        except psutil.Error:
            return False


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="streams test ") as folder:
        own = Stack(Path(folder) / "a home")
        try:
            own.up()
            yield own
        finally:
            own.run("down", "--wipe")
            assert own.processes() == []


def test_status_has_every_part_and_address(stack: Stack) -> None:
    answer = stack.status()
    assert list(answer) == [
        "parts",
        *("database_url", "bootstrap_servers", "connect_url", "registry_url", "api_url"),
    ]
    assert [part["name"] for part in answer["parts"]] == list(NAMES)
    for part in answer["parts"]:
        assert set(part) == {"name", "state", "pid", "port", "memory_bytes"}
        assert part["state"] == "running"
        assert psutil.pid_exists(part["pid"])
        assert part["memory_bytes"] > 10_000_000
        socket.create_connection(("127.0.0.1", part["port"]), timeout=5).close()
    assert sum(part["memory_bytes"] for part in answer["parts"]) < 1_200_000_000


def test_the_database_is_postgres_18_with_pgvector_logical_and_durable(stack: Stack) -> None:
    with psycopg.connect(stack.status()["database_url"]) as session:
        settings = dict(session.execute("SELECT name, setting FROM pg_settings").fetchall())
        extensions = session.execute("SELECT name FROM pg_available_extensions").fetchall()
    assert settings["server_version_num"].startswith("18")
    assert ("vector",) in extensions
    assert settings["wal_level"] == "logical"
    assert int(settings["max_slot_wal_keep_size"]) > 0
    assert (settings["fsync"], settings["synchronous_commit"]) == ("on", "on")


def test_the_database_wants_the_password(stack: Stack) -> None:
    url = stack.status()["database_url"].replace("streams:streams@", "streams:wrong@")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url)


def test_up_again_starts_nothing(stack: Stack) -> None:
    before = stack.pids()
    assert stack.up() == "Everything runs already."
    assert stack.pids() == before


@pytest.mark.parametrize("name", NAMES)
def test_up_heals_a_server_that_was_killed_and_leaves_the_others(stack: Stack, name: str) -> None:
    before = stack.pids()
    os.kill(before[name], signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(before[name]))
    assert {part["name"]: part["state"] for part in stack.status()["parts"]}[name] == "died"
    assert stack.up() == f"Started {name}."
    after = stack.pids()
    assert after[name] != before[name]
    assert {**after, name: 0} == {**before, name: 0}


@pytest.mark.parametrize("name", ["postgres", "kafka"])
def test_up_wakes_a_server_that_was_frozen(stack: Stack, name: str) -> None:
    before = stack.pids()
    os.kill(before[name], signal.SIGSTOP)
    assert stack.up() == "Everything runs already."
    assert stack.pids() == before
    assert psutil.Process(before[name]).status() != psutil.STATUS_STOPPED


def test_up_heals_all_killed_at_once(stack: Stack) -> None:
    for pid in stack.pids().values():
        os.kill(pid, signal.SIGKILL)
    assert stack.up() == "Started postgres, kafka, connect, registry."


def test_a_stale_pid_file_neither_stops_the_start_nor_kills_a_stranger(stack: Stack) -> None:
    pid = stack.pids()["registry"]
    note = stack.home / "run" / "registry.json"
    os.kill(pid, signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        try:
            note.write_text(json.dumps({**json.loads(note.read_text()), "pid": stranger.pid}))
            assert stack.up() == "Started registry."
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_two_at_once_both_succeed_and_start_each_server_once(stack: Stack) -> None:
    os.kill(stack.pids()["connect"], signal.SIGKILL)
    with stack.begin("up") as first, stack.begin("up") as second:
        said = sorted(process.communicate()[1].splitlines()[-1] for process in (first, second))
    assert (first.returncode, second.returncode) == (0, 0)
    assert said == ["Everything runs already.", "Started connect."]


def test_a_home_of_another_profile_or_with_other_ports_is_refused(stack: Stack) -> None:
    before = stack.pids()
    code, _, errors = stack.run("up", STREAMS_BROKER_PROFILE="parity")
    assert (code, len(errors.splitlines())) == (3, 1)
    assert "was made with STREAMS_BROKER_PROFILE=full" in errors
    code, _, errors = stack.run("up", STREAMS_PORT_BASE=str(free_port_base()))
    assert (code, len(errors.splitlines())) == (3, 1)
    assert f"runs with STREAMS_PORT_BASE={stack.base}" in errors
    assert stack.pids() == before


def test_another_password_than_the_homes_is_refused(stack: Stack) -> None:
    code, _, errors = stack.run("up", STREAMS_DB_PASSWORD="wrong")
    assert code == 3
    assert errors.splitlines()[-1].startswith("error: The Postgres in ")
    assert "has another user or password" in errors


def test_logs_prints_the_part_and_names_those_there_are(stack: Stack) -> None:
    code, out, _ = stack.run("logs", "postgres")
    assert code == 0
    assert "ready to accept connections" in out
    code, _, errors = stack.run("logs", "zookeeper")
    assert code == 2
    assert "There is no part zookeeper: the parts are connect, kafka, postgres, registry" in errors


def test_down_leaves_no_process_and_up_finds_the_data_again(stack: Stack) -> None:
    with psycopg.connect(stack.status()["database_url"]) as session:
        session.execute("CREATE TABLE kept AS SELECT 1 AS one")
    assert len(stack.processes()) > len(NAMES)
    code, _, errors = stack.run("down")
    assert (code, stack.processes()) == (0, [])
    assert errors.splitlines() == ["Stopped connect, registry, kafka, postgres."]
    assert {part["state"] for part in stack.status()["parts"]} == {"stopped"}
    stack.up()
    with psycopg.connect(stack.status()["database_url"]) as session:
        assert session.execute("SELECT one FROM kept").fetchone() == (1,)


@pytest.fixture
def fresh() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="streams-test-") as folder:
        own = Stack(Path(folder) / "home", STREAMS_BROKER_PROFILE="parity")
        yield own
        own.run("down", "--wipe")
        assert own.processes() == []


def test_a_port_in_use_is_named_and_nothing_is_started(fresh: Stack) -> None:
    with socket.create_server(("127.0.0.1", fresh.base + 2)):
        code, _, errors = fresh.run("up")
    assert code == 3
    assert errors.startswith(f"error: Port {fresh.base + 2} of kafka is in use by process {os.getpid()}")
    assert fresh.processes() == []


def test_a_first_start_that_was_killed_heals_with_the_parity_profile(fresh: Stack) -> None:
    """Killed while both data folders are being made; then the broker offers no more than Redpanda does."""
    with fresh.begin("up") as first:
        eventually(lambda: (fresh.home / "postgres.new").exists() or (fresh.home / "kafka.new").exists(), 60)
        first.kill()
    fresh.up()
    assert {part["state"] for part in fresh.status()["parts"]} == {"running"}
    assert not list(fresh.home.glob("*.new"))
    assert "API version not supported" in _new_protocol_error(fresh).str()
    code, _, errors = fresh.run("run", "summarizer", STREAMS_GROUP_PROTOCOL="consumer")
    assert code == 2
    assert errors.splitlines()[-1] == (
        "error: the broker does not know the group protocol that STREAMS_GROUP_PROTOCOL=consumer asks for (KIP-848): "
        "set it to classic"
    )


def _new_protocol_error(stack: Stack) -> KafkaError:
    """The error that a consumer of the new group protocol gets."""
    seen: list[KafkaError] = []
    consumer = Consumer(
        {
            "bootstrap.servers": stack.status()["bootstrap_servers"],
            "group.id": "new-protocol",
            "group.protocol": "consumer",
            "error_cb": seen.append,
        }
    )
    try:
        consumer.subscribe(["documents-saved"])

        def error() -> KafkaError | None:
            message = consumer.poll(0.1)
            return message.error() if message else (seen[0] if seen else None)

        return eventually(error, 20, "an error for a consumer of the new protocol")
    finally:
        consumer.close()
