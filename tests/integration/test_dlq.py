"""Dead letters on the real stack: redriven once, by several at a time, killed in the middle; and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from streams.contract import DocumentSaved, Increment, Reader, Reject, Retry, reader
from streams.ops.letters import Filters, redrive
from streams.topics import dead_letters
from tests.rig import ROOT, Rig, catches_up, unique
from tests.support import eventually

LETTERS = 1_000


class Patient:
    """A reader that rejects all until it is cured; counts the calls by document and version."""

    def __init__(self, name: str) -> None:
        self.group = unique(name)
        self.cured = Event()
        self.calls: Counter[tuple[str, int]] = Counter()
        self.reader: Reader = reader(group=self.group, retry=Retry(2, 0.01, 0.02))(self._handle)

    def _handle(self, doc: DocumentSaved) -> Increment:
        self.calls[doc.document_id, doc.version] += 1
        if not self.cured.is_set():
            raise Reject("not cured")
        return Increment("all", {"versions": 1})

    def filters(self) -> Filters:
        return Filters(reader=self.group)


def dlq(rig: Rig, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streams.cli.main", "dlq", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def states(rig: Rig, group: str) -> dict[str, int]:
    query = "SELECT state, count(*) FROM readers.dead_letters WHERE reader = %s GROUP BY 1"
    return dict(rig.rows(query, group))


def all_dead(rig: Rig, patient: Patient, count: int) -> None:
    eventually(lambda: states(rig, patient.group) == {"open": count}, 60)
    patient.calls.clear()


@pytest.mark.parametrize("how", ["two at once", "killed in the middle"])
def test_a_redrive_runs_each_once_for_the_reader_that_failed(rig: Rig, how: str) -> None:
    topic, patient, other = rig.topic(partitions=3), Patient("redriven"), Patient("other")
    names = [f"doc-{number}" for number in range(LETTERS)]
    rig.produce(topic, *({"key": name, "value": rig.event(name)} for name in names))
    with rig.worker(patient.reader, topic), rig.worker(other.reader, topic):
        all_dead(rig, patient, LETTERS)
        all_dead(rig, other, LETTERS)
        patient.cured.set()
        other.cured.set()
        moved = two_at_once(rig, patient) if how == "two at once" else killed_in_the_middle(rig, patient)
        assert moved == LETTERS
        eventually(lambda: states(rig, patient.group) == {"resolved": LETTERS}, 60)
    assert patient.calls == Counter({(name, 1): 1 for name in names})
    assert rig.output(patient.group) == {"all": {"versions": LETTERS}}
    assert other.calls == Counter()
    assert states(rig, other.group) == {"open": LETTERS}


def two_at_once(rig: Rig, patient: Patient) -> int:
    def once(_: int) -> int:
        with rig.connect() as connection:
            return redrive(connection, patient.filters(), None, None, lambda _: None)

    with ThreadPoolExecutor(2) as both:
        return sum(both.map(once, range(2)))


def killed_in_the_middle(rig: Rig, patient: Patient) -> int:
    """Gives how many the two runs moved, by what is no longer open."""
    command = [sys.executable, "-m", "streams.cli.main", "dlq", "redrive", "--reader", patient.group, "--yes"]
    with subprocess.Popen([*command, "--rate", "400"], cwd=ROOT, stderr=subprocess.DEVNULL) as first:
        eventually(lambda: states(rig, patient.group).get("open", 0) < LETTERS)
        first.kill()
    # What it had asked for last, Postgres still does.
    writers = (
        "SELECT count(*) FROM pg_locks WHERE relation = 'readers.dead_letters'::regclass AND starts_with(mode, 'Row')"
    )
    eventually(lambda: rig.rows(writers) == [(0,)])
    left = states(rig, patient.group)["open"]
    assert 0 < left < LETTERS
    second = dlq(rig, "redrive", "--reader", patient.group, "--yes")
    assert second.stdout.startswith(f"redrive: {left} of {left}: "), second.stderr
    return LETTERS


def test_a_redriven_letter_that_dies_again_is_open_again_and_sent_again(rig: Rig) -> None:
    patient, name = Patient("again"), unique("again")
    rig.start_at_end(patient.group)
    with rig.worker(patient.reader):
        rig.save(name)
        all_dead(rig, patient, 1)
        sent = "SELECT count(*) FROM app.outbox WHERE topic = %s"
        assert rig.rows(sent, dead_letters(patient.group).name) == [(1,)]
        assert dlq(rig, "redrive", "--reader", patient.group, "--yes").returncode == 0
        eventually(lambda: patient.calls == Counter({(name, 1): 1}))
        eventually(lambda: rig.rows(sent, dead_letters(patient.group).name) == [(2,)])
        assert states(rig, patient.group) == {"open": 1}


def test_a_redriven_letter_that_was_overtaken_says_so(rig: Rig) -> None:
    topic, patient = rig.topic(), Patient("overtaken")
    with rig.worker(patient.reader, topic):
        rig.put(topic, "d", 1)
        all_dead(rig, patient, 1)
        patient.cured.set()
        rig.put(topic, "d", 2)
        catches_up(rig, patient.group, {"d": 2})
        assert dlq(rig, "redrive", "--reader", patient.group, "--yes").returncode == 0
        eventually(lambda: states(rig, patient.group) == {"superseded": 1})
    assert patient.calls == Counter({("d", 2): 1})


def test_what_cannot_be_read_dies_again_as_it_did(rig: Rig) -> None:
    topic, patient = rig.topic(), Patient("unreadable")
    with rig.worker(patient.reader, topic):
        rig.produce(topic, {"key": "d", "value": b"\xff"})
        all_dead(rig, patient, 1)
        before = rig.dead_letters(patient.group, "died_at")
        assert dlq(rig, "redrive", "--reader", patient.group, "--yes").returncode == 0
        eventually(lambda: rig.dead_letters(patient.group, "died_at") > before)
        assert states(rig, patient.group) == {"open": 1}
    assert rig.rows("SELECT count(*) FROM readers.parked WHERE reader = %s", patient.group) == [(0,)]


def test_the_commands_say_what_they_would_do_and_did(rig: Rig) -> None:
    topic, patient = rig.topic(), Patient("listed")
    with rig.worker(patient.reader, topic):
        for name in ("a", "b", "c"):
            rig.put(topic, name)
        all_dead(rig, patient, 3)
    listed = json.loads(dlq(rig, "list", "--reader", patient.group, "--json").stdout)
    by_name = {one["document_id"]: one for one in listed}
    assert {name: (one["state"], one["error_class"]) for name, one in by_name.items()} == dict.fromkeys(
        "abc", ("open", "Reject")
    )
    assert (
        "2 of 3 shown: open dead letters of reader"
        in dlq(rig, "list", "--reader", patient.group, "--limit", "2").stdout
    )
    number = str(by_name["a"]["dead_letter_id"])
    shown = dlq(rig, "show", number).stdout
    assert "not cured" in shown
    assert "Traceback" in shown
    assert dlq(rig, "redrive", "--reader", patient.group).stdout.startswith("Would redrive 3 of 3: ")
    assert states(rig, patient.group) == {"open": 3}
    assert dlq(rig, "discard", number, "--yes").stdout.startswith("discard: 1 of 1: ")
    assert dlq(rig, "redrive", "--reader", patient.group, "--key", "b", "--yes").stdout.startswith("redrive: 1 of 1")
    assert states(rig, patient.group) == {"open": 1, "discarded": 1, "redriven": 1}
    assert dlq(rig, "redrive", "--reader", patient.group, "--error", "no such", "--yes").stdout.startswith("redrive: 0")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["redrive", "--yes"], "say which dead letters: numbers, a filter, or --all"),
        (["discard", "--all", "--key", "d"], "--all goes without other filters"),
        (["discard", "999999999", "--yes"], "none of these is an open dead letter: 999999999"),
        (["redrive", "99999999999999999999", "--yes"], "Postgres does not take that"),
        (["show", "999999999"], "there is no dead letter 999999999"),
        (["list", "--state", "lost"], "--state is one of open, "),
        (["list", "--since", "yesterday"], "yesterday is neither a time with its zone"),
        (["list", "--since", "2026-01-01T00:00"], "has no time zone: write 2026-01-01T00:00Z for UTC"),
        (["list", "--since", "99999999999d"], "99999999999d is too long a time"),
    ],
)
def test_what_cannot_be_meant_is_said(rig: Rig, words: list[str], sentence: str) -> None:
    done = dlq(rig, *words)
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr


def test_a_redrive_keeps_its_rate(rig: Rig) -> None:
    topic, patient = rig.topic(), Patient("paced")
    rig.produce(topic, *({"key": f"doc-{number}", "value": rig.event(f"doc-{number}")} for number in range(60)))
    with rig.worker(patient.reader, topic):
        all_dead(rig, patient, 60)
    began = time.monotonic()
    with rig.connect() as connection:
        assert redrive(connection, replace(patient.filters()), 60, 20.0, lambda _: None) == 60
    assert time.monotonic() - began >= 2.0
