"""A handler's process: what its death, its signals, its worker's death and its odd results come to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from streams import DocumentSaved, Upsert, reader
from streams.contract import Reader
from streams.errors import ReaderError
from streams.runtime.children import DEATHS_MAX, Child
from streams.runtime.executors import executor_for
from streams.runtime.handling import Attempt
from tests.executing import attempts, children, document, executing, failure, lane, row
from tests.readers_for_tests import kinds
from tests.support import eventually


@contextmanager
def started(declared: Reader) -> Iterator[Child]:
    child = Child(declared)
    child.start()
    try:
        yield child
    finally:
        child.stop()


def attempt(child: Child, doc: DocumentSaved, timeout_seconds: float | None = None) -> Attempt:
    (one,) = child.attempt([(doc, None)], timeout_seconds)
    return one


def written(path: Path) -> int:
    """The process id in a file that a handler writes."""
    return int(eventually(lambda: path.exists() and path.read_text(), 30))


def is_gone(pid: int) -> bool:
    """Whether the process ended; one that nobody waits for is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# -------------------------------------------------------------------------------------------------- deaths


@pytest.mark.parametrize(("title", "how"), [("exit", "exit code 5"), ("crash", "signal SIGSEGV")])
def test_three_deaths_in_a_row_are_the_records_own(title: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    with executing(kinds.in_process) as executor:
        docs = [document(str(number)) for number in range(20)]
        docs[7] = document("7", title=title, body="5")
        ran = attempts(executor, *docs)
    assert failure(ran.pop(7)) == ("WorkerDied", f"the handler's process ended with {how}, 3 time(s) in a row", True)
    assert all(row(one)["version"] == 1 for one in ran)
    assert caplog.text.count(f"its process ended over 7 version 1: {how}") == DEATHS_MAX == 3


def test_a_crash_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    with started(kinds.in_process) as child:
        attempt(child, document(title="crash"))
    assert capfd.readouterr().err.count("Fatal Python error: Segmentation fault") == DEATHS_MAX


def test_a_death_that_does_not_come_again_costs_nothing(tmp_path: Path) -> None:
    with started(kinds.in_process) as child:
        before = row(attempt(child, document()))["pid"]
        after = row(attempt(child, document(title="exit once", body=str(tmp_path / "marker"))))["pid"]
        assert before != after
        assert row(attempt(child, document()))["pid"] == after


def test_deaths_are_counted_by_record(tmp_path: Path) -> None:
    with started(kinds.in_process) as child:
        for number in range(DEATHS_MAX + 1):
            assert row(attempt(child, document(title="exit once", body=str(tmp_path / str(number)))))


def test_a_child_killed_while_it_waits_is_started_again() -> None:
    with started(kinds.in_process) as child:
        os.kill(row(attempt(child, document()))["pid"], signal.SIGKILL)
        assert row(attempt(child, document()))


def test_a_batch_whose_process_dies_is_tried_one_by_one() -> None:
    docs = [document(name, title="exit" if name == "b" else "", body="3") for name in "abcd"]
    with started(kinds.in_batches_in_process) as child:
        ran = child.attempt([(doc, None) for doc in docs], None)
    assert failure(ran.pop(1)) == (
        "WorkerDied",
        "the handler's process ended with exit code 3, 3 time(s) in a row",
        True,
    )
    assert [row(one)["together"] for one in ran] == [1, 1, 1]


def test_a_batch_whose_process_takes_too_long_is_tried_one_by_one() -> None:
    docs = [document(name, title="sleep" if name == "b" else "", body="60") for name in "abcd"]
    with started(kinds.in_batches_in_process) as child:
        ran = child.attempt([(doc, None) for doc in docs], 0.5)
    assert failure(ran.pop(1)) == ("TimeoutError", "the handler took longer than 0.5 s, its timeout_seconds", False)
    assert [row(one)["together"] for one in ran] == [1, 1, 1]


def test_a_death_is_seen_though_a_process_that_it_forked_holds_the_pipe(tmp_path: Path) -> None:
    with started(kinds.in_process) as child:
        ended = attempt(child, document(title="fork and die", body=str(tmp_path / "pid")))
    assert failure(ended)[:2] == ("WorkerDied", "the handler's process ended with exit code 9, 3 time(s) in a row")
    eventually(lambda: is_gone(written(tmp_path / "pid")))  # it goes with the child


def test_what_a_handler_started_ends_with_it(tmp_path: Path) -> None:
    with started(kinds.in_process) as child:
        slow = attempt(child, document(title="start another", body=str(tmp_path / "pid")), 2)
    assert failure(slow)[0] == "TimeoutError"
    eventually(lambda: is_gone(written(tmp_path / "pid")))


# ------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("title", "message"),
    [
        ("give a lock", "the handler's result does not pickle: TypeError: cannot pickle '_thread.lock' object"),
        ("give a stranger", "the handler's result does not unpickle: LookupError: not here"),
    ],
)
def test_a_result_that_cannot_be_handed_over_fails_alone(title: str, message: str) -> None:
    docs = [document(name, title=title if name == "b" else "") for name in "abcd"]
    with started(kinds.in_batches_in_process) as child:
        ran = child.attempt([(doc, None) for doc in docs], None)
    assert failure(ran.pop(1)) == ("Reject", message, True)
    assert [row(one)["together"] for one in ran] == [4, 4, 4]


def test_large_documents_and_rows_pass() -> None:
    body = "ö" * 2_000_000
    with started(kinds.echoing) as child:
        assert row(attempt(child, document(body=body))) == {"body": body * 4}


