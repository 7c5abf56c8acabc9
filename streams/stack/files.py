"""Files of the local stack: what is shipped in infra/local, small JSON notes, locks, and what a full disk is called.

Called by every module of the stack; calls nothing of ours.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console

from streams.errors import StackError


def infra_folder() -> Path:
    """Where infra/local stands: in the package when installed, beside it in a checkout."""
    installed = Path(str(files("streams"))) / "_files" / "infra" / "local"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "infra" / "local"


def write_properties(path: Path, shipped: list[str], own: Mapping[str, str]) -> None:
    """Join files of infra/local and what only this stack knows into one properties file."""
    texts = [(infra_folder() / name).read_text("utf-8") for name in shipped]
    lines = [f"{name}={value}" for name, value in own.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*texts, *lines, ""]), "utf-8")


def read_note(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty when there is none or it cannot be read."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_note(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(content), "utf-8")
    new.replace(path)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """What goes wrong with files below `folder`, as one sentence. Raises StackError for OSError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StackError(f"There is no disk space left in {folder}.") from error
        raise StackError(f"{error.filename or folder} cannot be used: {error.strerror or error}.") from error


@contextmanager
def exclusive(path: Path, console: Console) -> Iterator[None]:
    """Hold the lock file `path`, waiting for whoever holds it now and saying so."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        console.print(f"Waiting for another `streams` command that holds {path}.", soft_wrap=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
