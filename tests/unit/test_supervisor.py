"""Workers as processes of a few lines: counted over restarts, started again, stopped, and killed when they hang."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from streams.errors import ConfigError, ReaderError
from streams.ops import supervisor as module
from streams.ops.fleet import Row, total
from streams.ops.supervisor import Supervisor
from tests.support import eventually
from tests.unit.test_fleet import status

ROOT = str(Path(__file__).parents[2])
TELL = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from streams.ops.reports import Reporter
from tests.unit.test_fleet import status
tell = Reporter({report}).tell
"""
WAIT = "\nwhile True: time.sleep(0.1)\n"


class Screen:
    """Remembers what it was given."""

    takes_errors = True

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.rows: list[Row] = []

    def write(self, lines: Sequence[str]) -> None:
        self.lines += lines

    def show(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """The supervisor sets handlers for the whole process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let workers be processes that run this text."""

    def be(text: str) -> None:
        def command(group: str, report: int, *, terminal: bool) -> list[str]:
            return [sys.executable, "-c", TELL.format(root=ROOT, report=report) + text, group, str(terminal)]

        monkeypatch.setattr(module, "_command", command)

    return be


def run(supervisor: Supervisor, *steps: Callable[[], Any]) -> int:
    """Run it on this thread, as signals need it; the steps go on another, and then SIGTERM comes."""
    faults: list[BaseException] = []

    def act() -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            faults.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = Thread(target=act)
    thread.start()
    code = supervisor.run()
    thread.join()
    if faults:
        raise faults[0]
    return code


def test_totals_grow_over_the_deaths_of_workers(workers: Callable[[str], None]) -> None:
    workers("tell(status(records={'done': 5}))\nos.kill(os.getpid(), signal.SIGKILL)")
    supervisor = Supervisor(["ranker"], 2)
    seen: list[int] = []

    def watch() -> bool:
        rows = supervisor.look()
        seen.append(total(rows)["done"])
        return sum(row.restarts for row in rows) >= 6

    assert run(supervisor, lambda: eventually(watch, 60)) == 0
    assert seen == sorted(seen)
    assert {done % 5 for done in seen} == {0}
    rows = supervisor.look()
    # Every process that ended counts, and of those that were stopped in the end each counts or does not.
    assert total(rows)["done"] // 5 - sum(row.restarts for row in rows) in (0, 1, 2)


def test_a_worker_that_fails_by_itself_waits_longer_each_time(
    workers: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    workers("sys.exit(3)")
    supervisor = Supervisor(["ranker"], 1)
    assert run(supervisor, lambda: eventually(lambda: supervisor.look()[0].restarts == 3, 60)) == 0
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"ranker: a worker ended (exit code 3) and starts again in {wait} s" for wait in ("0.5", "1", "2")]
    assert {(record.reader, record.worker) for record in caplog.records} == {("ranker", "-")}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("code", "error"), [(2, ConfigError), (4, ReaderError)])
def test_a_hopeless_worker_ends_all_in_its_own_words(
    workers: Callable[[str], None], code: int, error: type[Exception]
) -> None:
    workers(f"if sys.argv[1] == 'bad': tell('it does not fit'); sys.exit({code}){WAIT}")
    supervisor = Supervisor(["good", "bad"], 1)
    with pytest.raises(error, match=r"^it does not fit$"):
        supervisor.run()
    assert [row.life for row in supervisor.look()] == ["over", "over"]


def test_a_second_signal_kills_workers_that_do_not_end(workers: Callable[[str], None]) -> None:
    workers(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntell(status()){WAIT}")
    supervisor = Supervisor(["ranker"], 1)

    def heard() -> bool:
        return supervisor.look()[0].tally.status is not None

    code = run(supervisor, lambda: eventually(heard, 60), lambda: os.kill(os.getpid(), signal.SIGINT))
    assert code == 130
    assert supervisor.look()[0].life == "over"


def test_a_worker_that_hangs_is_killed_in_the_end(
    workers: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.5)
    workers(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntell(status()){WAIT}")
    supervisor = Supervisor(["ranker"], 1)
    assert run(supervisor, lambda: eventually(lambda: supervisor.look()[0].tally.status is not None, 60)) == 0
    assert "does not end; it is killed" in caplog.text


def test_what_workers_print_goes_to_the_screen_and_what_they_tell_into_its_table(
    workers: Callable[[str], None],
) -> None:
    workers(
        "tell(status(records={'done': 3}, in_flight_records=8))\n"
        "print('printed', sys.argv[1:], flush=True); print('said', file=sys.stderr, flush=True)\n"
        f"print('no end', end='', flush=True){WAIT}"
    )
    screen = Screen()
    supervisor = Supervisor(["ranker"], 1, screen)
    code = run(
        supervisor,
        lambda: eventually(lambda: len(screen.lines) == 2, 60),
        lambda: eventually(lambda: screen.rows and screen.rows[0].tally.status, 60),
    )
    assert code == 0
    assert screen.lines == ["printed ['ranker', 'True']", "said", "no end"]
    (last,) = screen.rows
    assert (last.life, last.tally.records["done"], last.tally.status) == (
        "over",
        3,
        status(records={"done": 3}, in_flight_records=8),
    )
