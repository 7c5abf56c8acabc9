"""The stack's metrics: what each fact becomes, what is absent when old or unknown, and the page that lists them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streams.analytics.web import Metrics
from streams.cdc.slot import SlotState
from streams.ops.metrics import OpenWork
from streams.ops.probes import Probe
from streams.ops.stack_metrics import Facts, Sample, exposition
from tests.api_double import DatabaseDouble, client
from tests.unit.test_compose import NobodysWorker
from tests.unit.test_metrics import fleet, scraped

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text("utf-8")
SAMPLE = Sample("ranker", 4.0, 2, 720, 700.0, 18.5, 17.0, 14.0, None, "ramp", "WARN")
SLOT = SlotState(True, True, True, "pgoutput", True, "reserved", None, True, "0/1", 100, 4_000, 300)
PROBES = {
    **{name: Probe(3.0, "up", None) for name in ("kafka", "connect", "registry")},
    "connector": Probe(3.0, "RUNNING", None),
    "task": Probe(3.0, "FAILED", None),
    "canary": Probe(9.0, None, 0.03),
}
FACTS = Facts([SAMPLE, SAMPLE._replace(group="relay", drain_seconds=2.0)], PROBES, SLOT, {"ranker": OpenWork(4, 1)})
Values = dict[tuple[str, ...], float]


def values(page: bytes) -> Values:
    """(name, labels' values …) → value, through the text that Prometheus reads."""
    families = text_string_to_metric_families(page.decode())
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def of(**changes: object) -> Values:
    return values(exposition(replace(FACTS, **changes)))  # type: ignore[arg-type]


def test_each_fact_is_a_metric() -> None:
    found = of()
    assert found["streams_lag_records", "ranker"] == 720
    assert found["streams_lag_backlog_records", "ranker"] == 700
    assert found["streams_lag_age_seconds", "ranker"] == 18.5
    assert found["streams_lag_rate_in_per_second", "ranker"] == 17
    assert found["streams_lag_rate_out_per_second", "ranker"] == 14
    assert found["streams_lag_members", "ranker"] == 2
    assert found["streams_lag_sample_age_seconds", "ranker"] == 4
    assert found["streams_lag_drain_seconds", "relay"] == 2
    assert found["streams_relay_slot_unconfirmed_bytes",] == 100
    assert found["streams_relay_slot_margin_bytes",] == 4_000
    assert found["streams_relay_slot_held_bytes",] == 300
    assert found["streams_relay_polled",] == 0
    assert found["streams_relay_slot_active",] == 1
    assert found["streams_relay_canary_seconds",] == 0.03
    assert found["streams_probe_age_seconds",] == 3
    assert found["streams_reader_parked_records", "ranker"] == 4
    assert found["streams_reader_dead_letters_open", "ranker"] == 1
    assert {found["streams_server_up", server] for server in ("postgres", "kafka", "connect", "registry")} == {1}


def test_a_state_is_1_and_the_others_are_0() -> None:
    found = of(probes=PROBES | {"task": Probe(3.0, "DESTROYED", None)})
    ones = {key for key, value in found.items() if len(key) == 3 and value == 1}
    assert ones == {
        ("streams_lag_shape", "ranker", "ramp"),
        ("streams_lag_health", "ranker", "WARN"),
        ("streams_lag_shape", "relay", "ramp"),
        ("streams_lag_health", "relay", "WARN"),
        ("streams_relay_state", "connector", "RUNNING"),
        ("streams_relay_state", "task", "DESTROYED"),  # a word that Connect may learn
    }
    assert found["streams_lag_shape", "ranker", "flat"] == found["streams_relay_state", "task", "RUNNING"] == 0


def test_an_old_sample_tells_nothing_but_its_age() -> None:
    found = of(samples=[SAMPLE._replace(taken_seconds_ago=21.0)])
    assert {key: value for key, value in found.items() if "lag" in key[0]} == {
        ("streams_lag_sample_age_seconds", "ranker"): 21.0
    }


def test_old_probes_tell_nothing_but_their_age() -> None:
    found = of(probes={name: each._replace(age_seconds=61.0) for name, each in PROBES.items()})
    gone = {key[0] for key in of()} - {key[0] for key in found}
    assert gone == {"streams_relay_state", "streams_relay_canary_seconds"}
    assert [key for key in found if key[0] == "streams_server_up"] == [("streams_server_up", "postgres")]
    assert found["streams_probe_age_seconds",] == 61


@pytest.mark.parametrize("column", ["lag_records", "age_seconds", "rate_in_per_second", "shape", "health"])
def test_what_a_sample_does_not_know_is_absent(column: str) -> None:
    found = of(samples=[SAMPLE._replace(**{column: None})])
    absent = {key[0] for key in of(samples=[SAMPLE])} - {key[0] for key in found}
    assert absent == {f"streams_lag_{column.removeprefix('lag_')}"}


def test_a_connect_that_is_down_leaves_its_parts_unknown() -> None:
    down = {"connect": Probe(3.0, "down", None), "connector": Probe(3.0, None, None), "task": Probe(3.0, None, None)}
    found = of(probes=PROBES | down)
    assert found["streams_server_up", "connect"] == 0
    assert not [key for key in found if key[0] == "streams_relay_state"]


def test_a_slot_that_is_gone_has_no_bytes() -> None:
    found = of(slot=SlotState(True, True, False))
    assert (found["streams_relay_usable", "slot"], found["streams_relay_usable", "publication"]) == (0, 1)
    assert not [key for key in found if key[0].startswith("streams_relay_slot_")]


def test_a_slot_that_was_given_up_is_not_usable() -> None:
    assert of(slot=replace(SLOT, wal_status="lost", safe_bytes=None))["streams_relay_usable", "slot"] == 0


def test_while_the_polling_relay_runs_nothing_of_debeziums_is_missed() -> None:
    found = of(slot=SlotState(None, False, False, polled=True), probes=PROBES | {"connect": Probe(3.0, "down", None)})
    assert found["streams_relay_polled",] == 1
    assert not [key for key in found if key[0] in ("streams_relay_usable", "streams_relay_state") or "connect" in key]


def test_without_postgres_that_is_all_that_is_said() -> None:
    assert values(exposition(None)) == {("streams_server_up", "postgres"): 0.0}


def test_the_api_serves_the_page_also_without_postgres() -> None:
    from streams.errors import Unavailable

    class Silent(DatabaseDouble):
        async def run(self, *_: object) -> object:  # type: ignore[override]
            raise Unavailable("no answer")

    class Answering(DatabaseDouble):
        async def run(self, *_: object) -> object:  # type: ignore[override]
            return FACTS

    for database, wanted in ((Silent(), exposition(None)), (Answering(), exposition(FACTS))):
        answer = client(database).get("/metrics")
        assert (answer.status_code, answer.content) == (200, wanted)
        assert answer.headers["content-type"].startswith("text/plain; version=")


# ------------------------------------------------------------------------------------------------------- the page


def made() -> set[str]:
    """The names of all metrics, as they are served."""
    registry = CollectorRegistry()
    registry.register(Metrics(NobodysWorker()))
    analytics = {
        sample.name.removesuffix("_created")
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }
    # One that has no kind yet gives no sample.
    analytics.add("streams_analytics_unreadable_events_total")
    workers = {name for name, *_ in scraped(fleet(), {"ranker": OpenWork(0, 0)})}
    return {key[0] for key in of()} | workers | analytics


def test_the_page_lists_every_metric_and_no_other() -> None:
    assert set(re.findall(r"`(streams_\w+)", PAGE)) == made()


def test_the_page_lists_every_label_that_is_served() -> None:
    labels = {key[-1] for key in of() if len(key) > 1} - {"ranker", "RUNNING", "FAILED"}
    words = set(re.findall(r"[\w-]+", PAGE))
    assert labels - words <= {"PAUSED", "STOPPED", "UNASSIGNED", "RESTARTING"}  # Connect's own words
