"""The gate before a changed schema: it must survive with every schema that ever wrote to the log, both ways.

A history of each contract stands beside it, schemas/history/<name>/<n>.avsc, oldest first; none of it is ever changed.
Compatible is FULL_TRANSITIVE: the current schema reads what each old one wrote, each old one what the current writes.
Tried on events made from the schemas with the codec's own library, so it needs no registry. Called by `streams schema`.
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import fastavro
from fastavro.utils import generate_many

from streams.errors import Incompatible

_EVENTS = 300  # so many meet every symbol of an enum and every branch of a union


def check(folder: Path) -> list[str]:
    """One sentence for each schema that is not as it must be; empty if all is well."""
    faults = []
    for file in sorted(folder.glob("*.avsc")):
        faults += [f"{file.name}: {reason}" for reason in _breaks(file)]
        if not _accepted(file):
            faults.append(f"{file.name} has no history file: run `streams schema accept` and commit the file it makes")
    return faults


def accept(folder: Path) -> list[Path]:
    """Write the next history file of each changed schema; gives them. Raises Incompatible, and writes nothing then."""
    changed = [file for file in sorted(folder.glob("*.avsc")) if not _accepted(file)]
    for file in changed:
        if reasons := _breaks(file):
            raise Incompatible(f"{file.name}: {'; '.join(reasons)}")
    return [_write_next(file) for file in changed]


def _write_next(file: Path) -> Path:
    made = _history_folder(file) / f"{len(_history(file)) + 1}.avsc"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(file.read_bytes())
    return made


def _history_folder(file: Path) -> Path:
    return file.parent / "history" / file.stem


def _history(file: Path) -> list[Path]:
    return sorted(_history_folder(file).glob("*.avsc"), key=lambda old: int(old.stem))


def _accepted(file: Path) -> bool:
    history = _history(file)
    return bool(history) and json.loads(history[-1].read_text("utf-8")) == json.loads(file.read_text("utf-8"))


def _breaks(file: Path) -> list[str]:
    """Why the schema does not go together with its history."""
    ours = _parse(file)
    found = []
    for old in _history(file):
        theirs, name = _parse(old), old.relative_to(file.parent)
        found += [f"it cannot read what {name} wrote: {reason}" for reason in _unreadable(theirs, ours)]
        found += [f"{name} cannot read what it writes: {reason}" for reason in _unreadable(ours, theirs)]
    return found


def _parse(file: Path) -> Any:
    try:
        return fastavro.parse_schema(json.loads(file.read_text("utf-8")))
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise Incompatible(f"{file} is not an Avro schema: {error}") from error


def _unreadable(writer: Any, reader: Any) -> list[str]:
    """The first reason why events written by one schema are not read by the other."""
    random.seed(0)  # the library draws its events from here; the gate must say the same each time
    for event in generate_many(writer, _EVENTS):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, writer, event)
        try:
            fastavro.schemaless_reader(io.BytesIO(out.getvalue()), writer, reader)
        except (fastavro.read.SchemaResolutionError, ValueError) as error:
            return [str(error)]
    return []
