"""The local stack's start, memory and idle load: `python -m bench.stack`. Exit code 1 if a goal is missed.

Starts are of the stack of the settings, which is stopped before each; memory and load are those of everything that runs
for it: the servers, the API, three readers. Close other work before: the load is a share of this machine's cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table

from streams.config import Settings, settings
from streams.lab import services
from streams.lab.demo import READERS
from streams.stack import local
from streams.stack.process import LocalProcess

STARTS = 3
UP_SECONDS_GOAL = 8.0
MEMORY_BYTES_GOAL = 1_500_000_000
IDLE_CORE_PERCENT_GOAL = 25.0
SETTLE_SECONDS = 15.0  # until readers have joined, caches are filled and compilers are done


@dataclass(frozen=True, slots=True)
class Measured:
    """`parts` has the memory in bytes and the share of a core in percent of each part."""

    up_seconds: list[float]
    up_seconds_median: float
    memory_bytes: int
    idle_core_percent: float
    idle_seconds: float
    parts: dict[str, tuple[int, float]]

    @property
    def is_good(self) -> bool:
        """Whether every goal is reached."""
        return (
            self.up_seconds_median <= UP_SECONDS_GOAL
            and self.memory_bytes <= MEMORY_BYTES_GOAL
            and self.idle_core_percent <= IDLE_CORE_PERCENT_GOAL
        )


def measure(config: Settings, console: Console, idle_seconds: float) -> Measured:
    """Bring the stack up some times, then watch it idle. Leaves it down unless it ran before."""
    with ExitStack() as running:
        running.enter_context(services.stack(config, console))
        starts = [_start(config, console) for _ in range(STARTS)]
        running.enter_context(services.api(config))
        running.enter_context(services.readers(config, READERS))
        names = [*local.NAMES, local.API, services.READERS]
        processes = {name: LocalProcess(name, config.home.resolve()) for name in names}
        time.sleep(SETTLE_SECONDS)
        loads = _idle_core_percent(processes, idle_seconds)
        memory = {name: sum(map(_memory_bytes, _family(process))) for name, process in processes.items()}
    parts = {name: (memory[name], loads[name]) for name in names}
    return Measured(starts, median(starts), sum(memory.values()), sum(loads.values()), idle_seconds, parts)


def _start(config: Settings, console: Console) -> float:
    """Seconds of an `up` after a `down`, as `streams up` does it, imports aside."""
    local.down(config, console)
    began = time.perf_counter()
    local.up(config, console)
    return time.perf_counter() - began


def _family(process: LocalProcess) -> list[psutil.Process]:
    """A part's process with all its descendants."""
    parent = process.running()
    if parent is None:
        sys.exit(f"error: {process.name} does not run: {process.last_words()}")
    return [parent, *parent.children(recursive=True)]


def _idle_core_percent(processes: dict[str, LocalProcess], seconds: float) -> dict[str, float]:
    before = {name: _cpu_seconds(process) for name, process in processes.items()}
    began = time.perf_counter()
    time.sleep(seconds)
    passed = time.perf_counter() - began
    return {name: 100 * (_cpu_seconds(process) - before[name]) / passed for name, process in processes.items()}


def _cpu_seconds(process: LocalProcess) -> float:
    """Of the whole family; what children used that have ended since counts too, by their parents."""
    return sum(sum(each.cpu_times()[:4]) for each in _family(process))  # user, system, and both of ended children


def _memory_bytes(process: psutil.Process) -> int:
    """Its proportional share where the system tells it, so that shared pages count once; else all that is resident."""
    memory = process.memory_full_info()
    return int(getattr(memory, "pss", memory.rss))


def _print(console: Console, measured: Measured) -> None:
    table = Table("PART", "MEMORY", "IDLE, OF A CORE", box=None)
    for name, (memory_bytes, percent) in measured.parts.items():
        table.add_row(name, f"{memory_bytes / 1e6:,.0f} MB", f"{percent:.1f} %")
    console.print(table)
    starts = ", ".join(f"{seconds:.1f}" for seconds in measured.up_seconds)
    rows = [
        ("warm start, median", f"{measured.up_seconds_median:.1f} s ({starts})", f"{UP_SECONDS_GOAL:.0f} s"),
        ("memory", f"{measured.memory_bytes / 1e6:,.0f} MB", f"{MEMORY_BYTES_GOAL / 1e6:,.0f} MB"),
        ("idle", f"{measured.idle_core_percent:.1f} % of a core", f"{IDLE_CORE_PERCENT_GOAL:.0f} %"),
    ]
    summary = Table("", "MEASURED", "GOAL, AT MOST", box=None)
    for row in rows:
        summary.add_row(*row)
    console.print(summary)


def main() -> None:
    """Measure, print, and write the figures if asked to."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--idle-seconds", type=float, default=60)
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    chosen = options.parse_args()
    console = Console(stderr=True)
    try:
        with services.interruptible():
            measured = measure(settings(), console, chosen.idle_seconds)
    except KeyboardInterrupt:
        sys.exit(130)
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(measured)) + "\n", "utf-8")
    _print(Console(), measured)
    sys.exit(0 if measured.is_good else 1)


if __name__ == "__main__":
    main()
