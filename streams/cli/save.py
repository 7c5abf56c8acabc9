"""`streams save PATH…`: post files to the API as documents. Calls `streams.ops.files` and `streams.ops.client`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streams.errors import SaveError
    from streams.ops.client import Client


def save(
    paths: Annotated[list[str], typer.Argument(help="Files, folders, patterns such as 'docs/**/*.md', or -.")],
    owner: Annotated[str, typer.Option(help="The owner of the documents.")] = "me",
    title: Annotated[str | None, typer.Option(help="The title; for one document only.")] = None,
    url: Annotated[str | None, typer.Option(help="The API; default STREAMS_API_URL.")] = None,
) -> None:
    """Save text, Markdown and HTML files as documents, through the API.

    A file is the same document each time: its id is made from its absolute path. Standard input (-) is a new document
    each time. A title is an HTML page's, a Markdown text's first heading, else the file's name. Hidden files in
    folders are left out.

    What is not text is named and skipped. Exit code 0: all saved; 1: some skipped; 3: none saved, or no API.
    """
    from streams.config import settings
    from streams.errors import ConfigError
    from streams.ops.client import Client

    files, refused = _listed(paths)
    if title is not None and len(files) > 1:
        raise ConfigError(f"--title is for one document, and these are {len(files):,}")
    with Client(url or settings().api_url) as client:
        client.check()
        saved, skipped = _report(_outcomes(client, owner, title, files), len(files), refused)
    if skipped or not saved:
        raise typer.Exit(1 if saved else 3)


def _listed(paths: list[str]) -> tuple[list[Path], list[SaveError]]:
    """The files to read, each once, and why others cannot be."""
    from os.path import realpath

    from streams.ops.files import find

    found = [each for path in paths for each in find(path)]
    files = {realpath(each): each for each in found if isinstance(each, Path)}
    return list(files.values()), [each for each in found if not isinstance(each, Path)]


def _outcomes(client: Client, owner: str, title: str | None, files: list[Path]) -> Iterator[SaveError | None]:
    """Save each file, several at a time; why it was skipped, or None, in order. Raises Unavailable, and stops."""
    from streams.ops.client import side_by_side

    return side_by_side(lambda path: _save_one(client, owner, title, path), files)


def _save_one(client: Client, owner: str, title: str | None, path: Path) -> SaveError | None:
    from streams.errors import SaveError, UnusableFile
    from streams.ops.files import read, shown

    try:
        text = read(path)
    except UnusableFile as error:
        return error
    document = {"owner_id": owner, "title": title or text.title, "body": text.body}
    try:
        client.save(document | ({"document_id": text.document_id} if text.document_id else {}))
    except SaveError as error:
        return UnusableFile(f"{shown(path)} was refused: {error}")
    return None


def _report(outcomes: Iterator[SaveError | None], total: int, refused: list[SaveError]) -> tuple[int, int]:
    """Show the progress, name each file that is skipped, and say how many were saved and skipped, also if it stops."""
    from itertools import chain

    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    saved, skipped = 0, 0
    try:
        for error in chain(refused, track(outcomes, "Saving", total, console=console)):
            if error is None:
                saved += 1
            else:
                skipped += 1
                console.print(f"skipped: {error}", markup=False, highlight=False, soft_wrap=True)
    finally:
        print(f"saved {saved:,}, skipped {skipped:,}")
    return saved, skipped
