"""A real Prometheus on a real stack: each fault is alarmed, the doctor names it, the runbook's command mends it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from streams.cdc import connector
from streams.cdc.connect import Connect
from streams.config import Settings
from streams.database import connect
from streams.ops.probes import Prober
from tests.api_process import free_port, serving
from tests.integration.test_doctor import drop_slot, execute, kill_registry
from tests.prometheus import program
from tests.relay_rig import Events, doctor, own_topic, streams
from tests.support import eventually
from tests.unit.test_rules import DASHBOARD, FOLDER, panels, section

pytestmark = pytest.mark.timeout(600)

ALARM_SECONDS_MAX = 180.0  # 30 s until a row is late, two rounds of the prober, and a slow machine


@dataclass
class Prometheus:
    """A running one."""

    url: str

    def get(self, path: str, **params: str) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=params, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json()["data"]

    def alarmed(self) -> set[str]:
        """The alerts whose condition holds; promtool has proved that they fire after their time."""
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"]}

    def value(self, query: str) -> float | None:
        """None if there is no such series."""
        found = self.get("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[Prometheus]:
    """Our example with our rules, quicker, and one target."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(FOLDER / "rules.yml")]
    config["scrape_configs"] = [{"job_name": "distributary-api", "static_configs": [{"targets": [target]}]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    options = [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [program("prometheus"), f"--config.file={folder / 'prometheus.yml'}", *options], stdout=log, stderr=log
    )
    try:
        yield Prometheus(f"http://{address}")
    finally:
        process.kill()
        process.wait()
        log.close()


@pytest.fixture(scope="module")
def watched(stack: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with (
        serving() as api,
        prometheus(api.url.removeprefix("http://"), tmp_path_factory.mktemp("prometheus")) as running,
    ):
        yield running


@pytest.fixture
def healthy(watched: Prometheus) -> Prometheus:
    """With nothing alarmed, and everything that the API can tell told."""
    eventually(lambda: _is_measured(watched) and watched.alarmed() == set(), 120, "nothing alarmed")
    return watched


def _is_measured(watched: Prometheus) -> bool:
    try:
        canary = watched.value("streams_relay_canary_seconds")
        return canary is not None and watched.value('streams_lag_records{group="relay"}') is not None
    except httpx.TransportError:
        return False


@pytest.fixture
def events(stack: Settings) -> Iterator[Events]:
    with own_topic(stack, f"test-alerts-{os.urandom(3).hex()}") as events:
        yield events
        execute(stack, "DELETE FROM app.topics WHERE name = 'not a topic!'")


# ----------------------------------------------------------------------------------------------------- the faults


def use_margin_up(events: Events) -> None:
    """Nobody reads the slot, and it may hold back 64 MiB and what is left of two segments: 67 MiB are written."""
    with Connect(events.config) as worker:
        worker.stop(connector.NAME)
        connector.wait_until_stopped(worker)
    execute(events.config, "ALTER SYSTEM SET max_slot_wal_keep_size = '64MB'")
    execute(events.config, "SELECT pg_reload_conf()")
    write_wal(events.config, 70)


def write_wal(config: Settings, megabytes: int) -> None:
    fill = f"SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)) FROM generate_series(1, {megabytes})"
    execute(config, fill)


def poison(events: Events) -> None:
    """A row for a topic that no broker takes."""
    execute(events.config, "INSERT INTO app.topics VALUES ('not a topic!') ON CONFLICT DO NOTHING")
    events.emit(topic="not a topic!")
    events.sent.pop()


def pause(events: Events) -> None:
    """A task that failed would be restarted by the API before anybody is alarmed."""
    httpx.put(f"{events.config.connect_url}/connectors/{connector.NAME}/pause").raise_for_status()


class Fault(NamedTuple):
    """How it is made, the alerts that come, the check that the doctor faults, and the command that mends it."""

    make: Callable[[Events], None]
    alerts: set[str]
    check: str
    command: str


FAULTS = {
    "slot dropped": Fault(drop_slot, {"RelaySourceLost"}, "slot", "streams outbox repair"),
    "connector paused": Fault(pause, {"RelayNotRunning"}, "connector", "streams setup"),
    "poison row": Fault(poison, {"RelayStalled", "CanaryLate"}, "outbox", "streams outbox skip"),
    "registry gone": Fault(kill_registry, {"ServerDown"}, "registry", "streams up"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_alarmed_named_and_mended(healthy: Prometheus, events: Events, name: str) -> None:
    fault = FAULTS[name]
    events.emit(3)
    fault.make(events)
    eventually(lambda: fault.alerts <= healthy.alarmed(), ALARM_SECONDS_MAX, f"{fault.alerts} are alarmed")
    mend(healthy, events, fault)


def test_a_margin_that_is_used_up_is_alarmed_named_and_mended(healthy: Prometheus, events: Events) -> None:
    """First while there is time, then when the slot is lost."""
    events.emit(3)
    use_margin_up(events)
    try:
        eventually(lambda: "SlotMarginLow" in healthy.alarmed(), 30, "the margin is alarmed")
        assert "it will soon be lost" in doctor().faults["slot"]
        assert "streams doctor" in section("SlotMarginLow")
        write_wal(events.config, 60)
        execute(events.config, "CHECKPOINT")
        eventually(lambda: "RelaySourceLost" in healthy.alarmed(), 30, "the lost slot is alarmed")
        mend(healthy, events, Fault(use_margin_up, {"RelaySourceLost"}, "slot", "streams outbox repair"))
    finally:
        execute(events.config, "ALTER SYSTEM RESET max_slot_wal_keep_size")
        execute(events.config, "SELECT pg_reload_conf()")


def mend(watched: Prometheus, events: Events, fault: Fault) -> None:
    """By the command that the doctor prints, which stands in the section of each alert; then all is silent again."""
    found = doctor()
    assert fault.check in found.faults
    (command,) = found.commands
    assert command.startswith(fault.command)
    for alert in fault.alerts:
        assert re.search(rf"`{fault.command}\b", section(alert)), alert
    done = streams(command)
    assert done.returncode == 0, done.stderr
    events.all_arrive()
    eventually(lambda: watched.alarmed() == set(), ALARM_SECONDS_MAX, "the alarm is over")
    assert (doctor().exit_code, shlex.split(command)[0]) == (0, "streams")


# ------------------------------------------------------------------------------------------------------ the others


def test_a_dead_letter_is_alarmed_at_once(healthy: Prometheus, stack: Settings) -> None:
    execute(stack, "INSERT INTO readers.registered (reader) VALUES ('alerted') ON CONFLICT DO NOTHING")
    try:
        eventually(lambda: healthy.value('streams_reader_dead_letters_open{reader="alerted"}') == 0)
        columns = _required_columns(stack)
        execute(
            stack, f"INSERT INTO readers.dead_letters ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"
        )
        eventually(lambda: {"DeadLettersGrew", "DeadLettersOpen"} <= healthy.alarmed(), 30, "it is alarmed")
    finally:
        execute(stack, "DELETE FROM readers.dead_letters WHERE reader = 'alerted'")
        execute(stack, "DELETE FROM readers.registered WHERE reader = 'alerted'")


def _required_columns(stack: Settings) -> dict[str, str]:
    """A value for each column that must have one."""
    values = {"text": "''", "integer": "0", "bigint": "0", "bytea": "''", "timestamp with time zone": "now()"}
    values |= {"ARRAY": "'{}'", "uuid": "gen_random_uuid()", "jsonb": "'{}'"}
    with connect(stack) as connection:
        found = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'readers' "
            "AND table_name = 'dead_letters' AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'"
        ).fetchall()
    return {f'"{name}"': "'alerted'" if name == "reader" else values[kind] for name, kind in found}


def test_no_api_is_alarmed(stack: Settings, tmp_path: Path) -> None:
    with prometheus(f"127.0.0.1:{free_port()}", tmp_path) as alone:

        def alarmed() -> bool:
            try:
                return alone.alarmed() == {"NothingMeasured"}
            except httpx.TransportError:
                return False

        eventually(alarmed, 60, "that nothing is measured")


def test_every_panel_of_the_stack_shows_something(healthy: Prometheus) -> None:
    """Those of workers and of the analytics, which do not run here, are no error at least."""
    for panel in panels():
        for target in panel["targets"]:
            query = target["expr"].replace("$group", ".*")
            found = healthy.get("query", query=query)["result"]
            if query.count("streams_") == len(re.findall(r"streams_(?:server|relay|probe)_\w+", query)):
                assert found, f"{panel['title']}: {query}"
    assert len(DASHBOARD["panels"]) > 15


def test_one_prober_at_a_time(healthy: Prometheus, stack: Settings) -> None:
    with Prober(stack) as second:
        assert not second.is_chosen()
    assert healthy.value("streams_probe_age_seconds") is not None


def test_figures_of_a_recorder_that_is_gone_grow_old_and_go(healthy: Prometheus, stack: Settings) -> None:
    """Whoever takes the locks and does nothing with them is as a process that hangs."""
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'distributary-%'"
    with connect(stack, autocommit=True) as thief:

        def has_both() -> bool:
            execute(stack, ended)
            thief.execute("SELECT pg_advisory_unlock_all()")
            return thief.execute(
                "SELECT pg_try_advisory_lock(%s) AND pg_try_advisory_lock(%s)", [0x6C616773, 0x70726F62]
            ).fetchone() == (True,)

        eventually(has_both, 60, "both locks")
        eventually(lambda: healthy.value('streams_lag_records{group="relay"}') is None, 60, "the lag is withheld")
        assert (healthy.value('streams_lag_sample_age_seconds{group="relay"}') or 0) > 20
        eventually(lambda: healthy.value("streams_relay_canary_seconds") is None, 90, "the canary is withheld")
        eventually(lambda: "MeasuresStale" in healthy.alarmed(), 60, "it is alarmed")
    eventually(lambda: _is_measured(healthy), 60, "it is measured again")
