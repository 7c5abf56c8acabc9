"""Workers of the analytics as processes, each test's in a group of its own, and what SQL says to compare with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from streams.kafka.topics_admin import TopicsAdmin
from streams.topics import DOCUMENTS_SAVED, changelog
from tests.rig import ROOT, Rig, unique
from tests.support import eventually

START_SECONDS_MAX = 120.0
# What `streams analytics` does, in another group, on another log, and on any port.
_PROGRAM = """
import logging, socket, sys
from streams.analytics.worker import work
from streams.config import settings
from streams.topics import Topic

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
with socket.create_server(("127.0.0.1", 0)) as listener:
    work(settings(), listener, sys.argv[1], Topic(sys.argv[2], partitions=int(sys.argv[3])))
"""
_TOTALS = """
SELECT count(*) FILTER (WHERE deleted_at IS NULL) AS documents,
       count(*) FILTER (WHERE deleted_at IS NOT NULL) AS deleted,
       coalesce(sum(version), 0)::bigint AS saves,
       coalesce(sum(octet_length(title) + octet_length(body)), 0)::bigint AS bytes
FROM app.documents WHERE owner_id = coalesce(%s, owner_id)
"""


@dataclass
class Analytics:
    """One worker as a process."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def ask(self, path: str) -> httpx.Response:
        """What it answers; an AssertionError while it does not."""
        assert self.process.poll() is None, self.said()[-3000:]
        found = re.search(r"shows itself at (http://\S+)", self.said())
        assert found, "it has not started"
        try:
            return httpx.get(f"{found[1]}{path}", timeout=10.0, trust_env=False).raise_for_status()
        except httpx.HTTPError as error:
            raise AssertionError(error) from error

    def views(self) -> dict[str, Any]:
        return dict(self.ask("/views").json())

    def reads(self, *partitions: int) -> None:
        """Wait until it reads the log, of these partitions or of all."""
        wanted = list(partitions or range(DOCUMENTS_SAVED.partitions))

        def reading() -> bool:
            views = self.views()
            assert (views["state"], views["partitions"]) == ("reading", wanted), (views, self.said()[-3000:])
            return True

        eventually(reading, START_SECONDS_MAX, "analytics reads")

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait(20)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code after the signal, which it has 12 s for."""
        self.send(number)
        return self.process.wait(12)


def group_of(rig: Rig, partitions: int = DOCUMENTS_SAVED.partitions) -> str:
    """A group of this test alone, with its changelog."""
    group = unique("test-analytics")
    topic = changelog(group)
    TopicsAdmin(rig.config).create(type(topic)(topic.name, partitions, config=topic.config))
    rig.topics.add(topic.name)
    return group


@contextmanager
def worker(rig: Rig, group: str, source: str = DOCUMENTS_SAVED.name, partitions: int = 12) -> Iterator[Analytics]:
    """A worker; killed at the end if it still runs, after its log was looked at for what Faust says of its crashes."""
    log = rig.scratch / f"{unique('analytics')}.log"
    command = [sys.executable, "-c", _PROGRAM, group, source, str(partitions)]
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        yield Analytics(process, log)
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait(10)


def sql_totals(rig: Rig, owner: str | None = None) -> dict[str, int]:
    """What Postgres counts, of one owner or of all."""
    (row,) = rig.rows(_TOTALS, owner)
    return dict(zip(("documents", "deleted", "saves", "bytes"), row, strict=True))


def totals(workers: Iterable[Analytics]) -> dict[str, int]:
    """What workers count together."""
    views = [each.views() for each in workers]
    return {name: sum(view["totals"][name] for view in views) for name in views[0]["totals"]}


def agree(rig: Rig, *workers: Analytics, seconds: float = 60.0) -> None:
    """Wait until the workers together count what Postgres counts, exactly."""

    def equal() -> bool:
        assert totals(workers) == sql_totals(rig)
        return True

    eventually(equal, seconds, "analytics and SQL agree")
