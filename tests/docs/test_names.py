"""Every file, function, query, command and link that the documentation names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import typer.main

from streams.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "connectors/*.md", "infra/**/*.md")
    for path in ROOT.glob(pattern)
)
_FILE = re.compile(
    r"\b(?:streams|tests|docs|infra|connectors|schemas|bench)/[\w./-]*\w\.(?:py|sql|md|json|txt|avsc|ya?ml)\b"
)
_NAME = re.compile(r"`([\w/.-]+\.(?:py|sql))::([\w.]+)`")
_LINK = re.compile(r"\]\((?!https?://)([^)#]+)\)")
_COMMAND = re.compile(r"`streams ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*)")


def read(page: Path) -> str:
    return (ROOT / page).read_text("utf-8")


@cache
def defined(path: str) -> set[str]:
    """The names that a file defines: functions, classes and methods, constants, or named queries."""
    text = (ROOT / path).read_text("utf-8")
    if path.endswith(".sql"):
        return set(re.findall(r"^-- name: (\w+)", text, re.MULTILINE))
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
            found |= {f"{node.name}.{each.name}" for each in methods}
    return found


def commands() -> dict[str, set[str]]:
    """Each command with its subcommands."""
    group = typer.main.get_command(app)
    return {name: set(getattr(each, "commands", {})) for name, each in group.commands.items()}  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_file_that_is_named_is_there(page: Path) -> None:
    missing = {name for name in _FILE.findall(read(page)) if not (ROOT / name).exists()}
    # The exercise asks for a file to be made.
    assert missing - {"streams/readers/word_count.py"} == set()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_function_and_query_that_is_named_is_there(page: Path) -> None:
    missing = {f"{path}::{name}" for path, name in _NAME.findall(read(page)) if name not in defined(path)}
    assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    missing = {link for link in _LINK.findall(read(page)) if not (ROOT / page.parent / link).exists()}
    assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_that_is_named_is_one(page: Path) -> None:
    known = commands()
    for words in map(str.split, _COMMAND.findall(read(page))):
        assert words[0] in known, f"streams {words[0]}"
        if known[words[0]] and len(words) > 1:
            assert words[1] in known[words[0]], f"streams {words[0]} {words[1]}"


def test_the_architecture_names_functions_throughout() -> None:
    assert len(_NAME.findall(read(Path("docs/ARCHITECTURE.md")))) > 60


def test_the_readme_lists_every_command() -> None:
    _, _, section = read(Path("README.md")).partition("## Commands")
    table, _, _ = section.partition("## More")
    assert set(re.findall(r"`(?:streams )?([a-z]+)`", table)) == set(commands())


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "decisions"], ids=str)
def test_a_decision_is_short(page: Path) -> None:
    text = read(page)
    assert text.startswith("# ")
    assert len(text.splitlines()) <= 16
