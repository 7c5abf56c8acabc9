"""`streams lab chaos`, smaller: with the guard nothing is lost or doubled, without it something is; nothing stays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streams.cli.lab import plot
from streams.kafka.admin import GroupsAdmin
from streams.kafka.topics_admin import TopicsAdmin
from streams.lab.chaos import POISON_DOCUMENTS, Course, forget
from streams.lab.chaos_reader import GROUP, OWNER
from streams.stack.process import LocalProcess
from streams.topics import dead_letters
from tests.rig import Rig
from tests.support import eventually

DOCUMENTS = 300
GOOD = DOCUMENTS - POISON_DOCUMENTS
COMMAND = [sys.executable, "-m", "streams.cli.main", "lab", "chaos", "--documents", str(DOCUMENTS)]
COMMAND += ["--kill-every", "1"]  # less often than by default, since the machine has other tests to run


def chaos(folder: Path, *options: str) -> tuple[dict[str, float], subprocess.CompletedProcess[str]]:
    """What it wrote as JSON, and how it ended."""
    numbers = folder / "numbers.json"
    done = subprocess.run([*COMMAND, "--json", str(numbers), *options], capture_output=True, text=True, check=False)
    assert numbers.exists(), done.stdout + done.stderr
    return json.loads(numbers.read_text()), done


@pytest.fixture(autouse=True)
def show_what_the_workers_said(rig: Rig) -> Iterator[None]:
    """Beside a failure."""
    yield
    log = LocalProcess(GROUP, rig.config.home.resolve()).log_file
    print("\n".join(log.read_text().splitlines()[-200:]) if log.exists() else "nothing was said")
    print(GroupsAdmin(rig.config).describe([GROUP]))


def workers(rig: Rig) -> list[psutil.Process]:
    """Those of this stack, with the process that forks them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.NoSuchProcess):
            if "forkserver" in str(process.info["cmdline"]) and str(rig.config.port_base) in str(process.environ()):
                found.append(process)
    return found


def left_behind(rig: Rig) -> dict[str, object]:
    """All that a run could have left."""
    count = {
        table: rig.rows(f"SELECT count(*) FROM readers.{table} WHERE reader = %s", GROUP)[0][0]
        for table in ("progress", "output", "parked", "dead_letters", "owners", "registered")
    }
    count["documents"] = rig.rows("SELECT count(*) FROM app.documents WHERE owner_id = %s", OWNER)[0][0]
    for table, column in {"jobs": "document_id", "outbox": "message_key", "idempotency_keys": "key"}.items():
        query = f"SELECT count(*) FROM app.{table} WHERE starts_with({column}, %s)"
        count[table] = rig.rows(query, OWNER)[0][0]
    letters = dead_letters(GROUP).name
    count["topics"] = rig.rows("SELECT count(*) FROM app.topics WHERE name = %s", letters)[0][0]
    topics, groups = TopicsAdmin(rig.config).partitions(), GroupsAdmin(rig.config).names()
    count["processes"] = len(workers(rig))
    return {name: found for name, found in count.items() if found} | {
        name: True for name, there in {"topic": letters in topics, "group": GROUP in groups}.items() if there
    }


@pytest.mark.timeout(400)
def test_with_the_guard_every_document_is_done_once(rig: Rig, tmp_path: Path) -> None:
    numbers, done = chaos(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kills, seconds = numbers.pop("kills"), numbers.pop("seconds")
    assert numbers == {"lost": 0, "doubled": 0, "rows": GOOD, "counter": GOOD, "dead": POISON_DOCUMENTS}
    assert kills > 4, "each worker once at the end, and some before"
    assert seconds > DOCUMENTS / 200
    assert left_behind(rig) == {}


@pytest.mark.timeout(400)
def test_without_the_guard_some_are_done_twice(rig: Rig, tmp_path: Path) -> None:
    # So long between a write and its commit that the last death, of all at once, falls in between.
    numbers, done = chaos(tmp_path, "--guard", "off", "--commit-delay", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert numbers["lost"] == 0
    assert numbers["doubled"] > 0
    assert numbers["rows"] == GOOD + numbers["doubled"]
    assert left_behind(rig) == {}


@pytest.mark.timeout(600)
def test_servers_may_die_too(rig: Rig, tmp_path: Path) -> None:
    numbers, done = chaos(tmp_path, "--servers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (numbers["lost"], numbers["doubled"], numbers["rows"], numbers["counter"]) == (0, 0, GOOD, GOOD)
    assert left_behind(rig) == {}


def test_workers_do_not_outlive_a_lab_that_is_killed(rig: Rig) -> None:
    lab = subprocess.Popen(COMMAND, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: rig.output(GROUP), 60, "the first document that is done")
        assert workers(rig)
    finally:
        lab.kill()
        lab.wait()
    eventually(lambda: not workers(rig), 60, "the end of its workers")
    forget(rig.config)
    assert left_behind(rig) == {}


def test_the_plot_shows_where_it_went_fast() -> None:
    assert plot(Course([0.0, 1.0, 2.0, 3.0], [0, 8, 8, 12])) == "█ ▄"
    assert plot(Course([0.0], [0])) == ""
