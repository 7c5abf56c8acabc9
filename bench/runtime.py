"""The readers' runtime against what could do without it: `python -m bench.runtime`. Exit code 1 if a goal is missed.

Each figure is the median of five runs, by turns with what it is compared to (A B A B …), so that whatever the machine
does beside hits both; a ratio is the median of the five ratios. Each turn is a process of its own: see bench/turns.
The stack is that of STREAMS_HOME, started if it does not run, and stopped again. All topics and rows are removed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import randbytes
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.turns import keys, noop, processes, sink, stuck_key
from bench.turns.running import filled, turn
from streams.config import Settings, settings
from streams.database import connect
from streams.kafka.codec import Codec
from streams.kafka.registry import Registry
from streams.kafka.topics_admin import TopicsAdmin
from streams.lab import services
from streams.topics import dead_letters

RUNS = 5
NOOP_RECORDS = 200_000
NOOP_KEYS = 10_000
NOOP_BYTES = 1_024
QUIX_PYTHON = Path(__file__).parents[1] / ".venv-bench" / "bin" / "python"
Found = dict[str, float]
Turn = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure must be at least, or at most."""

    least: float | None = None
    most: float | None = None

    def is_met(self, figure: float) -> bool:
        return (self.least is None or figure >= self.least) and (self.most is None or figure <= self.most)

    def __str__(self) -> str:
        return f"≥ {self.least:,g}" if self.least is not None else f"≤ {self.most:,g}"


GOALS = {
    "noop_ratio": Goal(least=0.6),
    "noop_quix_ratio": Goal(least=1.0),
    "keys_1_ratio": Goal(most=1.05),
    "keys_10_seconds": Goal(most=3.3),
    "keys_100_seconds": Goal(most=0.45),
    "keys_1000_seconds": Goal(most=0.45),
    "keys_100_bare_ratio": Goal(most=1.3),
    "sink_documents_per_second": Goal(least=15_000),
    "sink_bare_ratio": Goal(least=0.4),
    "process_ratio": Goal(least=0.9),
    "stuck_key_rss_bytes": Goal(most=300_000_000),
}


def by_turns(say: Callable[[str], None], **turns: Turn) -> dict[str, list[float]]:
    """The figures of each, five times each, in turns."""
    measured: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(RUNS):
        for name, one in turns.items():
            measured[name].append(one())
            say(f"  {number + 1} of {RUNS}: {name} {measured[name][-1]:,.3f}")
    return measured


def ratio(above: list[float], below: list[float]) -> float:
    """The median of the ratios of neighbouring turns."""
    return median(a / b for a, b in zip(above, below, strict=True))


def measure_noop(config: Settings, say: Callable[[str], None]) -> Found:
    """Rates are compared, so the seconds stand the other way round."""
    names = [f"{number:08}" for number in range(NOOP_KEYS)]
    padding = randbytes(NOOP_BYTES - noop.ID_BYTES)
    records = ((names[n % NOOP_KEYS], names[n % NOOP_KEYS].encode() + padding) for n in range(NOOP_RECORDS))
    with filled(config, records) as topic:
        quix = partial(turn, "bench.turns.noop_quix", config.bootstrap_servers, topic, NOOP_RECORDS)
        measured = by_turns(
            say,
            plain=partial(turn, "bench.turns.noop", "plain", topic, NOOP_RECORDS),
            runtime=partial(turn, "bench.turns.noop", "runtime", topic, NOOP_RECORDS),
            quix=partial(quix, python=str(QUIX_PYTHON)),
        )
    return {
        "noop_ratio": ratio(measured["plain"], measured["runtime"]),
        "noop_quix_ratio": ratio(measured["quix"], measured["runtime"]),
    }


