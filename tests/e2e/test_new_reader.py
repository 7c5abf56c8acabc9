"""`streams new reader` in a checkout and beside an installed package: what it writes passes every check as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOOK = "from streams.readers.discovery import look; print(*look().readers, *look().faults)"


class Place:
    """A folder to work in, and where `streams` is imported from there."""

    def __init__(self, folder: Path, package: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        package.mkdir(exist_ok=True)
        shutil.copytree(ROOT / "streams", package / "streams", ignore=shutil.ignore_patterns("__pycache__"))
        self.env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(folder)])}

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)

    def new(self, name: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "streams.cli.main", "new", "reader", name)

    def succeeds(self, *words: str) -> str:
        done = self.python(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Place:
    place = Place(tmp_path / "checkout", tmp_path / "checkout")
    (place.folder / "tests/unit").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", place.folder)
    return place


@pytest.fixture
def installed(tmp_path: Path) -> Place:
    return Place(tmp_path / "project", tmp_path / "site-packages")


def test_in_a_checkout_the_new_reader_passes_all_checks_and_is_found(checkout: Place) -> None:
    done = checkout.new("word-count")
    assert (done.returncode, done.stderr) == (0, "")
    files = ["streams/readers/word_count.py", "tests/unit/test_readers_word_count.py"]
    assert done.stdout.splitlines() == [
        f"Wrote {files[0]} and {files[1]}.",
        "Next:",
        f"  pytest {files[1]}",
        "  streams run word-count",
    ]
    checkout.succeeds("-m", "ruff", "check", *files)
    checkout.succeeds("-m", "ruff", "format", "--check", *files)
    checkout.succeeds("-m", "mypy", "--strict", *files)
    assert "1 passed" in checkout.succeeds("-m", "pytest", files[1])
    assert "word-count" in checkout.succeeds("-c", LOOK).split()


def test_beside_an_installed_package_it_writes_here_and_says_how_it_is_found(installed: Place, tmp_path: Path) -> None:
    done = installed.new("word_count")
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0] == "Wrote word_count.py and test_readers_word_count.py."
    assert said[-3:] == ["Next:", "  pytest test_readers_word_count.py", "  streams run word_count"]
    assert "1 passed" in installed.succeeds("-m", "pytest", "test_readers_word_count.py")
    assert "word_count" not in installed.succeeds("-c", LOOK).split()
    (line,) = [line for line in said if line.startswith("word_count = ")]
    assert f'[project.entry-points."streams.readers"]\n{line}' in done.stdout
    info = tmp_path / "site-packages/mine-0.dist-info"  # as an installation of pyproject.toml makes it
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[streams.readers]\n" + line.replace('"', "") + "\n")
    assert "word_count" in installed.succeeds("-c", LOOK).split()


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("Word", 2, "'Word' cannot be a reader's name: lower-case letters"),
        ("1st", 2, "'1st' cannot be a reader's name: lower-case letters"),
        ("_hidden", 2, "'_hidden' cannot be a reader's name"),
        ("a/b", 2, "'a/b' cannot be a reader's name"),
        ("w" * 64, 2, "at most 63"),
        ("import", 2, "Python could not import a module of that name"),
        ("summarizer", 4, "there is a reader 'summarizer' already: choose another name"),
        ("discovery", 2, "streams/readers/discovery.py exists already: nothing was written"),
    ],
)
def test_a_name_that_will_not_do_is_refused_in_a_sentence(checkout: Place, name: str, code: int, sentence: str) -> None:
    done = checkout.new(name)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1)
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert list((checkout.folder / "tests/unit").iterdir()) == []


def test_a_test_that_is_there_already_is_left_alone(checkout: Place) -> None:
    kept = checkout.folder / "tests/unit/test_readers_mine.py"
    kept.write_text("# mine\n")
    done = checkout.new("mine")
    assert (done.returncode, kept.read_text()) == (2, "# mine\n")
    assert "tests/unit/test_readers_mine.py exists already: nothing was written" in done.stderr
    assert not (checkout.folder / "streams/readers/mine.py").exists()


def test_a_module_that_the_reader_would_hide_is_named(installed: Place) -> None:
    done = installed.new("json")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "there is a Python module 'json' already" in done.stderr
