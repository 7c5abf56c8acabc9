"""`streams run` as people and programs watch it: on a terminal, by its log, by its metrics; and KIP-848."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest
from confluent_kafka import ConsumerGroupType

from tests.rig import Command, Rig, catches_up, unique
from tests.support import eventually, free_port_base
from tests.terminal import CTRL_C, Terminal, terminal
from tests.unit.test_metrics import Values, values

START_SECONDS_MAX = 120.0  # of a process on a machine that is busy with others


# --------------------------------------------------------------------------------------------- a terminal


def test_a_terminal_shows_the_workers_what_blocks_them_and_the_log_above(rig: Rig) -> None:
    prefix, slow = unique("seen") + "-", unique("slow")
    group = f"{prefix}sleeper"
    rig.start_at_end(group)
    with terminal(*rig.invocation(prefix, "sleeper", workers=2)) as seen:
        eventually(lambda: states(seen, group) == ["reads", "reads"], START_SECONDS_MAX)
        assert not seen.echoes()
        seen.type(b"\nkeys that would shift the table\n")
        rig.save(slow, title="8")
        eventually(lambda: blocking(seen) == [slow], 60)
        log, table = halves(seen)
        assert len([line for line in table if "READER" in line]) == 1
        assert f"sleeps over {slow}" in log
        assert any(
            re.fullmatch(rf"\d\d:\d\d:\d\dZ info {group}-\S+: reads documents-saved from .*", one) for one in log
        )
        eventually(lambda: blocking(seen) == [] and sum(done(seen, group)) == 1, 60)

        psutil.Process(seen.pid).children()[0].kill()
        eventually(lambda: any("SIGKILL) and starts again at once" in line for line in halves(seen)[0]), 30)
        eventually(lambda: states(seen, group) == ["reads", "reads"], START_SECONDS_MAX)
        assert sum(done(seen, group)) == 1  # over the restart too, whoever it was

        seen.type(CTRL_C)
        assert seen.end() == 0
        assert any("all that it finished is committed" in line for line in seen.lines()), seen.lines()
        assert seen.echoes()


def halves(seen: Terminal) -> tuple[list[str], list[str]]:
    """The log, and the table below it."""
    lines = seen.lines()
    heads = [number for number, line in enumerate(lines) if line.startswith("READER ")]
    assert heads, lines
    return lines[: heads[0]], [line for line in lines[heads[0] :] if line]


def states(seen: Terminal, group: str) -> list[str]:
    _, (_, *rows) = halves(seen)
    return [row.split()[2] for row in rows if row.startswith(group)]


def done(seen: Terminal, group: str) -> list[int]:
    """The column DONE."""
    _, (head, *rows) = halves(seen)
    end = head.index("DONE") + len("DONE")
    numbers = [row[:end].split()[-1].replace(",", "") for row in rows if row.startswith(group)]
    assert all(map(str.isdigit, numbers)), rows  # else the screen was read while it was drawn
    return [int(number) for number in numbers]


def blocking(seen: Terminal) -> list[str]:
    """The documents that are named as those whose handler runs."""
    text = re.sub(r"\s+", " ", " ".join(halves(seen)[1]))
    return re.findall(r"\d+:\d+ (\S+) version 1, read [\d.]+ s ago: its handler runs for \d+ s", text)


def test_in_the_background_the_terminal_is_left_to_the_shell(rig: Rig) -> None:
    prefix = unique("background") + "-"
    rig.start_at_end(f"{prefix}recorder")
    command, env = rig.invocation(prefix, "recorder", workers=1)
    script = 'set -m; "$@" & sleep 0.1; read -r line; echo "typed: $line"; kill %1; wait %1; echo "ended: $?"'
    with terminal(["bash", "-c", script, "bash", *command], env) as seen:
        eventually(lambda: any(": reads " in line for line in seen.lines()), START_SECONDS_MAX)
        assert seen.echoes()
        seen.type(b"a line for the shell\n")
        eventually(lambda: any(line.startswith("ended: ") for line in seen.lines()), 60)
        assert not any(line.startswith("READER") for line in seen.lines())
        assert "typed: a line for the shell" in seen.lines()
        assert "ended: 0" in seen.lines()


# ------------------------------------------------------------------------------------------------ the log


def test_a_log_file_is_one_event_a_line_with_reader_and_worker(rig: Rig) -> None:
    prefix, bad = unique("log") + "-", unique("bad")
    group = f"{prefix}picky"
    rig.start_at_end(group)
    with rig.command(prefix, "picky") as command:
        rig.save(bad, title="never")
        eventually(lambda: "given up: a dead letter" in command.said(), START_SECONDS_MAX)
        assert command.end() == 0
    lines = command.said().splitlines()
    line = re.compile(r'time=\S+Z level=\w+ reader=(\S+) worker=(\S+) msg=("(?:[^"\\]|\\.)*"|\S+)')
    events = [line.fullmatch(each) for each in lines]
    assert all(events), lines
    (failure,) = [each for each in events if each is not None and "given up" in each[3]]
    assert failure[1] == group
    assert failure[2] == f"{group}-{rig.host}-0"
    assert f"{bad} version 1" in json.loads(failure[3])


# ---------------------------------------------------------------------------------------------- metrics


def test_metrics_tell_of_records_that_fail_of_restarts_and_nothing_of_a_postgres_that_is_away(rig: Rig) -> None:
    prefix = unique("measured") + "-"
    group = f"{prefix}picky"
    good = [unique("good") for _ in range(6)]
    rig.start_at_end(group)
    for name in good[:3]:
        rig.save(name)
    rig.save(unique("bad"), title="never")
    rig.save(unique("waits"), title="later")
    port = free_port_base()
    with rig.command(prefix, "picky", workers=2, STREAMS_METRICS_PORT=str(port)) as fleet:
        eventually(lambda: as_wanted(settled(scrape(port), group, done=3), group), START_SECONDS_MAX)

        kill_and_wait(fleet, port, group)
        assert settled(scrape(port), group, done=3)
        for name in good[3:]:
            rig.save(name)
        eventually(lambda: settled(scrape(port), group, done=6), 60)

        of_postgres = {("streams_reader_parked_records", group), ("streams_reader_dead_letters_open", group)}
        with rig.refusing():
            eventually(lambda: not of_postgres & scrape(port).keys(), 30)
            assert settled(scrape(port), group, done=6)
        eventually(lambda: of_postgres <= scrape(port).keys(), 30)
        assert fleet.end() == 0


def scrape(port: int) -> Values:
    try:
        return values(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=10).text)
    except httpx.ConnectError:  # it does not serve yet
        return {}


def as_wanted(found: Values, group: str) -> bool:
    """The figures of three good records, one that is rejected and one that is parked, at two workers."""
    outcomes = {"dead": 1, "failed": 1, "parked": 1, "superseded": 0}
    assert {name: found["streams_reader_records_total", group, name] for name in outcomes} == outcomes
    gauges = {"workers": 2, "dead_letters_open": 1, "parked_records": 1, "blocked_seconds": 0}
    assert {name: found[f"streams_reader_{name}", group] for name in gauges} == gauges
    return True


def settled(found: Values, group: str, done: int) -> Values:
    """The metrics, if so many records are done and none is in flight."""
    assert found.get(("streams_reader_records_total", group, "done")) == done, found
    assert found["streams_reader_in_flight_records", group] == 0
    return found


def has_restarted(fleet: Command, port: int, group: str) -> bool:
    """As often as it says itself: a worker that a busy machine keeps waiting may end by itself too."""
    said, restarts = fleet.said(), scrape(port)["streams_reader_worker_restarts_total", group]
    assert restarts == said.count("a worker ended (") > 0, (restarts, said)
    assert "a worker ended (SIGKILL) and starts again at once" in said
    return True


def kill_and_wait(fleet: Command, port: int, group: str) -> None:
    """kill -9 of a worker; wait for its successor."""
    eventually(lambda: fleet.starts() >= 2, START_SECONDS_MAX)  # one alone may have done all until now
    psutil.Process(fleet.workers()[0]).kill()
    eventually(lambda: has_restarted(fleet, port, group), 30)
    eventually(lambda: fleet.starts() >= 3, START_SECONDS_MAX)
    assert scrape(port)["streams_reader_workers", group] == 2


# --------------------------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("readers", "environment", "code", "sentence"),
    [
        (["no-such-reader"], {}, 4, "error: there is no reader 'no-such-reader'"),
        (["ranker"], {"STREAMS_GROUP_PROTOCOL": "newest"}, 2, "error: STREAMS_GROUP_PROTOCOL is not valid"),
        (["ranker"], {"STREAMS_METRICS_PORT": "taken"}, 3, "error: the metrics cannot be served at 127.0.0.1:"),
    ],
)
def test_what_cannot_run_says_so_and_ends(
    rig: Rig, readers: list[str], environment: dict[str, str], code: int, sentence: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        environment = {name: port if value == "taken" else value for name, value in environment.items()}
        command, env = rig.invocation("", *readers, workers=1, **environment)
        ended = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    rig.groups.discard("no-such-reader")
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (code, "", 1)
    assert ended.stderr.startswith(sentence)


# ------------------------------------------------------------------------------------------------ KIP-848


def test_workers_of_the_new_group_protocol_do_everything_although_one_is_killed(rig: Rig) -> None:
    prefix = unique("kip848") + "-"
    group = f"{prefix}recorder"
    names = [unique("doc") for _ in range(200)]
    rig.start_at_end(group)
    with rig.command(prefix, "recorder", workers=2, STREAMS_GROUP_PROTOCOL="consumer") as fleet:
        for name in names[:100]:
            rig.save(name)
        eventually(lambda: len(rig.done(group)) >= 10 and fleet.starts() >= 2, START_SECONDS_MAX)
        psutil.Process(fleet.workers()[0]).kill()
        for name in names[100:]:
            rig.save(name)
        catches_up(rig, group, dict.fromkeys(names, 1), START_SECONDS_MAX)
        (listed,) = [one for one in rig.admin.list_consumer_groups().result().valid if one.group_id == group]
        assert listed.type == ConsumerGroupType.CONSUMER
        eventually(lambda: fleet.starts() >= 3, START_SECONDS_MAX)
        eventually(lambda: rig.lag(group) == 0, 60)
        assert fleet.end() == 0
    assert rig.dead_letters(group, "document_id") == []
