"""What `streams run` shows: the table of its workers, the log above it, and the lines that programs read."""

from __future__ import annotations

import io
import json
import logging
import re
import shlex
import sys
from collections.abc import Sequence

import pytest
from rich.console import Console

from streams.cli._view import Above, View, table
from streams.logs import ForPeople, Logfmt, Seldom, Who
from streams.ops.fleet import Row, Tally
from streams.runtime.status import Blocked, Pause, Status
from tests.unit.test_fleet import row, status

WIDE = 200
HELD = Blocked(3, 1_042, "invoice-17", 5, 42.0, "its handler runs for 42 s")


def told(said: Status, **fields: object) -> Row:
    return row(Tally().heard(said, 0.0), **fields)


def shown(*rows: Row, width: int = WIDE) -> list[dict[str, str]]:
    """The table's cells by head, as they stand on a screen that is wide enough for one line a worker."""
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(table(rows, width))
    head, *lines = console.export_text().splitlines()
    return [cells(line, head) for line in lines]


def cells(line: str, head: str) -> dict[str, str]:
    heads = [(m[0], *m.span()) for m in re.finditer(r"\S+( \S+)?", head)]
    found = [(m[0].strip(), *m.span()) for m in re.finditer(r"\S+( \S+)*", line)]
    by_head = dict.fromkeys((name for name, _, _ in heads), "")
    for text, begin, end in found:
        (name,) = [name for name, start, stop in heads if begin == start or end == stop]
        by_head[name] = text
    return by_head


def test_a_worker_at_work_is_one_line() -> None:
    said = status(records={"done": 12_345, "dead": 2, "parked": 7}, in_flight_records=1_000)
    assert shown(told(said, rate_per_second=1_234.56)) == [
        {
            "READER": "ranker",
            "WORKER": "host-0",
            "STATE": "reads",
            "RATE": "1,234.6/s",
            "IN FLIGHT": "1,000",
            "PARKED": "7",
            "DONE": "12,345",
            "DEAD": "2",
            "BLOCKED BY": "",
        }
    ]


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (row(), "starts"),
        (told(status(paused=Pause("setup", "its setup runs"))), "starts: its setup runs"),
        (told(status()), "reads"),
        (told(status(paused=Pause("full", "full: 10,000 records"))), "paused: full: 10,000 records"),
        (told(status(stopping=True)), "stops"),
        (told(status(), silent_seconds=75.0), "silent for 1 min 15 s"),
        (row(life="waits", restarts_in_seconds=3.6), "restarts in 4 s"),
        (told(status(stopping=True), life="over", silent_seconds=60.0), "stopped"),
    ],
)
def test_the_state_is_said_in_a_few_words(one: Row, state: str) -> None:
    assert shown(one)[0]["STATE"] == state


def test_what_blocks_is_named_with_its_age_once_it_is_old_enough() -> None:
    (found,) = shown(told(status(blocked=HELD), silent_seconds=1.0))
    assert found["BLOCKED BY"] == "3:1042 invoice-17 version 5, read 43 s ago: its handler runs for 42 s"
    young = Blocked(3, 1_042, "invoice-17", 5, 0.4, "its handler runs for 0 s")
    assert shown(told(status(blocked=young)))[0]["BLOCKED BY"] == ""
    undecoded = Blocked(0, 7, "key [red]", None, 9.0, "waits to be looked up")
    assert (
        shown(told(status(blocked=undecoded)))[0]["BLOCKED BY"]
        == "0:7 key [red], read 9.0 s ago: waits to be looked up"
    )


def test_on_a_narrow_screen_the_sentences_stand_below() -> None:
    said = status(blocked=HELD, paused=Pause("sink", "the sink does not answer: refused"), records={"done": 1_000_000})
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(table([told(said, rate_per_second=12_345.6), told(status())], 80))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines == [
        "READER  WORKER  STATE         RATE  IN FLIGHT  PARKED       DONE  DEAD",
        "ranker  host-0  paused  12,345.6/s          0       0  1,000,000     0",
        "ranker  host-0  reads            -          0       0          0     0",
        "ranker host-0: the sink does not answer: refused",
        "ranker host-0: blocked by 3:1042 invoice-17 version 5, read 42 s ago: its",
        "handler runs for 42 s",
    ]


