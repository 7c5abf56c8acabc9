"""The supervisor of one local process, on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streams.stack import process as module
from streams.stack.process import LocalProcess
from tests.support import eventually

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalProcess]:
    process = LocalProcess("sleeper", tmp_path / "a home")
    yield process
    process.stop(seconds=0)


def run(process: LocalProcess, program: str) -> int:
    process.start([sys.executable, "-c", program])
    return json.loads(process.pid_file.read_text())["pid"]


def test_starts_detached_and_stops(local: LocalProcess) -> None:
    pid = run(local, "import time; time.sleep(60)")
    assert (running := local.running()) is not None
    assert running.pid == pid
    assert os.getsid(pid) == pid  # a closed terminal does not take it along
    assert local.memory_bytes() > 0
    assert local.stop() is True
    assert not psutil.pid_exists(pid)
    assert not local.pid_file.exists()
    assert local.stop() is False
    assert local.memory_bytes() == 0


def test_gets_the_environment_and_writes_the_log(local: LocalProcess) -> None:
    local.start([sys.executable, "-c", "import os, sys; print(os.environ['WHAT'], file=sys.stderr)"], {"WHAT": "this"})
    eventually(lambda: local.running() is None)
    assert local.log_file.read_text() == "this\n"


def test_one_that_ended_is_not_running_even_as_our_zombie(local: LocalProcess) -> None:
    run(local, "pass")
    eventually(lambda: local.running() is None)


def test_kills_a_stubborn_one_with_its_children(local: LocalProcess) -> None:
    pid = run(local, f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); {STUBBORN}")
    eventually(lambda: local.log_file.read_text() == "ready\nready\n")
    (child,) = psutil.Process(pid).children()
    local.stop(seconds=0.2)
    assert not psutil.pid_exists(pid)
    eventually(lambda: not child.is_running(), 10, "whoever adopted it has reaped it")


def test_stops_with_the_signal_it_was_started_with(local: LocalProcess) -> None:
    program = (
        "import time; print('ready', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('interrupted')"
    )
    local.start([sys.executable, "-c", program], stop_signal=signal.SIGINT)
    eventually(lambda: "ready" in local.log_file.read_text())
    local.stop()
    assert local.log_file.read_text() == "ready\ninterrupted\n"


def test_a_pid_that_another_process_has_now_is_neither_ours_nor_stopped(local: LocalProcess) -> None:
    pid = run(local, "import time; time.sleep(60)")
    note = json.loads(local.pid_file.read_text())
    local.pid_file.write_text(json.dumps({**note, "started": note["started"] - 3600}))
    assert local.running() is None
    assert local.stop() is False
    assert psutil.Process(pid).is_running()
    psutil.Process(pid).kill()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"pid": 4194305, "started": 1.0}'])
def test_a_broken_or_stale_pid_file_means_not_running(local: LocalProcess, content: str) -> None:
    local.pid_file.parent.mkdir(parents=True)
    local.pid_file.write_text(content)
    assert local.running() is None
    assert local.stop() is False
    assert not local.pid_file.exists()


@pytest.mark.parametrize(("program", "outcome"), [("print(1)", (True, "1\n")), ("print(2); exit(9)", (False, "2\n"))])
def test_a_tool_runs_to_its_end(local: LocalProcess, program: str, outcome: tuple[bool, str]) -> None:
    assert local.run([sys.executable, "-c", program], seconds=60) == outcome
    assert not local.pid_file.exists()


def test_a_tool_that_takes_too_long_is_stopped(local: LocalProcess) -> None:
    assert local.run([sys.executable, "-c", STUBBORN], seconds=0.1)[0] is False
    assert local.running() is None


def test_last_words_are_of_this_run_and_no_stack_trace(local: LocalProcess) -> None:
    run(local, "print('an old fault')")
    eventually(lambda: local.running() is None)
    run(local, "print('the cause\\n\\tat some.Class\\n')")
    eventually(lambda: local.running() is None)
    assert local.last_words() == "the cause"
    run(local, "pass")
    eventually(lambda: local.running() is None)
    assert local.last_words() == ""


def test_a_long_log_is_set_aside(local: LocalProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOG_BYTES_MAX", 3)
    for word in ("first", "second"):
        run(local, f"print('{word}')")
        eventually(lambda: local.running() is None)
    assert local.log_file.read_text() == "second\n"
    assert local.log_file.with_suffix(".log.1").read_text() == "first\n"


KILLED_BEFORE_THE_NOTE = """
import os, pathlib, signal, sys
from streams.stack import process
def killed(_path, note):
    print(note["pid"], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
process.write_note = killed
process.LocalProcess("orphan", pathlib.Path(sys.argv[1])).start(["touch", sys.argv[2]])
"""


def test_nothing_is_begun_that_nobody_could_find(tmp_path: Path) -> None:
    made = tmp_path / "made"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_THE_NOTE, str(tmp_path), str(made)], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    eventually(lambda: not psutil.pid_exists(int(killed.stdout)))
    assert not made.exists()


UNREAPED = """
import subprocess, sys, time
from pathlib import Path
from streams.stack.process import LocalProcess
LocalProcess("child", Path(sys.argv[1])).start(["sleep", "60"])
print("started", flush=True)
time.sleep(60)
"""


def test_one_whose_parent_does_not_reap_it_is_stopped_without_waiting_for_that(tmp_path: Path) -> None:
    child = LocalProcess("child", tmp_path)
    with subprocess.Popen([sys.executable, "-c", UNREAPED, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == b"started\n"
        process = child.running()
        assert process is not None
        began = time.monotonic()
        assert child.stop(seconds=60)
        assert time.monotonic() - began < 30
        assert process.status() == psutil.STATUS_ZOMBIE
        parent.kill()
