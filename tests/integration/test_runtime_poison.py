"""Records that cannot be read: each one dead letter with its bytes, while its neighbours flow."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from streams.contract import DocumentSaved, Upsert, reader
from streams.kafka.codec import schema_text
from streams.kafka.registry import Registry
from streams.topics import DOCUMENTS_SAVED
from tests.rig import Rig, catches_up, unique
from tests.support import eventually


def record_title(doc: DocumentSaved) -> Upsert:
    return Upsert(doc.document_id, {"title": doc.title})


def test_each_unreadable_record_is_one_dead_letter_and_neighbours_flow(rig: Rig) -> None:
    topic, group = rig.topic(), unique("poison")
    good = rig.event("good", 1)
    poison: dict[str, tuple[bytes | None, bytes | None]] = {
        "BrokenFrame: the value is only 1 bytes long": (b"k", b"\xff"),
        "BrokenFrame: the value is only 0 bytes long": (b"k", b""),
        "BrokenFrame: the value is null": (b"good", None),
        "BrokenFrame: the frame does not decode": (b"k", good[:-4]),
        "BrokenFrame: the frame begins with byte 0x7b": (b"k", b'{"document_id": "d"}'),
        "BrokenFrame: 3 bytes are left": (b"k", good + b"end"),
        "BrokenFrame: 'a\\x00b' version 1": (b"k", rig.event("a\0b")),
        "BrokenFrame: 'd' version 0": (b"k", rig.event("d", 0)),
        "UnknownSchema": (b"k", b"\0" + struct.pack(">I", 2**31 - 1) + good[5:]),
        "SchemaError": (b"k", framed(rig, '"int"', b"\x02")),
        "UnicodeDecodeError": (b"\xff\xfe", good),
        "BrokenFrame: the frame is cut short": (b"k", framed(rig, wider_schema(), good[5:] + b"\0")),
    }
    records: list[dict[str, Any]] = []
    for number, (key, value) in enumerate(poison.values()):
        records += [good_record(rig, number), {"key": key, "value": value, "headers": [("h", b"\xff")]}]
    records.append(good_record(rig, len(poison)))
    rig.produce(topic, *records)
    wanted = {f"good-{number}": 1 for number in range(len(poison) + 1)}
    with rig.worker(reader(group=group)(record_title), topic):
        catches_up(rig, group, wanted)
        eventually(lambda: rig.lag(group, topic) == 0, message="all is committed")
    with rig.worker(reader(group=group)(record_title), topic):  # what is settled stays settled
        eventually(lambda: rig.lag(group, topic) == 0)
    found = rig.dead_letters(group, 'key, value, header_values, error_class, error_message, "offset", attempts')
    assert [row[:3] for row in found] == [(key, value, [b"\xff"]) for key, value in poison.values()]
    for (*_, error_class, message, offset, attempts), (number, start) in zip(found, enumerate(poison), strict=True):
        assert f"{error_class}: {message}".startswith(start)
        assert (offset, attempts) == (2 * number + 1, 1)
    assert rig.output(group) == {document_id: {"title": "a title"} for document_id in wanted}
    assert set(rig.progress(group)) == set(wanted)


def good_record(rig: Rig, number: int) -> dict[str, Any]:
    return {"key": f"good-{number}", "value": rig.event(f"good-{number}")}


def wider_schema() -> str:
    """Ours with a number of eight bytes at the end."""
    schema = json.loads(schema_text(str(DOCUMENTS_SAVED.schema)))
    schema["fields"].append({"name": "score", "type": "double", "default": 0.0})
    return json.dumps(schema)


def framed(rig: Rig, schema: str, body: bytes) -> bytes:
    """Bytes under a schema that is registered for another subject."""
    schema_id = Registry(rig.config).register(unique("foreign"), schema)
    return b"\0" + struct.pack(">I", schema_id) + body


def test_without_the_registry_an_unseen_schema_waits_and_nothing_is_lost(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = rig.topic(partitions=2), unique("unseen")
    with rig.worker(reader(group=group)(record_title), topic):
        rig.put(topic, "before", partition=0)
        catches_up(rig, group, {"before": 1})
        unseen = framed(rig, wider_schema().replace('"doc"', f'"{unique("note")}": 1, "doc"', 1), rig.event("new")[5:])
        with rig.frozen("registry"):
            rig.produce(topic, {"key": "new", "value": unseen + struct.pack("<d", 0.5), "partition": 0})
            rig.put(topic, "behind", partition=0)
            rig.put(topic, "beside", partition=1)
            eventually(lambda: f"{group}: reading waits: the schema registry" in caplog.text, 20)
            assert rig.dead_letters(group, "error_message") == []
        catches_up(rig, group, {"new": 1, "behind": 1, "beside": 1})
    assert rig.dead_letters(group, "error_message") == []
    assert rig.lag(group, topic) == 0
