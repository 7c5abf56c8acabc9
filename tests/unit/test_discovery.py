"""Discovery: every reader is found, and what is broken is named without hiding the rest."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.contract import Reader
from streams.errors import ReaderError
from streams.readers.discovery import all_readers, find, look

READER = """
from streams import DocumentSaved, reader

@reader(group="{group}")
def handle(doc: DocumentSaved) -> None:
    return None
"""

Package = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Writes files as a package of its own name, which can be imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**files: str) -> str:
        name = f"some_readers_{next(_numbers)}"
        folder = tmp_path / name
        folder.mkdir()
        for file, text in {"__init__": "", **files}.items():
            (folder / f"{file}.py").write_text(text)
        return name

    return write


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a distribution that offers entry points of the group `streams.readers`."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(**entries: str) -> None:
        info = tmp_path / "others-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
        lines = "\n".join(f"{name} = {value}" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[streams.readers]\n{lines}\n")

    return install


def groups(readers: list[Reader]) -> list[str]:
    return [reader.group for reader in readers]


def test_the_built_in_readers_are_found() -> None:
    assert groups(all_readers()) == ["indexer", "ranker", "summarizer"]
    assert groups(find(["summarizer", "indexer"])) == ["summarizer", "indexer"]


def test_finding_readers_loads_no_model_and_no_client() -> None:
    heavy = "{'numpy', 'wordllama', 'openai', 'httpx', 'tokenizers', 'psycopg_pool', 'confluent_kafka'}"
    find_all = "import sys; from streams.readers.discovery import all_readers; all_readers()"
    program = f"{find_all}; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_file_is_all_that_a_reader_takes(package: Package) -> None:
    name = package(words=READER.format(group="word-count"), helper="NUMBER = 1", _private="raise RuntimeError")
    assert groups(all_readers(name)) == ["word-count"]


def test_a_reader_that_another_module_imports_is_still_one(package: Package) -> None:
    name = package(first=READER.format(group="one"))
    Path(sys.path[0], name, "second.py").write_text(f"from {name}.first import handle")
    assert groups(all_readers(name)) == ["one"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def broken(:", r"SyntaxError: invalid syntax \(line 1\)"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("raise RuntimeError", "RuntimeError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("x = '\0'", "SyntaxError"),
        (READER.format(group="Not Good"), "ReaderError: reader 'Not Good': group must be"),
    ],
)
def test_a_broken_file_is_named_with_its_reason_and_hides_nothing(
    package: Package, caplog: pytest.LogCaptureFixture, text: str, reason: str
) -> None:
    name = package(broken=text, good=READER.format(group="good"))
    sentence = rf"{name}/broken\.py cannot be loaded: {reason}"
    with caplog.at_level(logging.WARNING):
        assert groups(find(["good"], name)) == ["good"]
    assert len(caplog.records) == 1
    with pytest.raises(ReaderError, match=sentence):
        all_readers(name)
    with pytest.raises(ReaderError, match=rf"no reader 'broken'.*; .*{sentence}"):
        find(["broken"], name)


def test_two_readers_of_one_group_are_named_with_their_files(package: Package) -> None:
    name = package(a=READER.format(group="same"), b=READER.format(group="same"), c=READER.format(group="other"))
    with pytest.raises(ReaderError, match=r"'same' is declared more than once: in .*/a\.py and .*/b\.py"):
        all_readers(name)
    with pytest.raises(ReaderError, match=r"'same' is declared more than once"):
        find(["same"], name)
    assert groups(find(["other"], name)) == ["other"]


def test_the_re_scorers_group_is_no_readers(package: Package) -> None:
    name = package(a=READER.format(group="rescorer"), b=READER.format(group="other"))
    with pytest.raises(ReaderError, match=r"the group 'rescorer' is the re-scorer's own: .*/a\.py must use another"):
        all_readers(name)
    assert groups(find(["other"], name)) == ["other"]


def test_an_unknown_name_gets_the_nearest(package: Package) -> None:
    name = package(a=READER.format(group="word-count"), b=READER.format(group="zebra"))
    with pytest.raises(ReaderError, match=r"^there is no reader 'wordcount': did you mean 'word-count'\?$"):
        find(["wordcount"], name)
    with pytest.raises(ReaderError, match=r"^there is no reader 'qqq': there are word-count, zebra$"):
        find(["qqq"], name)
    with pytest.raises(ReaderError, match=r"^there is no reader 'qqq': there are none$"):
        find(["qqq"], package())


def test_entry_points_bring_readers_and_modules_of_other_packages(
    package: Package, installed: Callable[..., None]
) -> None:
    theirs = package(single=READER.format(group="single"), module=READER.format(group="whole"))
    installed(one=f"{theirs}.single:handle", two=f"{theirs}.module")
    assert groups(all_readers(package(mine=READER.format(group="mine")))) == ["mine", "single", "whole"]


def test_an_entry_point_at_fault_is_named_with_its_package(package: Package, installed: Callable[..., None]) -> None:
    mine, theirs = package(mine=READER.format(group="mine")), package(module="NUMBER = 1")
    installed(absent="no_such_package.readers", number=f"{theirs}.module:NUMBER")
    first, second = look(mine).faults
    assert first.startswith(
        "the entry point absent = no_such_package.readers of others cannot be loaded: ModuleNotFound"
    )
    assert second.endswith("cannot be loaded: ReaderError: it is of type int, neither a reader nor a module")
    assert groups(find(["mine"], mine)) == ["mine"]


def test_an_entry_point_for_a_module_that_is_found_anyway_is_no_duplicate(
    package: Package, installed: Callable[..., None]
) -> None:
    mine = package(words=READER.format(group="word-count"))
    installed(words=f"{mine}.words:handle")
    assert groups(all_readers(mine)) == ["word-count"]
