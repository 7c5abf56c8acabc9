"""Files as documents: what is found, what is read, and why the rest is not."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from streams.errors import UnusableFile
from streams.ops.files import STDIN, find, read
from streams.topics import BODY_BYTES_MAX


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ["b.txt", "a.md", "sub/c.html", ".hidden/d.txt", "sub/.e.txt"]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path


def test_a_folder_stands_for_its_files_in_order_without_hidden_ones(folder: Path) -> None:
    assert list(find(str(folder))) == [folder / "a.md", folder / "b.txt", folder / "sub/c.html"]


def test_a_pattern_stands_for_the_files_that_match(folder: Path) -> None:
    assert list(find(f"{folder}/**/*.md")) == [folder / "a.md"]
    assert list(find(f"{folder}/*")) == [folder / "a.md", folder / "b.txt"]


def test_a_name_with_brackets_is_a_name_if_there_is_such_a_file(folder: Path) -> None:
    odd = folder / "notes[1].txt"
    odd.write_text("x")
    assert list(find(str(odd))) == [odd]


@pytest.mark.parametrize(("argument", "reason"), [("nothing.txt", "does not exist"), ("*.nothing", "matches no file")])
def test_what_is_not_there_is_said(tmp_path: Path, argument: str, reason: str) -> None:
    [error] = find(str(tmp_path / argument))
    assert isinstance(error, UnusableFile)
    assert reason in str(error)
    assert argument in str(error)


def test_a_file_is_the_same_document_from_everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absolute = read(folder / "b.txt").document_id
    monkeypatch.chdir(folder / "sub")
    (folder / "link.txt").symlink_to(folder / "b.txt")
    assert read(Path("../b.txt")).document_id == absolute == read(folder / "link.txt").document_id
    assert read(folder / "a.md").document_id != absolute


@pytest.mark.parametrize(
    ("name", "content", "title", "body"),
    [
        ("plain.txt", "line\r\nline\n", "plain.txt", "line\r\nline\n"),
        ("empty.txt", "", "empty.txt", ""),
        ("heading.md", "intro\n# The title \n# Second", "The title", "intro\n# The title \n# Second"),
        ("none.md", "## small", "none.md", "## small"),
        (
            "page.html",
            "<title>A &amp; B</title><style>p{}</style><p>Hello <b>you</b></p><script>x</script>",
            "A & B",
            "Hello\nyou",
        ),
        ("bare.htm", "<p>Hello", "bare.htm", "Hello"),
    ],
)
def test_text_markdown_and_html(tmp_path: Path, name: str, content: str, title: str, body: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert (read(path).title, read(path).body) == (title, body)


def test_a_title_is_cut_to_what_the_api_takes(tmp_path: Path) -> None:
    path = tmp_path / "long.md"
    path.write_text("# " + "x" * 20_000)
    assert read(path).title == "x" * 10_000


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PNG\0\1", "is binary"),
        (b"caf\xe9", "is not UTF-8: byte 0xe9 at 3"),
        (b"a" * (BODY_BYTES_MAX + 1), "is too large"),
    ],
)
def test_a_file_that_is_no_text_is_named_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(UnusableFile, match=reason) as raised:
        read(path)
    assert "bad.txt" in str(raised.value)


def test_the_largest_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_bytes(b"a" * BODY_BYTES_MAX)
    assert len(read(path).body) == BODY_BYTES_MAX


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnusableFile, match="not a regular file"):
        read(tmp_path / "pipe")


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    [found] = find(str(tmp_path / "loop"))
    assert isinstance(found, Path)
    with pytest.raises(UnusableFile, match="loop cannot be read"):
        read(found)


def test_a_name_that_is_no_utf8_can_be_saved_and_shown(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xffme.txt"))
    path.write_text("x")
    assert read(path).title == "n\ufffdme.txt"


def test_standard_input_is_a_new_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"piped")))
    assert list(find("-")) == [STDIN]
    text = read(STDIN)
    assert (text.document_id, text.body) == (None, "piped")
