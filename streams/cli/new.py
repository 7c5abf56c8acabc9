"""`streams new reader NAME`: a reader to begin with, and its test. Writes two files from streams/cli/templates."""

from __future__ import annotations

import keyword
import os
import re
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated

import typer

app = typer.Typer(help="Begin something of your own.", no_args_is_help=True)

_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_NAME_CHARACTERS_MAX = 63  # as a group may have


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the files of a reader go, and the name by which its module is imported."""

    reader: Path
    test: Path
    module: str
    is_checkout: bool


@app.callback()
def _new() -> None:
    pass


@app.command("reader")
def new_reader(name: Annotated[str, typer.Argument(help="Its name, and its consumer group: word-count.")]) -> None:
    """Write a reader that works, and its test, to be changed into what you want."""
    _check(name)
    place = _place(name.replace("-", "_"))
    words = {"group": name, "module": place.module, "title": name.replace("-", " ").replace("_", " ").capitalize()}
    _write({place.reader: "reader.py.txt", place.test: "test_reader.py.txt"}, words)
    typer.echo(f"Wrote {_shown(place.reader)} and {_shown(place.test)}.")
    if not place.is_checkout:
        typer.echo(
            "So that it is found, add to the pyproject.toml of your package, and install it again:\n\n"
            f'[project.entry-points."streams.readers"]\n{name} = "{place.module}"\n'
        )
    typer.echo(f"Next:\n  pytest {_shown(place.test)}\n  streams run {name}")


def _check(name: str) -> None:
    """Raises ConfigError for a name that cannot be one, ReaderError for one that is taken."""
    from streams.errors import ConfigError, ReaderError
    from streams.readers.discovery import look

    if not _NAME.fullmatch(name) or len(name) > _NAME_CHARACTERS_MAX:
        raise ConfigError(
            f"{name!r} cannot be a reader's name: lower-case letters and digits, in words joined by - or _, "
            f"beginning with a letter, at most {_NAME_CHARACTERS_MAX}"
        )
    if keyword.iskeyword(name.replace("-", "_")):
        raise ConfigError(f"{name!r} cannot be a reader's name: Python could not import a module of that name")
    if name in look().readers:
        raise ReaderError(f"there is a reader {name!r} already: choose another name")


def _place(identifier: str) -> _Place:
    """In a checkout that is ours to write, beside the others; else in the current folder. Raises ConfigError."""
    import streams
    from streams.errors import ConfigError

    package = Path(streams.__file__).parent
    test = f"test_readers_{identifier}.py"
    tests = package.parent / "tests/unit"
    if tests.is_dir() and (package.parent / "pyproject.toml").is_file() and os.access(package / "readers", os.W_OK):
        path = package / "readers" / f"{identifier}.py"
        return _Place(path, tests / test, f"streams.readers.{identifier}", is_checkout=True)
    if find_spec(identifier) is not None:
        raise ConfigError(f"there is a Python module {identifier!r} already, which the reader would hide")
    here = Path.cwd()
    return _Place(here / f"{identifier}.py", here / test, identifier, is_checkout=False)


def _write(files: dict[Path, str], words: dict[str, str]) -> None:
    """Both or none. Raises ConfigError."""
    from streams.errors import ConfigError

    for path in files:
        if os.path.lexists(path):
            raise ConfigError(f"{_shown(path)} exists already: nothing was written")
    templates = resources.files("streams.cli") / "templates"
    for path, template in files.items():
        text = Template((templates / template).read_text("utf-8")).substitute(words)
        try:
            path.write_text(text, "utf-8")
        except OSError as error:
            raise ConfigError(f"{_shown(path)} cannot be written: {error.strerror}") from error


def _shown(path: Path) -> Path:
    """As it would be typed here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