def test_a_coroutine_runs_on_a_loop_that_goes_on_between_its_calls() -> None:
    with started(kinds.ticking) as child:
        first = row(attempt(child, document()))["ticks"]
        eventually(lambda: row(attempt(child, document()))["ticks"] >= first + 20)


def test_a_plain_handler_may_run_a_loop_of_its_own() -> None:
    with started(kinds.in_process) as child:
        assert row(attempt(child, document(title="asyncio.run")))


@pytest.mark.parametrize("declared", [kinds.in_thread, kinds.hasty_async], ids=["thread", "async"])
def test_a_child_runs_readers_of_the_other_kinds_too(declared: Reader) -> None:
    with started(declared) as child:
        assert row(attempt(child, document()))["pid"] != os.getpid()
        assert failure(attempt(child, document(title="exit", body="1")))[0] == "WorkerDied"


# ----------------------------------------------------------------------------------------- start and setup


def outside(doc: DocumentSaved) -> Upsert:
    return Upsert("k", {})


renamed = reader(group="renamed", kind="process")(outside)


def test_a_reader_that_has_no_name_of_its_own_is_refused_at_start() -> None:
    @reader(group="local", kind="process")
    def local(doc: DocumentSaved) -> Upsert:
        return Upsert("k", {})

    for declared, name in ((local, "<locals>.local"), (renamed, "outside")):
        with pytest.raises(ReaderError, match=rf"^reader '{declared.group}': a process cannot import it as \S*{name} "):
            executor_for(declared).start()


@pytest.fixture
def setup_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says what `setup` does in a new process."""
    told = tmp_path / "setup"
    told.write_text("")
    monkeypatch.setenv("TEST_SETUP", str(told))
    return told


def test_setup_runs_in_each_process(setup_does: Path) -> None:
    with executing(kinds.set_up) as executor:
        assert len({row(one)["pid"] for one in attempts(executor, *(document(str(n)) for n in range(20)))}) <= 2


@pytest.mark.parametrize(
    ("told", "error", "message"),
    [
        ("raise", ConnectionRefusedError, "the model's host is down"),
        ("unportable", ReaderError, "its process does not start: Unportable: no way"),
        ("exit 3", ReaderError, "reader '.*': its process ended at its start: exit code 3"),
    ],
)
def test_what_setup_raises_comes_out_of_start(
    setup_does: Path, told: str, error: type[Exception], message: str
) -> None:
    setup_does.write_text(told)
    with pytest.raises(error, match=message) as caught:
        executor_for(kinds.set_up).start()
    if told == "raise":
        assert "in make_trouble" in caught.value.__notes__[0]
    assert not children()


@pytest.mark.parametrize("told", ["raise", "exit 3"])
def test_setup_that_fails_when_it_starts_again_fails_the_record_for_now(setup_does: Path, told: str) -> None:
    with started(kinds.set_up) as child:
        setup_does.write_text(told)
        error_class, _, permanent = failure(attempt(child, document(title="exit", body="1")))
        assert (error_class, permanent) == ("ConnectionRefusedError" if told == "raise" else "ReaderError", False)
        setup_does.write_text("")
        assert row(attempt(child, document()))


# ------------------------------------------------------------------------------------------- signals, ends


def test_signals_that_ask_the_worker_to_drain_do_not_end_a_child() -> None:
    with started(kinds.in_process) as child:
        pid = row(attempt(child, document()))["pid"]
        assert os.getpgid(pid) == pid  # so that Ctrl-C in the terminal does not reach it at all
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        assert row(attempt(child, document()))["pid"] == pid


def test_the_system_short_of_memory_takes_the_child_first() -> None:
    with started(kinds.in_process) as child:
        pid = row(attempt(child, document()))["pid"]
        score = Path(f"/proc/{pid}/oom_score_adj")
        assert not score.exists() or score.read_text() == "1000\n"  # not every system has it


def test_a_stopped_child_ends_in_the_middle_of_a_handler_and_stays_ended(tmp_path: Path) -> None:
    with executing(kinds.in_process) as executor:
        executor.submit([lane(document(title="note and sleep", body=str(tmp_path / "pid")))])
        pid = written(tmp_path / "pid")
    assert is_gone(pid)
    assert not children()


def test_what_a_child_prints_and_logs_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    with started(kinds.in_process) as child:
        attempt(child, document(title="print", body="a line"))
        attempt(child, document(title="log", body="a warning"))
    said, logged = capfd.readouterr()
    assert said == "a line\n"
    assert logged.endswith('msg="a warning"\n')


WORKER = """
import sys, time
from threading import Thread
from tests.executing import document, executing, lane
from tests.readers_for_tests import kinds

with executing(kinds.in_process) as executor:
    executor.submit([lane(document(str(n), title=sys.argv[1], body=sys.argv[2 + n])) for n in range(2)])
    time.sleep(600)
"""


@pytest.mark.parametrize("title", ["note and sleep", "note and hold"])
def test_no_child_outlives_a_worker_that_is_killed(tmp_path: Path, title: str) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    command = [sys.executable, "-c", WORKER, title, *map(str, paths)]
    worker = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        busy = [written(path) for path in paths]
        family = [one.pid for one in psutil.Process(worker.pid).children()]
        assert len(family) == 2
        assert set(busy) <= set(family)
        worker.kill()
        worker.wait(10)
        eventually(lambda: all(map(is_gone, family)), 2)
    finally:
        worker.kill()
        worker.wait()
