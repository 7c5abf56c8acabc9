"""The metrics of `streams run`: their names, their sums over workers, and what is absent when nobody knows it."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streams.config import Settings
from streams.errors import StackError
from streams.ops.fleet import Row, Tally
from streams.ops.metrics import Fleet, OpenWork, Tables, serving
from streams.runtime.status import Blocked, Pause
from tests.support import free_port_base
from tests.unit.test_fleet import row, status

PAGE = Path(__file__).parents[2] / "docs/metrics.md"
Values = dict[tuple[str, ...], float]


def scraped(rows: Sequence[Row], open_work: Mapping[str, OpenWork] | None = None) -> Values:
    """What a scrape gives, through the text that Prometheus reads: (name, labels' values …) → value."""
    registry = CollectorRegistry()
    registry.register(Fleet(lambda: rows, lambda readers: open_work))
    return values(generate_latest(registry).decode())


def values(text: str) -> Values:
    return {
        (sample.name, sample.labels.pop("reader"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def fleet() -> list[Row]:
    """Two workers of ranker, one of which starts again, and one of indexer."""
    first = status(
        records={"done": 5, "failed": 2},
        in_flight_records=8,
        in_flight_bytes=900,
        running_handlers=3,
        paused=Pause("outage", "outage: …"),
        blocked=Blocked(0, 7, "a", 1, 3.0, "…"),
    )
    second = status(in_flight_records=1, blocked=Blocked(1, 9, "b", 1, 40.0, "…"))
    return [
        row(Tally({"done": 100}).heard(first, 0.0), restarts=2, silent_seconds=0.5),
        row(Tally({}).heard(status(reader="indexer", records={"dead": 1}), 0.0), reader="indexer"),
        row(Tally({}).heard(second, 0.0)),
        row(Tally({"done": 1}), restarts=1, life="waits", restarts_in_seconds=4.0),
    ]


def test_workers_of_a_reader_are_summed_and_each_reader_is_told() -> None:
    found = scraped(fleet(), {"ranker": OpenWork(4, 1), "indexer": OpenWork(0, 0)})
    assert found["streams_reader_records_total", "ranker", "done"] == 106
    assert found["streams_reader_records_total", "ranker", "failed"] == 2
    assert found["streams_reader_records_total", "indexer", "dead"] == 1
    assert found["streams_reader_records_total", "indexer", "done"] == 0
    assert found["streams_reader_in_flight_records", "ranker"] == 9
    assert found["streams_reader_in_flight_bytes", "ranker"] == 900
    assert found["streams_reader_running_handlers", "ranker"] == 3
    assert found["streams_reader_paused", "ranker", "outage"] == 1
    assert found["streams_reader_paused", "ranker", "full"] == 0
    assert found["streams_reader_blocked_seconds", "ranker"] == 40.0
    assert found["streams_reader_blocked_seconds", "indexer"] == 0.0
    assert found["streams_reader_workers", "ranker"] == 2
    assert found["streams_reader_worker_restarts_total", "ranker"] == 3
    assert found["streams_reader_parked_records", "ranker"] == 4
    assert found["streams_reader_dead_letters_open", "ranker"] == 1
    assert found["streams_reader_dead_letters_open", "indexer"] == 0


def test_what_postgres_does_not_tell_is_absent_and_the_rest_is_there() -> None:
    known, unknown = ({name for name, *_ in scraped(fleet(), answer)} for answer in ({"ranker": OpenWork(0, 0)}, None))
    assert known - unknown == {"streams_reader_parked_records", "streams_reader_dead_letters_open"}


def test_the_page_lists_every_outcome_and_reason() -> None:
    found = scraped(fleet())
    labels = {key[-1] for key in found if key[0] in ("streams_reader_records_total", "streams_reader_paused")}
    assert labels <= set(re.findall(r"`(\w+)`", PAGE.read_text("utf-8")))


# ------------------------------------------------------------------------------------------------ serving


def test_they_are_served_while_the_block_runs() -> None:
    port = free_port_base()
    config = Settings(db_port=free_port_base())
    with serving(config, port, fleet):
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        assert values(text)["streams_reader_records_total", "ranker", "done"] == 106
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)


def test_a_port_in_use_is_one_sentence() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(StackError, match=r"^the metrics cannot be served at 127\.0\.0\.1:\d+: Address already in use"),
        serving(Settings(), taken.getsockname()[1], fleet),
    ):
        pass


@pytest.mark.parametrize("silent", [True, False], ids=["accepts and is silent", "refuses"])
def test_a_postgres_that_does_not_answer_is_waited_for_briefly_and_asked_again_later(silent: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        tables = Tables(Settings(db_port=server.getsockname()[1]))
        if not silent:
            server.close()
        began = time.monotonic()
        assert tables(["ranker"]) is None
        asked = time.monotonic()
        assert asked - began < 4.0
        assert tables(["ranker"]) is None
        assert time.monotonic() - asked < 1.0  # what it said lately holds for a while


def test_several_scrapes_at_once_ask_postgres_once() -> None:
    class Counting(Tables):
        asked = 0

        def _ask(self, readers: Sequence[str]) -> Mapping[str, OpenWork]:
            self.asked += 1
            return dict.fromkeys(readers, OpenWork(1, 2))

    tables = Counting(Settings())
    threads = [Thread(target=tables, args=(["ranker"],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tables.asked, tables(["ranker"])) == (1, {"ranker": OpenWork(1, 2)})
