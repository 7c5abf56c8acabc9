"""How other systems of this kind failed: scenarios that no other file holds."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from secrets import token_hex
from typing import ClassVar

import fastavro
import httpx
import psutil
import pytest

from streams.cdc import connector
from streams.cdc.connect import Connect
from streams.config import Settings
from streams.contract import OUTPUT, DocumentSaved, Retry, Upsert, reader
from streams.core.partitioning import key_hash
from streams.kafka.codec import schema_text
from streams.kafka.registry import Registry
from streams.readers._provider import Provider
from streams.readers.summarizer import summarize
from streams.topics import DOCUMENTS_SAVED
from tests.api_process import Api, serving
from tests.fake_provider import Behaviour, FakeProvider, Request, closes_mid_body, never_answers, raw, summary
from tests.relay_rig import own_topic
from tests.rig import ROOT, Rig, catches_up, unique
from tests.support import eventually


@pytest.mark.timeout(180)
def test_what_was_done_behind_a_slow_record_is_not_done_again_after_a_crash(rig: Rig) -> None:
    """A hundred keys of one partition: the first one's handler takes long, and the worker dies in the middle of it."""
    prefix = unique("slow") + "-"
    group = f"{prefix}counted"
    candidates = (f"{prefix}{number}" for number in count())
    neighbours = (name for name in candidates if key_hash(name.encode()) % DOCUMENTS_SAVED.partitions == 3)
    slow, *others = islice(neighbours, 100)
    rig.start_at_end(group)
    with rig.command(prefix, "counted") as command:
        eventually(lambda: ": reads " in command.said(), 60)
        rig.save(slow, title="8")
        for name in others:
            rig.save(name, title="0")
        catches_up(rig, group, dict.fromkeys(others, 1), 60)
        assert slow not in rig.done(group)
        psutil.Process(command.workers()[0]).kill()
        catches_up(rig, group, {slow: 1}, 60)
        eventually(lambda: rig.lag(group) == 0)
        said = command.said()
    assert said.count(f"runs {slow}\n") == 2
    assert {name: said.count(f"runs {name}\n") for name in others} == dict.fromkeys(others, 1)


def test_the_relay_goes_on_where_it_was_when_its_offsets_are_wiped(rig: Rig) -> None:
    with own_topic(rig.config, unique("wiped")) as events, Connect(rig.config) as worker:
        events.emit(5)
        events.all_arrive()
        worker.stop(connector.NAME)
        connector.wait_until_stopped(worker)
        worker.delete_offsets(connector.NAME)
        events.emit(5)
        worker.resume(connector.NAME)
        connector.wait_until_running(worker, lambda: None)
        events.emit(5)
        events.all_arrive()
        assert events.came_in_order("one")


def test_two_releases_of_the_event_are_both_read(rig: Rig) -> None:
    """A rolling deploy: an event with a field more, by the writer's schema, beside one as we know it."""
    schema = json.loads(schema_text(str(DOCUMENTS_SAVED.schema)))
    schema["fields"].append({"name": "language", "type": ["null", "string"], "default": None})
    schema_id = Registry(rig.config).register(DOCUMENTS_SAVED.subject, json.dumps(schema))
    topic, group = rig.topic(), unique("releases")

    @reader(group=group)
    def handle(doc: DocumentSaved) -> Upsert:
        return Upsert(doc.document_id, {"title": doc.title, "version": doc.version})

    event = {
        "document_id": "newer",
        "owner_id": "rig",
        "version": 1,
        "title": "from tomorrow",
        "body": "",
        "saved_at": datetime.now(UTC),
        "type": "saved",
        "language": "en",
    }
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), event)
    rig.produce(topic, {"key": "newer", "value": out.getvalue()})
    rig.put(topic, "ours", title="from today")
    with rig.worker(handle, topic):
        catches_up(rig, group, {"newer": 1, "ours": 1})
    assert rig.output(group) == {
        "newer": {"title": "from tomorrow", "version": 1},
        "ours": {"title": "from today", "version": 1},
    }
    assert rig.dead_letters(group, "document_id") == []


