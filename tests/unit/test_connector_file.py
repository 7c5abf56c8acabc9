"""connectors/documents-outbox.json against what is around it: the table, topics, settings, its README."""

from __future__ import annotations

import json
import re
from pathlib import Path

from streams.cdc import connector, slot
from streams.config import Settings
from streams.topics import DOCUMENTS_SAVED, HEARTBEAT

ROOT = Path(__file__).parents[2]
FILE = ROOT / "connectors" / f"{connector.NAME}.json"
CONFIG: dict[str, str] = json.loads(FILE.read_text())
ROUTER = "transforms.outbox."
PLACEHOLDER = re.compile(r"\$\{env:(\w+)\}")


def outbox_columns() -> dict[str, str]:
    """Column name → the rest of its definition, from the migrations."""
    sql = "\n".join(path.read_text() for path in sorted((ROOT / "streams/outbox/migrations").glob("*.sql")))
    body = re.search(r"CREATE TABLE app\.outbox \((.*?)^\);", sql, re.DOTALL | re.MULTILINE)
    assert body, "no migration makes app.outbox"
    lines = (line.strip().partition(" ") for line in body[1].splitlines())
    return {name: rest.strip() for name, _, rest in lines if name and not name.startswith("--")}


def test_it_is_the_body_of_a_put() -> None:
    """Connect's API takes a flat object of strings, under the name that the code uses."""
    assert FILE.exists()
    assert {type(value) for value in CONFIG.values()} == {str}
    assert "name" not in CONFIG
    assert "config" not in CONFIG


def test_readme_explains_every_key_and_no_other() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", (ROOT / "connectors/README.md").read_text(), re.MULTILINE)
    explained = [key for cell in rows for key in re.findall(r"`([^`]+)`", cell)]
    assert sorted(explained) == sorted(CONFIG)


def test_addresses_and_secrets_come_from_the_environment() -> None:
    values = [value for key, value in CONFIG.items() if key.startswith("database.")]
    variables = {match[1] for match in map(PLACEHOLDER.fullmatch, values) if match}
    assert len(variables) == len(values), "a literal address or secret stands in the file"
    settings = [name for name in Settings.model_fields if name.startswith("db_")]
    assert variables == {f"STREAMS_{name.upper()}" for name in settings}


def test_publication_and_slot_are_those_that_setup_makes() -> None:
    assert CONFIG["publication.name"] == slot.NAME
    assert CONFIG["slot.name"] == slot.NAME
    assert CONFIG["plugin.name"] == slot.PLUGIN
    assert CONFIG["publication.autocreate.mode"] == "disabled"


def test_heartbeats_go_to_the_topic_that_setup_makes() -> None:
    assert f"__debezium-heartbeat.{CONFIG['topic.prefix']}" == HEARTBEAT.name


def test_the_router_sees_outbox_rows_and_nothing_else() -> None:
    predicate = f"predicates.{CONFIG[ROUTER + 'predicate']}"
    assert CONFIG["predicates"] == CONFIG[ROUTER + "predicate"]
    pattern = re.compile(CONFIG[f"{predicate}.pattern"])
    assert pattern.fullmatch(f"{CONFIG['topic.prefix']}.{CONFIG['table.include.list']}")
    assert not pattern.fullmatch(HEARTBEAT.name)
    assert not pattern.fullmatch(DOCUMENTS_SAVED.name)


def test_the_router_reads_columns_that_exist() -> None:
    columns = outbox_columns()
    assert CONFIG["table.include.list"] == "app.outbox"
    fields = {key.rpartition(".")[2]: value for key, value in CONFIG.items() if ".table.field.event." in key}
    assert {*fields.values(), CONFIG[ROUTER + "route.by.field"]} <= set(columns)
    placements = [part.split(":") for part in CONFIG[ROUTER + "table.fields.additional.placement"].split(",")]
    assert {column for column, _, _ in placements} <= set(columns)
    assert [rest for _, *rest in placements] == [["header", "type"], ["header", "traceparent"]]
    # As int64 milliseconds, which is what a timestamp(3) without zone becomes; a timestamptz kills the task.
    assert re.match(r"timestamp\(3\) NOT NULL", columns[fields["timestamp"]])
    # A null payload would be a tombstone: the deletion of the document's whole history on a compacted copy.
    assert re.match(r"bytea NOT NULL", columns[fields["payload"]])


def test_nothing_is_dropped_in_silence() -> None:
    assert CONFIG["errors.tolerance"] == "none"
    assert CONFIG["snapshot.mode"] == "no_data"
    assert CONFIG[ROUTER + "table.op.invalid.behavior"] == "fatal"
    assert CONFIG["tombstones.on.delete"] == "false"
    assert "c" not in CONFIG["skipped.operations"].split(",")


def test_heartbeats_have_a_converter() -> None:
    """They pass the router by; without a delegate the binary converter throws on them."""
    assert CONFIG["value.converter"] == "io.debezium.converters.BinaryDataConverter"
    assert CONFIG["value.converter.delegate.converter.type"].endswith("JsonConverter")
    assert CONFIG["key.converter"].endswith("StringConverter")
