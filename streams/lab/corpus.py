"""Real documents that every machine with this package has: what its Python packages and standard library say of
themselves.

Called by the demo; reads the metadata of installed packages and the first statement of modules' files, imports nothing.
"""

from __future__ import annotations

import ast
import sysconfig
import tokenize
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple, TextIO

from streams.ops.files import TITLE_CHARACTERS_MAX
from streams.topics import BODY_BYTES_MAX

# Not the library that people use: its own tests, programs, and others' packages.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip"}
_BEFORE_A_STATEMENT = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING}


class Text(NamedTuple):
    """A document to save."""

    document_id: str
    title: str
    body: str


def texts() -> list[Text]:
    """Every installed package's description and every documented module of the standard library, by id."""
    found = {text.document_id: text for text in (*_packages(), *_modules(Path(sysconfig.get_path("stdlib"))))}
    return [found[key] for key in sorted(found)]


def _packages() -> Iterator[Text]:
    for package in distributions():
        try:
            yield _described(package)
        except (KeyError, UnicodeDecodeError):  # a folder left by a broken installation: it has no name to save it by
            continue


def _described(package: Distribution) -> Text:
    about = package.metadata.json
    summary = str(about.get("summary", ""))
    return Text(
        document_id=f"package:{about['name']}",
        title=_storable(f"{about['name']} {about['version']}: {summary}")[:TITLE_CHARACTERS_MAX],
        body=_storable(str(about.get("description") or summary)),
    )


def _modules(root: Path) -> Iterator[Text]:
    for path in sorted(root.rglob("*.py")):
        words = path.relative_to(root).with_suffix("").parts
        if _is_public(words) and (text := docstring(path)):
            name = ".".join(words).removesuffix(".__init__")
            first, _, _ = text.partition("\n")
            yield Text(f"module:{name}", _storable(f"{name}: {first}")[:TITLE_CHARACTERS_MAX], _storable(text))


def _is_public(words: tuple[str, ...]) -> bool:
    *folders, name = words
    hidden = any(word.startswith("_") for word in folders) or (name.startswith("_") and name != "__init__")
    return not hidden and not _LEFT_OUT & {*folders, name}


def docstring(path: Path) -> str:
    """The module's docstring, empty if there is none; the rest of the file is not parsed, which would take seconds."""
    try:
        with tokenize.open(path) as source:
            tokens = [token for token in _first_statement(source) if token.type not in _BEFORE_A_STATEMENT]
        statement = " ".join(token.string for token in tokens)
        return ast.get_docstring(ast.parse(statement)) or ""
    except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):  # not this Python, or but half a statement
        return ""


def _first_statement(source: TextIO) -> Iterator[tokenize.TokenInfo]:
    for token in tokenize.generate_tokens(source.readline):
        yield token
        if token.type == tokenize.NEWLINE:
            return


def _storable(text: str) -> str:
    """Without what the API refuses: NUL, halves of surrogate pairs, more bytes than a body may have."""
    return text.replace("\0", "").encode("utf-8", "replace")[:BODY_BYTES_MAX].decode("utf-8", "ignore")