def measure_keys(config: Settings, say: Callable[[str], None]) -> Found:
    """One key against a plain loop, a hundred against bare tasks, ten and a thousand for themselves."""
    found: Found = {}
    for count in (1, 10, 100, 1_000):
        with filled(config, keys.records(count)) as topic:
            turns = {f"runtime, keys {count}": partial(turn, "bench.turns.keys", "runtime", count, topic)}
            if count in (1, 100):
                kind = "sequential" if count == 1 else "tasks"
                turns[kind] = partial(turn, "bench.turns.keys", kind, count)
            ours, *other = by_turns(say, **turns).values()
        if count > 1:
            found[f"keys_{count}_seconds"] = median(ours)
        if other:
            found["keys_1_ratio" if count == 1 else "keys_100_bare_ratio"] = ratio(ours, other[0])
    return found


def measure_sink(config: Settings, say: Callable[[str], None]) -> Found:
    with filled(config, sink.records(Codec(Registry(config)), sink.DOCUMENTS)) as topic, forgotten(config, sink.GROUP):
        measured = by_turns(
            say,
            runtime=partial(turn, "bench.turns.sink", "runtime", sink.DOCUMENTS, topic),
            bare=partial(turn, "bench.turns.sink", "bare", sink.DOCUMENTS),
        )
    return {
        "sink_documents_per_second": sink.DOCUMENTS / median(measured["runtime"]),
        "sink_bare_ratio": ratio(measured["bare"], measured["runtime"]),
    }


def measure_processes(config: Settings, say: Callable[[str], None]) -> Found:
    with filled(config, processes.records(processes.CALLS)) as topic:
        measured = by_turns(
            say,
            runtime=partial(turn, "bench.turns.processes", "runtime", processes.CALLS, topic),
            pool=partial(turn, "bench.turns.processes", "pool", processes.CALLS),
        )
    return {"process_ratio": ratio(measured["pool"], measured["runtime"])}


def measure_stuck_key(config: Settings, say: Callable[[str], None]) -> Found:
    """Once: it takes minutes, and memory does not depend on what the machine does beside."""
    records, total = stuck_key.records(Codec(Registry(config)), stuck_key.RECORDS), stuck_key.RECORDS
    with filled(config, records, partitions=12) as topic, forgotten(config, stuck_key.GROUP):
        say(f"  {total:,} records, half of them of one key")
        return {"stuck_key_rss_bytes": turn("bench.turns.stuck_key", topic, total // 2)}


PARTS = {
    "noop": measure_noop,
    "keys": measure_keys,
    "sink": measure_sink,
    "process": measure_processes,
    "stuck-key": measure_stuck_key,
}


@contextmanager
def forgotten(config: Settings, group: str) -> Iterator[None]:
    """Afterwards the rows and topics of groups that begin so are gone."""
    try:
        yield
    finally:
        with connect(config, autocommit=True) as connection:
            for table in ("progress", "output", "parked", "owners", "registered"):
                connection.execute(f"DELETE FROM readers.{table} WHERE starts_with(reader, %s)", [group])
            letters = dead_letters(group).name
            if connection.execute("DELETE FROM app.topics WHERE name = %s", [letters]).rowcount:
                TopicsAdmin(config).delete(letters)


def show(found: Found, console: Console) -> bool:
    """Print the table; whether every goal is met."""
    table = Table("", "MEASURED", "GOAL", "", box=None)
    for name, figure in found.items():
        text = f"{figure:,.0f}" if figure >= 1_000 else f"{figure:.3f}"
        table.add_row(name, text, str(GOALS[name]), "" if GOALS[name].is_met(figure) else "MISSED")
    console.print(table)
    return all(GOALS[name].is_met(figure) for name, figure in found.items())


def main() -> None:
    """Run it, or parts of it."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all, if none is named")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    chosen = options.parse_args()
    if unknown := set(chosen.parts) - PARTS.keys():
        options.error(f"there is no part {sorted(unknown)[0]!r}: the parts are {', '.join(PARTS)}")
    config, told, found = settings(), Console(stderr=True, highlight=False), Found()
    with services.stack(config, told):
        for name in chosen.parts or PARTS:
            told.print(name)
            found |= PARTS[name](config, told.print)
    if chosen.json:
        chosen.json.write_text(json.dumps({name: round(figure, 4) for name, figure in found.items()}) + "\n", "utf-8")
    sys.exit(0 if show(found, Console(highlight=False)) else 1)


if __name__ == "__main__":
    main()
