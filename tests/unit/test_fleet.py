"""What is kept of workers over restarts, and that their reports never hold a worker up."""

from __future__ import annotations

import os
import time
from typing import Any

from streams.ops.fleet import Rate, Row, Tally, total
from streams.ops.reports import Lines, Reporter, understood
from streams.runtime.status import OUTCOMES, Blocked, Pause, Status


def status(**fields: Any) -> Status:
    counted = dict.fromkeys(OUTCOMES, 0) | fields.pop("records", {})
    plain: dict[str, Any] = {
        "reader": "ranker",
        "worker": "ranker-host-0",
        "in_flight_records": 0,
        "in_flight_bytes": 0,
        "running_handlers": 0,
        "waiting_lanes": 0,
        "partitions": (0, 1),
    }
    return Status(records=counted, **(plain | fields))


def row(tally: Tally | None = None, **fields: Any) -> Row:
    plain: dict[str, Any] = {
        "reader": "ranker",
        "silent_seconds": 0.0,
        "life": "runs",
        "restarts_in_seconds": 0.0,
        "restarts": 0,
        "rate_per_second": None,
    }
    return Row(tally=tally or Tally(), **(plain | fields))


# ------------------------------------------------------------------------------------------------- totals


def test_a_worker_that_starts_again_goes_on_counting() -> None:
    first = Tally().heard(status(records={"done": 5}), 1.0).heard(status(records={"done": 7, "dead": 1}), 2.0)
    assert (first.records["done"], first.records["dead"]) == (7, 1)
    again = first.over()
    assert (again.records["done"], again.status) == (7, None)
    third = again.heard(status(records={"done": 2}), 3.0).over().over().heard(status(records={"failed": 4}), 9.0)
    assert third.records == dict.fromkeys(OUTCOMES, 0) | {"done": 9, "dead": 1, "failed": 4}


def test_workers_are_summed() -> None:
    one, two = (row(Tally().heard(status(records={"done": n, "parked": 1}), 0.0)) for n in (3, 4))
    assert total([one, two, row()]) == dict.fromkeys(OUTCOMES, 0) | {"done": 7, "parked": 2}


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = Rate()
    assert rate.per_second() is None
    for second in range(31):
        rate.note(100 * min(second, 25), float(second))
    assert rate.per_second() == 50.0  # 500 records in the ten seconds from 20 to 30
    rate.note(2_500, 60.0)
    assert rate.per_second() == 0.0


def test_the_age_of_the_oldest_record_grows_while_its_worker_is_silent() -> None:
    blocked = Blocked(0, 7, "a", 1, 3.0, "its handler runs for 3 s")
    tally = Tally().heard(status(blocked=blocked), 0.0)
    assert row(tally, silent_seconds=40.0).blocked_seconds == 43.0
    assert row(Tally().heard(status(), 0.0), silent_seconds=40.0).blocked_seconds == 0.0


# ------------------------------------------------------------------------------------------------ the pipe


def test_a_status_comes_through_the_pipe_as_it_is() -> None:
    told = status(
        records={"done": 3},
        paused=Pause("sink", 'the sink does not answer: "down"\n'),
        blocked=Blocked(3, 1_042, "Schlüssel\n", None, 1.5, "waits"),
    )
    pipe = Lines()
    reporter = Reporter(os.dup(pipe.write_end))
    pipe.given()
    reporter.tell(told)
    reporter.tell("that was all")
    assert list(map(understood, pipe.read())) == [told, "that was all"]
    assert pipe.close() == []


def test_a_reader_that_is_slow_or_gone_never_holds_the_worker_up() -> None:
    pipe = Lines()
    reporter = Reporter(pipe.write_end)
    began = time.monotonic()
    for number in range(2_000):  # far more than a pipe holds
        reporter.tell(status(records={"done": number}))
    assert time.monotonic() - began < 10
    heard = [report.records["done"] for report in map(understood, pipe.read()) if isinstance(report, Status)]
    assert heard == list(range(len(heard)))  # whole lines, in order, the rest dropped
    assert 100 < len(heard) < 2_000
    reporter.tell("there is room again")  # the line that was cut goes on first
    reporter.tell("and now it is whole")
    assert understood(pipe.read()[-1]) == "and now it is whole"
    os.close(pipe._read_end)
    reporter.tell("into the void")
    os.close(pipe.write_end)


def test_a_report_of_another_version_is_left_out() -> None:
    assert understood(b'{"reader": "ranker"}') is None
    assert understood(b"no JSON") is None


def test_what_is_left_in_a_pipe_is_read_although_somebody_else_holds_it_open() -> None:
    pipe = Lines()
    os.write(pipe.write_end, b"one\ntw")
    assert pipe.read() == [b"one"]
    os.write(pipe.write_end, b"o\nthr")
    assert pipe.close() == [b"two", b"thr"]
    os.close(pipe.write_end)
