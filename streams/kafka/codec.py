"""Events to bytes and back: the Confluent wire frame (0x00, 4-byte schema id, Avro).

A frame is read by the schema that wrote it, resolved to the one in schemas/: an old event meets new code and a new
event old code. Called by the API (encode) and by the readers' worker (decode); asks the registry, once a schema id.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import fastavro
from fastavro.types import Schema

from streams.errors import BrokenFrame, SchemaError
from streams.topics import Topic

_HEADER = struct.Struct(">bI")
_MAGIC = 0


class SchemaSource(Protocol):
    """The part of the registry that the codec needs."""

    def register(self, subject: str, schema: str) -> int: ...

    def schema(self, schema_id: int) -> str: ...


def schemas_folder() -> Path:
    """Where the event contracts stand: in the package when installed, beside it in a checkout."""
    installed = Path(str(files("streams"))) / "_files" / "schemas"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "schemas"


@cache
def schema_text(name: str) -> str:
    """The text of one file of schemas/."""
    return (schemas_folder() / name).read_text("utf-8")


@cache
def _parsed(name: str) -> Schema:
    return fastavro.parse_schema(json.loads(schema_text(name)))


class Codec:
    """Encodes for topics and decodes frames, remembering every schema id; safe for threads."""

    def __init__(self, registry: SchemaSource) -> None:
        self._registry = registry
        self._ids: dict[str, int] = {}
        self._writers: dict[tuple[int, str], tuple[Schema, Schema | None]] = {}
        self._lock = Lock()

    def schema_id(self, topic: Topic) -> int:
        """The id of the topic's schema, registered if need be. Raises Unavailable, Incompatible."""
        with self._lock:
            if topic.subject not in self._ids:
                self._ids[topic.subject] = self._registry.register(topic.subject, schema_text(_named(topic)))
            return self._ids[topic.subject]

    def encode(self, topic: Topic, event: Mapping[str, Any]) -> bytes:
        """The event as a frame. Raises SchemaError if it does not fit the topic's schema."""
        out = io.BytesIO()
        out.write(_HEADER.pack(_MAGIC, self.schema_id(topic)))
        try:
            fastavro.schemaless_writer(out, _parsed(_named(topic)), event)
        except (ValueError, TypeError, KeyError, UnicodeError) as error:
            raise SchemaError(f"the event does not fit {topic.schema}: {error}") from error
        return out.getvalue()

    def decode(self, topic: Topic, frame: bytes | None) -> dict[str, Any]:
        """The event in a frame, in the shape of the topic's schema.

        Raises BrokenFrame (also for a null value), UnknownSchema, SchemaError (writer and reader do not resolve),
        Unavailable when the registry is asked and does not answer: that one may be tried again.
        """
        if frame is None or len(frame) <= _HEADER.size:
            raise BrokenFrame("the value is " + ("null" if frame is None else f"only {len(frame)} bytes long"))
        magic, schema_id = _HEADER.unpack_from(frame)
        if magic != _MAGIC:
            raise BrokenFrame(f"the frame begins with byte {magic & 0xFF:#04x} instead of 0x00")
        writer, reader = self._resolution(schema_id, _named(topic))
        # Fields that only the writer knows are skipped, past the end too: seen by one more byte, which none may take.
        body = io.BytesIO(frame if reader is None else frame + b"\0")
        body.seek(_HEADER.size)
        try:
            event = fastavro.schemaless_reader(body, writer, reader)
        except fastavro.read.SchemaResolutionError as error:
            raise SchemaError(f"schema {schema_id} does not resolve to {topic.schema}: {str(error)[:200]}") from error
        except (EOFError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError, struct.error) as error:
            raise BrokenFrame(f"the frame does not decode with schema {schema_id}: {error!r}") from error
        if body.tell() != len(frame):
            left = len(frame) - body.tell()
            raise BrokenFrame(f"{left} bytes are left after the event" if left > 0 else "the frame is cut short")
        return dict(event)  # type: ignore[arg-type]  # our schemas are all records

    def _resolution(self, schema_id: int, name: str) -> tuple[Schema, Schema | None]:
        """The writer's schema, and ours unless they are the same: resolving costs more than twice the decoding."""
        known = self._writers.get((schema_id, name))
        if known is None:
            writer, ours = _parse(schema_id, self._registry.schema(schema_id)), _parsed(name)
            known = self._writers[schema_id, name] = (writer, None if writer == ours else ours)
        return known


def _named(topic: Topic) -> str:
    if topic.schema is None:
        raise SchemaError(f"the topic {topic.name} has no schema")
    return topic.schema


def _parse(schema_id: int, text: str) -> Schema:
    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise SchemaError(f"schema {schema_id} of the registry does not parse: {error}") from error
