"""`streams run` as processes: signals, exit codes, workers that die, and whose parent dies."""

from __future__ import annotations

import time

import psutil

from tests.rig import Rig, catches_up, unique
from tests.support import eventually

START_SECONDS_MAX = 120.0  # of a process on a machine that is busy with others


def test_sigterm_drains_and_commits(rig: Rig) -> None:
    prefix, slow = unique("term") + "-", unique("slow")
    group = f"{prefix}sleeper"
    behind = [unique("behind") for _ in range(5)]
    rig.start_at_end(group)
    with rig.command(prefix, "sleeper") as command:
        rig.save(slow, title="3")
        eventually(lambda: f"sleeps over {slow}" in command.said(), START_SECONDS_MAX)
        for name in behind:
            rig.save(name, title="0")
        eventually(lambda: rig.lag(group) >= 6)  # they are in the log; the one thread is busy
        assert command.end() == 0
    assert rig.done(group) == {slow: 1}
    assert "all that it finished is committed" in command.said()
    # What no handler had begun is not committed: five records, and the control records of their transactions.
    assert 5 <= rig.lag(group) <= 10
    with rig.command(prefix, "sleeper") as command:
        catches_up(rig, group, dict.fromkeys([slow, *behind], 1), START_SECONDS_MAX)
        eventually(lambda: rig.lag(group) == 0)
        assert f"sleeps over {slow}" not in command.said()


def test_a_second_signal_stops_at_once(rig: Rig) -> None:
    prefix, slow = unique("twice") + "-", unique("slow")
    group = f"{prefix}sleeper"
    rig.start_at_end(group)
    with rig.command(prefix, "sleeper") as command:
        rig.save(slow, title="60")
        eventually(lambda: f"sleeps over {slow}" in command.said(), START_SECONDS_MAX)
        command.process.terminate()
        asked_at = time.monotonic()
        while command.process.poll() is None and time.monotonic() - asked_at < 5:
            command.process.send_signal(2)
            time.sleep(0.05)
        assert command.process.wait(1) == 130
    assert rig.progress(group) == {}


def test_workers_that_die_start_again_and_a_dead_parent_takes_them_along(rig: Rig) -> None:
    prefix = unique("fleet") + "-"
    group = f"{prefix}recorder"
    rig.start_at_end(group)

    def save(names: list[str]) -> None:
        for name in names:
            rig.save(name)
        catches_up(rig, group, dict.fromkeys(names, 1), START_SECONDS_MAX)

    with rig.command(prefix, "recorder", workers=2) as fleet:
        save([unique("first") for _ in range(20)])
        eventually(lambda: f"{group}-{rig.host}-1" in fleet.said(), START_SECONDS_MAX)
        before = fleet.workers()
        assert len(before) == 2
        psutil.Process(before[0]).kill()
        eventually(lambda: len(fleet.workers()) == 2 and set(fleet.workers()) != set(before), START_SECONDS_MAX)
        assert "SIGKILL" in fleet.said()
        eventually(lambda: fleet.starts() >= 3, START_SECONDS_MAX)
        save([unique("second") for _ in range(20)])
        with rig.command(prefix, "recorder") as another:  # a second launcher takes the next free name
            eventually(lambda: f"starts as {group}-{rig.host}-2" in another.said(), START_SECONDS_MAX)
            children = [psutil.Process(pid) for pid in fleet.workers()]
            fleet.process.kill()
            gone, alive = psutil.wait_procs(children, timeout=30)
            assert (len(gone), alive) == (2, [])
            save([unique("third") for _ in range(20)])
            assert another.end() == 0


def test_a_reader_that_does_not_fit_its_table_stops_with_a_sentence(rig: Rig) -> None:
    prefix = unique("misfit") + "-"
    rig.start_at_end(f"{prefix}misfit")
    with rig.command(prefix, "misfit", workers=2) as command:
        eventually(lambda: command.said().count(": reads ") >= 1, START_SECONDS_MAX)
        rig.save(unique("any"))
        assert command.process.wait(60) == 4
    assert "error: reader" in command.said()
    assert 'relation "readers.no_such_table" does not exist' in command.said()
    assert rig.progress(f"{prefix}misfit") == {}
