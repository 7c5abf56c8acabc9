"""What `streams up` refuses before it starts a server, and what it tells about one."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest
from rich.console import Console

from streams.config import Settings
from streams.errors import ConfigError, StackError, Unavailable
from streams.stack import local, part
from streams.stack.files import exclusive, write_properties
from streams.stack.part import Part, bring_up, check_ports
from streams.stack.process import LocalProcess
from tests.support import eventually


def silent() -> Console:
    return Console(file=io.StringIO())


def make(home: Path, program: str, probe: object, port: int = 1) -> Part:
    return Part("kafka", home, (port,), lambda: None, lambda: [sys.executable, "-c", program], probe)  # type: ignore[arg-type]


def no_answer() -> None:
    raise Unavailable("no answer")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("db_host", "db.example"),
        ("db_port", 5432),
        ("bootstrap_servers", "kafka.example:9092"),
        ("connect_url", "http://connect.example"),
        ("registry_url", "http://registry.example"),
    ],
)
def test_refuses_to_set_up_other_servers(tmp_path: Path, name: str, value: object) -> None:
    config = Settings(home=tmp_path / "home", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"^STREAMS_{name.upper()} names another server"):
        local.up(config, silent())
    assert not config.home.exists()


@pytest.mark.parametrize("sign", [",", ":", "\\"])
def test_refuses_a_path_that_java_cannot_take(tmp_path: Path, sign: str) -> None:
    with pytest.raises(ConfigError, match="has a comma, colon or backslash"):
        local.up(Settings(home=tmp_path / f"a{sign}b"), silent())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"layout": 0}, "was made by another version: run `streams down --wipe` first"),
        ({"broker_profile": "parity"}, "was made with STREAMS_BROKER_PROFILE=parity: set it so"),
    ],
)
def test_refuses_a_home_that_was_made_otherwise(tmp_path: Path, made: dict[str, object], message: str) -> None:
    (tmp_path / "stack.json").write_text(json.dumps(made))
    with pytest.raises(StackError, match=message):
        local.up(Settings(home=tmp_path), silent())
    assert json.loads((tmp_path / "stack.json").read_text()) == made


def test_refuses_other_ports_while_a_server_runs(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text(json.dumps({"port_base": 20000}))
    LocalProcess("kafka", tmp_path).start([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with pytest.raises(StackError, match="runs with STREAMS_PORT_BASE=20000: set it so"):
            local.up(Settings(home=tmp_path, port_base=21000), silent())
    finally:
        assert local.down(Settings(home=tmp_path), silent()) == ["kafka"]


def test_a_home_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StackError, match=r"cannot be used: (Not a directory|File exists)\.$"):
        local.up(Settings(home=tmp_path / "file"), silent())


def test_a_port_in_use_names_port_part_and_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(StackError, match=rf"^Port {port} of kafka is in use by process {os.getpid()}: free it"):
            check_ports(make(tmp_path, "", no_answer, port))


def test_a_server_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"^kafka ended while starting: no such disk \(see `streams logs kafka`\)\.$"):
        bring_up(make(tmp_path, "print('no such disk')", no_answer), Event())


def test_a_server_that_never_answers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "READY_SECONDS_MAX", 0.3)
    server = make(tmp_path, "import time; time.sleep(60)", no_answer)
    try:
        with pytest.raises(StackError, match="kafka did not answer within 0 s: no answer"):
            bring_up(server, Event())
    finally:
        server.process.stop()


def test_one_that_runs_is_not_started_again(tmp_path: Path) -> None:
    server = make(tmp_path, "import time; time.sleep(60)", lambda: None)
    try:
        assert bring_up(server, Event()) is True
        pid = server.process.running()
        assert bring_up(server, Event()) is False
        assert server.process.running() == pid
    finally:
        server.process.stop()


def test_one_that_dies_as_it_is_found_is_started_again(tmp_path: Path) -> None:
    server = make(tmp_path, "import time; time.sleep(60)", lambda: None)
    bring_up(server, Event())
    first = server.process.running()
    assert first is not None

    def probe() -> None:
        """Killed a moment ago, it is still there at the first look."""
        if first.is_running():
            first.kill()
            no_answer()

    try:
        assert bring_up(replace(server, probe=probe), Event()) is True
        assert server.process.running() not in (None, first)
    finally:
        server.process.stop()


def test_status_tells_running_died_and_stopped(tmp_path: Path) -> None:
    config = Settings(home=tmp_path, port_base=20000)
    dead, alive = LocalProcess("postgres", tmp_path), LocalProcess("api", tmp_path)
    dead.start([sys.executable, "-c", "pass"])
    eventually(lambda: dead.running() is None)
    alive.start([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        answer = local.status(config)
    finally:
        alive.stop()
    assert [(each["name"], each["state"], each["port"]) for each in answer["parts"]] == [
        ("postgres", "died", 20000),
        ("kafka", "stopped", 20001),
        ("connect", "stopped", 20003),
        ("registry", "stopped", 20004),
        ("api", "running", 20005),
    ]


def test_up_first_stops_the_tools_of_one_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = LocalProcess("tool-initdb", tmp_path)
    tool.start([sys.executable, "-c", "import time; time.sleep(60)"])
    ran = tool.running()

    def stop_here(*_: object) -> None:
        raise StackError("far enough")

    monkeypatch.setattr(local, "_parts", stop_here)
    with pytest.raises(StackError, match="far enough"):
        local.up(Settings(home=tmp_path), silent())
    assert ran is not None
    assert not ran.is_running()


def test_down_where_nothing_was_ever_started_makes_nothing(tmp_path: Path) -> None:
    assert local.down(Settings(home=tmp_path / "home"), silent(), wipe=True) == []
    assert not (tmp_path / "home").exists()


def test_wipe_removes_what_the_stack_made_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "stack.json").write_text("{}")
    (tmp_path / "mine.txt").touch()
    local.down(Settings(home=tmp_path), silent(), wipe=True)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt", "lock"}


def test_the_second_of_two_waits_and_says_so(tmp_path: Path) -> None:
    out, order = io.StringIO(), []

    def second() -> None:
        with exclusive(tmp_path / "lock", Console(file=out)):
            order.append("second")

    with exclusive(tmp_path / "lock", silent()):
        waiting = Thread(target=second)
        waiting.start()
        eventually(lambda: "Waiting for another" in out.getvalue())
        order.append("first")
    waiting.join(timeout=10)
    assert order == ["first", "second"]


def test_properties_join_the_shipped_and_the_stacks_own(tmp_path: Path) -> None:
    write_properties(tmp_path / "run" / "a.properties", ["broker.properties"], {"log.dirs": "/with space"})
    lines = (tmp_path / "run" / "a.properties").read_text().splitlines()
    assert "auto.create.topics.enable=false" in lines
    assert lines[-1] == "log.dirs=/with space"
