"""constraints.txt pins all that an installation brings, by name and version alone."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WANTED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]


def closure(wanted: Iterable[str]) -> set[str]:
    """Whatever these requirements bring here, directly or not."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = chosen(wanted, frozenset())
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        waiting += needs(*one)
    return {name for name, _ in seen}


def needs(name: str, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    return chosen(requires(name) or [], extras)


def chosen(wanted: Iterable[str], extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """The requirements that count on this system and with these extras."""
    parsed = map(Requirement, wanted)
    here = [w for w in parsed if not w.marker or any(w.marker.evaluate({"extra": extra}) for extra in extras | {""})]
    return [(canonicalize_name(each.name), frozenset(each.extras)) for each in here]


def test_every_line_is_a_name_and_a_version() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line)] == []


def test_all_that_is_needed_is_pinned() -> None:
    pinned = {canonicalize_name(line.partition("==")[0]) for line in LINES}
    assert closure(WANTED) - pinned == set()
