"""What the tests of bounded replays share: a reader that tells codes and versions apart, and running a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from streams.contract import DocumentSaved, Effect, Increment, Reader, Upsert, reader
from streams.ops.replay_runs import Asked, ReplayRuns, Run
from streams.ops.replay_worker import Result, Seen, work
from tests.rig import Rig, unique
from tests.support import eventually


class Versions:
    """A reader that says of each document which version it has seen, and by which code; it counts the versions too."""

    def __init__(self) -> None:
        self.group = unique("versions")
        self.code = "old"
        self.calls: Counter[tuple[str, int]] = Counter()
        self.reader: Reader = reader(group=self.group)(self._handle)

    def _handle(self, doc: DocumentSaved) -> list[Effect]:
        self.calls[doc.document_id, doc.version] += 1
        return [
            Upsert(doc.document_id, {"version": doc.version, "code": self.code}),
            Increment("all", {"versions": 1}),
        ]


def begin(rig: Rig, found: Reader, topic: str, since: str = "earliest", until: str = "latest", **more: Any) -> Run:
    runs, asked = ReplayRuns(rig.config), Asked(since, until, topic=topic, **more)
    return runs.begin(found, asked, runs.plan(found, asked))


def go(rig: Rig, found: Reader, run: Run, show: Callable[[Seen], None] = lambda _: None) -> Result:
    """Run it to its end."""
    return work(rig.config, found, run, show, lambda _stop: None)


@contextmanager
def going(rig: Rig, found: Reader, run: Run) -> Iterator[Callable[[], None]]:
    """Run it beside the test, which gets the means to stop it."""
    stops: list[Callable[[], None]] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            work(rig.config, found, run, lambda _: None, stops.append)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            errors.append(error)

    thread = Thread(target=target, daemon=True)
    thread.start()
    try:
        yield eventually(lambda: stops, 30)[0]
    finally:
        with suppress(IndexError):
            stops[0]()
        thread.join(40)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def listed(rig: Rig, run: Run) -> Run:
    return ReplayRuns(rig.config).get(run.run)
