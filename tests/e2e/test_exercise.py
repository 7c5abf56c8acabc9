"""The exercise as a learner does it, in a checkout of their own: nothing yet, half of it, all of it, too much."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streams.lab.exercise import DOCUMENTS, KILLS, READER
from tests.rig import Rig

ROOT = Path(__file__).parents[2]
SOLUTION = ROOT / "docs/exercises/solutions/word_count.py"
ONLY_ROWS = """
from streams import DocumentSaved, Upsert, reader

@reader(group="word-count")
def count_words(doc: DocumentSaved) -> Upsert:
    return Upsert(key=doc.document_id, value={"words": len(doc.body.split())})
"""
BY_BLANKS = ONLY_ROWS.replace(".split()", '.split(" ")')
FAILS_ON_EMPTY = ONLY_ROWS.replace("len(doc.body.split())", "1 / len(doc.body)")


class Checkout:
    """A learner's copy of the repository, in git."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("streams", "schemas", "connectors", "infra"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("-c", "user.name=learner", "-c", "user.email=learner@example.org", "commit", "--quiet", "-m", "start")

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-C", str(self.folder), *words], check=True, capture_output=True)

    def write(self, text: str) -> None:
        (self.folder / "streams/readers/word_count.py").write_text(text, "utf-8")

    def check(self) -> subprocess.CompletedProcess[str]:
        """`streams exercise check 1`, run from the copy."""
        command = [sys.executable, "-m", "streams.cli.main", "exercise", "check", "1"]
        env = {**os.environ, "PYTHONPATH": str(self.folder)}
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


@pytest.fixture
def fresh_stack(rig: Rig) -> None:
    """The stack without the documents of earlier checks: a wrong reader has given some of them up for good."""
    earlier = "SELECT document_id FROM app.documents WHERE starts_with(owner_id, 'exercise-') AND deleted_at IS NULL"
    for (document,) in rig.rows(earlier):
        rig.delete(document)


def missing(done: subprocess.CompletedProcess[str]) -> str:
    """The sentence that says what is missing."""
    assert done.returncode == 9, done.stdout + done.stderr
    assert "solved" not in done.stdout
    return next(line for line in done.stderr.splitlines() if line.startswith("error: "))


def test_without_a_reader_it_says_where_to_write_it(checkout: Checkout) -> None:
    sentence = missing(checkout.check())
    assert f"there is no reader {READER!r} yet" in sentence
    assert "streams/readers/word_count.py" in sentence


def test_a_file_that_does_not_load_is_named(checkout: Checkout) -> None:
    checkout.write("from streams import Nothing\n")
    assert "word_count.py cannot be loaded: ImportError" in missing(checkout.check())


def test_a_changed_producer_is_named(checkout: Checkout) -> None:
    checkout.write(SOLUTION.read_text())
    save = checkout.folder / "streams/outbox/save.py"
    save.write_text(save.read_text() + "\n# and tell the word count\n")
    assert "the producer was changed: streams/outbox/save.py" in missing(checkout.check())


@pytest.mark.usefixtures("fresh_stack")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ONLY_ROWS, "there is no row 'owner:exercise-"),
        (BY_BLANKS, "the row should say {'words': 0} at version 2, and says {'words': 1}"),
        (FAILS_ON_EMPTY, "ZeroDivisionError: division by zero"),
    ],
    ids=["only rows", "splits at blanks", "fails on empty bodies"],
)
def test_what_is_wrong_is_said(checkout: Checkout, text: str, expected: str) -> None:
    checkout.write(text)
    assert expected in missing(checkout.check())


@pytest.mark.usefixtures("fresh_stack")
@pytest.mark.timeout(400)
def test_the_solution_solves_it(checkout: Checkout) -> None:
    checkout.write(SOLUTION.read_text())
    done = checkout.check()
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line for line in done.stdout.splitlines() if line.startswith("✓")]
    assert len(steps) == 6
    assert steps[1] == "✓ the producer is as it was"
    assert int(steps[2].split("each of the ")[1].split()[0].replace(",", "")) >= DOCUMENTS
    assert f"after {KILLS} times kill -9" in steps[4]
    assert done.stdout.splitlines()[-1] == "Exercise 1 is solved."
