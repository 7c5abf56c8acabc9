"""Files as documents: which files a path names, and the text, title and id of each.

Called by `streams save`; reads the file system, nothing else.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from bs4 import BeautifulSoup

from streams.errors import UnusableFile
from streams.topics import BODY_BYTES_MAX

STDIN = Path("/dev/stdin")  # what `-` stands for
TITLE_CHARACTERS_MAX = 10_000  # as the API has it; what is longer is cut
_HTML = {".html", ".htm", ".xhtml"}
_MARKDOWN = {".md", ".markdown"}
_HTML_BYTES_MAX = 4 * BODY_BYTES_MAX  # markup goes away; the text that is left has the API's limit


@dataclass(frozen=True, slots=True)
class TextFile:
    """What a file is saved as. Standard input has no id of its own: each time it is a new document."""

    document_id: str | None
    title: str
    body: str


def find(argument: str) -> Iterator[Path | UnusableFile]:
    """The files that an argument names: a file, a folder's (without hidden ones), a pattern's, or `-`.

    What cannot be listed, or is not there, comes as the error that says so.
    """
    path = STDIN if argument == "-" else Path(argument)
    if path.is_dir():
        yield from _below(path)
    elif os.path.lexists(path):
        yield path
    elif has_magic(argument) and (matches := sorted(glob(argument, recursive=True))):
        for match in matches:
            yield from [] if Path(match).is_dir() else [Path(match)]
    else:
        what = "matches no file" if has_magic(argument) else "does not exist"
        yield UnusableFile(f"{shown(argument)} {what}")


def _below(folder: Path) -> Iterator[Path | UnusableFile]:
    unlistable: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=unlistable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))
    for error in unlistable:
        yield UnusableFile(f"{shown(error.filename)} cannot be listed: {error.strerror}")


def read(path: Path) -> TextFile:
    """A file, or standard input, as a document. Raises UnusableFile that names the file and why.

    The id is the version 5 UUID of the file's absolute URI, so the same file is the same document each time.
    """
    kind = path.suffix.lower()
    text = _decoded(path, _bytes_of(path, _HTML_BYTES_MAX if kind in _HTML else BODY_BYTES_MAX))
    title, body = _html(text) if kind in _HTML else (_heading(text) if kind in _MARKDOWN else "", text)
    return TextFile(
        document_id=None if path == STDIN else str(uuid5(NAMESPACE_URL, path.resolve().as_uri())),
        title=(title or shown(path.name))[:TITLE_CHARACTERS_MAX],
        body=body,
    )


def shown(name: str | Path) -> str:
    """A name as it can be printed: bytes that are no UTF-8 become question marks."""
    return os.fsencode(name).decode("utf-8", "replace")


def _bytes_of(path: Path, bytes_max: int) -> bytes:
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(bytes_max + 1)
        elif stat.S_ISREG(path.stat().st_mode):
            with path.open("rb") as file:
                data = file.read(bytes_max + 1)
        else:
            raise UnusableFile(f"{shown(path)} is not a regular file")
    except OSError as error:
        raise UnusableFile(f"{shown(path)} cannot be read: {error.strerror}") from error
    if len(data) > bytes_max:
        raise UnusableFile(f"{shown(path)} is too large: over {bytes_max:,} bytes")
    return data


def _decoded(path: Path, data: bytes) -> str:
    if b"\0" in data:
        raise UnusableFile(f"{shown(path)} is binary")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnusableFile(f"{shown(path)} is not UTF-8: byte {data[error.start]:#04x} at {error.start}") from error


def _html(text: str) -> tuple[str, str]:
    """The title and the visible text of a page, a line for each piece."""
    page = BeautifulSoup(text, "html.parser")
    title = page.title.get_text(" ", strip=True) if page.title else ""
    for unseen in page(["script", "style", "template", "title"]):
        unseen.decompose()
    return title, page.get_text("\n", strip=True)


def _heading(text: str) -> str:
    """The first top heading of a Markdown text."""
    return next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), "")