# ------------------------------------------------------------------------------------------- the terminal


def test_lines_go_above_the_table_with_their_colours_and_ours_too() -> None:
    out = io.StringIO()
    view = View(Console(file=out, force_terminal=True, width=WIDE), takes_errors=True)
    view.show([told(status())])
    view.write(["\x1b[33mwarning\x1b[0m from a worker [red]"])
    handler = Above(view)
    handler.setFormatter(ForPeople(Who()))
    handler.emit(event("a worker ended", reader="ranker", worker="-"))
    view.close()
    text = out.getvalue()
    assert "\x1b[33mwarning\x1b[0m from a worker [red]" in text
    assert re.search(r"\d\d:\d\d:\d\dZ \x1b\[33mwarning\x1b\[0m ranker: a worker ended", text)
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")  # the cursor is seen


# ------------------------------------------------------------------------------------------------ the log


def event(message: str, *arguments: object, error: bool = False, **extra: str) -> logging.LogRecord:
    caught = None
    if error:
        try:
            raise ValueError('no "number"\n\x00')
        except ValueError:
            caught = sys.exc_info()
    made = logging.makeLogRecord(
        {"msg": message, "args": arguments, "levelname": "WARNING", "created": 1_796_000_000.25, "msecs": 250.0}
    )
    made.exc_info = caught
    made.__dict__.update(extra)
    return made


def fields(line: str) -> Sequence[str]:
    return re.findall(r'(\w+)=(?:"(?:[^"\\]|\\.)*"|\S+)', line)


def test_a_line_for_programs_has_always_the_same_fields() -> None:
    who = Who("ranker")
    assert Logfmt(who).format(event("%s: starts as %s", "ranker", "ranker-host-0")) == (
        'time=2026-11-30T00:53:20.250Z level=warning reader=ranker worker=- msg="ranker: starts as ranker-host-0"'
    )
    who.worker = "ranker-host-0"
    line = Logfmt(who).format(event("short"))
    assert line.endswith("reader=ranker worker=ranker-host-0 msg=short")
    about_another = Logfmt(Who()).format(event("it ended", reader="indexer", worker="indexer-host-1"))
    assert 'reader=indexer worker=indexer-host-1 msg="it ended"' in about_another
    assert fields(line) == fields(about_another) == ["time", "level", "reader", "worker", "msg"]


def test_what_a_library_repeats_is_told_seldom_and_what_we_say_always() -> None:
    seldom = Seldom(10.0)

    def passes(at: float, name: str, message: str, *arguments: object) -> bool:
        record = event(message, *arguments)
        record.name, record.created = name, at
        return seldom.filter(record)

    assert passes(0.0, "aiokafka.client", "cannot connect to %s", 1)
    assert not passes(9.9, "aiokafka.client", "cannot connect to %s", 2)
    assert passes(9.9, "aiokafka.client", "another line")
    assert passes(10.0, "aiokafka.client", "cannot connect to %s", 3)
    assert all(passes(n / 10, "streams.analytics", "this") for n in range(5))


def test_whatever_is_said_stays_one_line_that_can_be_read_back() -> None:
    text = 'a "quoted" = word\nand a second line \x1b[31m\\ ünï'
    line = Logfmt(Who()).format(event(text, error=True))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    assert fields(line)[-2:] == ["msg", "trace"]
    message = re.search(r' msg=("(?:[^"\\]|\\.)*") ', line)
    assert message is not None
    assert json.loads(message[1]) == text
    trace = json.loads(line.partition(" trace=")[2])
    assert trace.splitlines()[0] == "Traceback (most recent call last):"
    assert "ValueError: no" in trace
    assert shlex.split('msg="plain words"') == ["msg=plain words"]


def test_people_see_who_speaks_and_the_stack_trace_below() -> None:
    lines = ForPeople(Who("ranker", "ranker-host-0")).format(event("it failed", error=True)).splitlines()
    assert lines[0] == "00:53:20Z \x1b[33mwarning\x1b[0m ranker-host-0: it failed"
    assert lines[1] == "Traceback (most recent call last):"
    assert ForPeople(Who("ranker")).format(event("ranker: x")).endswith(" ranker: x")
    assert ForPeople(Who()).format(event("x")).endswith(" streams: x")
