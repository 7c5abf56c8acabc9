"""`streams schema check | accept`: what may change in an event contract, and what may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streams.errors import Incompatible
from streams.kafka.codec import schemas_folder
from streams.ops.schemas import accept, check

OLD: dict[str, Any] = {
    "type": "record",
    "name": "Thing",
    "fields": [
        {"name": "thing_id", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def changed(**changes: Any) -> dict[str, Any]:
    return {**OLD, **changes}


def fields(*more: dict[str, Any], drop: str = "") -> dict[str, Any]:
    return changed(fields=[*(each for each in OLD["fields"] if each["name"] != drop), *more])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A schema with one version of history."""
    write(tmp_path, OLD)
    accept(tmp_path)
    return tmp_path


def write(folder: Path, schema: dict[str, Any]) -> None:
    (folder / "thing.avsc").write_text(json.dumps(schema))


COMPATIBLE = {
    "another doc": changed(doc="a thing"),
    "a new field with a default": fields({"name": "size", "type": "int", "default": 0}),
    "an optional field dropped": fields(drop="note"),
}
BREAKING = {
    "a new field without a default": fields({"name": "size", "type": "int"}),
    "a field dropped that has no default": fields(drop="thing_id"),
    "another type": fields({"name": "thing_id", "type": "long"}, drop="thing_id"),
    "a wider type, which old code cannot read": fields(
        {"name": "note", "type": ["null", "string", "long"]}, drop="note"
    ),
    "one symbol more": fields(
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b", "c"]}}, drop="kind"
    ),
    "one symbol less": fields(
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a"]}}, drop="kind"
    ),
}


def test_our_own_schemas_pass() -> None:
    assert check(schemas_folder()) == []


def test_an_accepted_schema_passes(folder: Path) -> None:
    assert check(folder) == []
    assert accept(folder) == []


@pytest.mark.parametrize("case", COMPATIBLE)
def test_a_compatible_change_needs_a_history_file(folder: Path, case: str) -> None:
    write(folder, COMPATIBLE[case])
    (fault,) = check(folder)
    assert "streams schema accept" in fault
    assert [made.name for made in accept(folder)] == ["2.avsc"]
    assert check(folder) == []


@pytest.mark.parametrize("case", BREAKING)
def test_a_breaking_change_is_refused(folder: Path, case: str) -> None:
    write(folder, BREAKING[case])
    assert any("read" in fault for fault in check(folder))
    with pytest.raises(Incompatible, match=r"thing\.avsc"):
        accept(folder)
    assert not (folder / "history" / "thing" / "2.avsc").exists()


def test_the_whole_history_counts(folder: Path) -> None:
    """Two steps, each compatible with the one before, may together break what the first version wrote."""
    write(folder, fields({"name": "size", "type": "int", "default": 0}))
    accept(folder)
    write(folder, fields({"name": "size", "type": "int"}))
    assert any("1.avsc" in fault for fault in check(folder))


def test_what_is_no_schema_is_named(folder: Path) -> None:
    write(folder, {"type": "record"})
    with pytest.raises(Incompatible, match=r"thing\.avsc is not an Avro schema"):
        check(folder)