def test_times_do_not_depend_on_the_zone_nor_ages_on_the_clock(rig: Rig) -> None:
    """Readers and tools in New York, and a record from an hour ahead, as after a clock was set back."""
    prefix, name = unique("zone") + "-", unique("zone")
    group, ahead = f"{prefix}fresh", rig.topic()
    rig.start_at_end(group)
    with rig.command(prefix, "fresh", TZ="America/New_York") as command:
        rig.save(name)
        catches_up(rig, group, {name: 1}, 60)
        assert command.end() == 0
    ((saved_at, finished_at),) = rig.rows(
        "SELECT d.saved_at, p.finished_at FROM app.documents AS d JOIN readers.progress AS p USING (document_id) "
        "WHERE document_id = %s AND reader = %s",
        name,
        group,
    )
    assert timedelta(0) <= finished_at - saved_at < timedelta(minutes=1)
    later = int((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000)
    rig.produce(ahead, {"key": "d", "value": rig.event("d"), "timestamp": later})
    rig.commit(unique("ahead"), ahead, {0: 0})
    shown = lag(rig, ahead)
    assert shown == [(1, 0.0)]


class Moody(FakeProvider):
    """Behaves by the title of the document, until it is well."""

    moods: ClassVar[dict[str, Behaviour]] = {
        "empty": raw(b""),
        "no JSON": raw(b"<html>", "text/html"),
        "silent": never_answers,
        "closes": closes_mid_body,
    }

    def __init__(self) -> None:
        super().__init__(summary("It flows. It ends."))
        self.is_well = False

    def take(self, request: Request) -> Behaviour:
        title = str(request.body["messages"][1]["content"]).splitlines()[0]
        well = super().take(request)
        return well if self.is_well else self.moods.get(title, well)


def test_a_provider_that_misbehaves_over_some_documents_holds_up_no_other(rig: Rig) -> None:
    topic, group = rig.topic(), unique("moody")
    fine = [f"fine-{number}" for number in range(12)]
    with Moody() as provider:
        config = Settings(provider_url=provider.url, provider_timeout_seconds=1.0)
        declared = replace(
            summarize, group=group, setup=lambda: Provider(config), retry=Retry(10**6, 0.1, 0.2), table=OUTPUT
        )
        for name in [*provider.moods, *fine]:
            rig.put(topic, name, title=name)
        with rig.worker(declared, topic):
            catches_up(rig, group, dict.fromkeys(fine, 1), 20)
            wanted = {
                "empty": "no chat completion",
                "no JSON": "no chat completion",
                "silent": "no answer within 1 s",
                "closes": "cannot be reached",
            }
            query = "SELECT document_id, error FROM readers.progress WHERE reader = %s AND state = 'retrying'"

            def reasons_are_recorded() -> bool:
                found = dict(rig.rows(query, group))
                assert found.keys() == wanted.keys(), found
                return all(reason in found[name] for name, reason in wanted.items())

            eventually(reasons_are_recorded, 20)
            provider.is_well = True
            catches_up(rig, group, dict.fromkeys(wanted, 1), 20)
    assert {row["summary"] for row in rig.output(group).values()} == {"It flows. It ends."}
    assert rig.dead_letters(group, "document_id") == []


@pytest.mark.timeout(300)
def test_while_the_brokers_disk_is_full_saves_are_taken_up_to_a_bound_and_all_arrive(rig: Rig) -> None:
    """The broker stops itself when it cannot write; `streams up`, once there is space, heals it."""
    group, names = unique("full"), (unique("full") for _ in count())
    taken: list[str] = []

    @reader(group=group)
    def handle(doc: DocumentSaved) -> Upsert:
        return Upsert(doc.document_id, {"characters": len(doc.body)})

    def refused(api: Api) -> httpx.Response | None:
        """Save some random text, which does not shrink, as a document of its own; the answer unless it is taken."""
        name = next(names)
        answer = api.save(document_id=name, body=token_hex(50_000))
        if answer.status_code == 202:
            taken.append(name)
        return None if answer.status_code == 202 else answer

    rig.start_at_end(group)
    with rig.worker(handle), serving(STREAMS_OUTBOX_BACKLOG_BYTES_MAX="8000000") as api:
        eventually(lambda: refused(api) is None, 60, "what earlier tests left is through")
        rig.fill_disk("kafka")
        assert refused(api) is None
        eventually(lambda: not rig.runs("kafka"), 30, "the broker stops")
        assert [refused(api) for _ in range(10)] == [None] * 10
        answer = eventually(lambda: refused(api), 60, "the bound is reached")
        assert answer.status_code == 503
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert "MB of changes wait for the relay, more than 8.0 MB" in answer.json()["detail"]
        rig.heal()
        eventually(lambda: refused(api) is None, 60, "saves are taken again")
        catches_up(rig, group, dict.fromkeys(taken, 1), 60)
    assert rig.dead_letters(group, "document_id") == []


def lag(rig: Rig, topic: str) -> list[tuple[int, float]]:
    """Lag and age of each partition of the topic that some group has, as New York sees it."""
    command = [sys.executable, "-m", "streams.cli.main", "lag", "--json"]
    environment = {**os.environ, "TZ": "America/New_York"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    partitions = [each for group in json.loads(done.stdout) for each in group["partitions"]]
    return [(each["lag_records"], each["age_seconds"]) for each in partitions if each["topic"] == topic]
