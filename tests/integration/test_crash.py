"""kill -9 of Connect, of a reader's worker, of the broker and of Postgres, one after the other, while saves go on."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import psutil
import psycopg
import pytest

from streams.errors import Unavailable
from streams.outbox.save import Document, Origin, save
from tests.readers_for_tests.plain import digest
from tests.rig import BUILT_IN, Rig, unique
from tests.support import eventually

DOCUMENTS, VERSIONS, SAVERS = 100, 10, 4


class Savers:
    """Saves every version of every document, however often Postgres has to be asked; a document's by one thread."""

    def __init__(self, rig: Rig, names: list[str]) -> None:
        self.saved = 0
        self._rig = rig
        self._names = names
        self._pace = [Event() for _ in range(4)]
        self._threads = [Thread(target=self._save, args=(names[number::SAVERS],)) for number in range(SAVERS)]
        self._faults: list[BaseException] = []

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def go_on(self, step: int) -> None:
        """Let them into the next fifth of the saves."""
        self._pace[step].set()

    def end(self) -> None:
        for thread in self._threads:
            thread.join(120)
        assert not self._faults, self._faults

    def _save(self, names: list[str]) -> None:
        try:
            for version in range(1, VERSIONS + 1):
                if version in (3, 5, 7, 9):
                    assert self._pace[version // 2 - 1].wait(120)
                for name in names:
                    self._save_one(name, version)
                    self.saved += 1
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self._faults.append(error)

    def _save_one(self, name: str, version: int) -> None:
        """The key makes an unanswered save safe to repeat: it may have been committed."""
        document, key = Document(name, "crash", f"title {version}", body(name, version)), f"{name} {version}"

        def saved() -> int:
            try:
                with self._rig.connect() as connection:
                    origin = Origin(idempotency_key=key)
                    return save(connection, self._rig.codec.encode, document, origin).version
            except (psycopg.OperationalError, Unavailable):
                return 0

        assert eventually(saved, 60) == version


def body(name: str, version: int) -> str:
    return f"This is {name} in its version {version}. " * 20


@pytest.mark.timeout(600)
def test_every_version_reaches_every_reader_through_the_death_of_each_part(rig: Rig) -> None:
    prefix = unique("crash") + "-"
    names = [unique(f"doc-{number}") for number in range(DOCUMENTS)]
    groups = [f"{prefix}recorder", f"{prefix}counter", *BUILT_IN]
    for group in groups:
        rig.start_at_end(group)
    savers = Savers(rig, names)
    with (
        rig.command(prefix, "recorder", "counter", workers=2) as fleet,
        rig.command("", *BUILT_IN, workers=1) as built_in,
    ):
        eventually(lambda: fleet.said().count(": reads ") >= 4 and built_in.said().count(": reads ") >= 3, 120)
        savers.begin()
        for step, kill in enumerate(kills(rig, fleet.workers)):
            reached = DOCUMENTS * 2 * step + 120
            eventually(lambda wanted=reached: savers.saved >= wanted, 120)  # type: ignore[misc]
            savers.go_on(step)
            kill()
            rig.heal()
        savers.end()
        assert savers.saved == DOCUMENTS * VERSIONS
        for group in groups:
            eventually(lambda name=group: complete(rig, name, names), 180, f"{group} has every version")  # type: ignore[misc]
        for group in groups:
            eventually(lambda name=group: rig.lag(name) == 0, 30)  # type: ignore[misc]
        assert_results(rig, prefix, names)
        assert fleet.end() == built_in.end() == 0


def kills(rig: Rig, workers: Callable[[], list[int]]) -> list[Callable[[], None]]:
    return [
        lambda: rig.kill("connect"),
        lambda: psutil.Process(workers()[0]).kill(),
        lambda: rig.kill("kafka"),
        lambda: rig.kill("postgres"),
    ]


def complete(rig: Rig, group: str, names: list[str]) -> bool:
    """Whether each version of each document was applied, and none is left to be tried again."""
    query = """
        SELECT count(*) FROM readers.progress
        WHERE reader = %s AND document_id = ANY(%s) AND state = 'done' AND applied_version = %s
          AND completed = int8multirange(int8range(1, %s, '[]'))
    """
    return rig.rows(query, group, names, VERSIONS, VERSIONS) == [(DOCUMENTS,)]


def assert_results(rig: Rig, prefix: str, names: list[str]) -> None:
    """The result tables say what progress says."""
    counted = rig.output(f"{prefix}counter")
    assert counted.pop("all") == {"versions": DOCUMENTS * VERSIONS}
    assert counted == {f"of {name}": {"versions": VERSIONS} for name in names}
    recorded = rig.output(f"{prefix}recorder")
    assert {name: (row["version"], row["body"]) for name, row in recorded.items()} == {
        name: (VERSIONS, digest(body(name, VERSIONS))) for name in names
    }
    for table in ("summaries", "search_index"):
        found = dict(rig.rows(f"SELECT document_id, version FROM readers.{table} WHERE document_id = ANY(%s)", names))
        assert found == dict.fromkeys(names, VERSIONS), table
    dead = "SELECT reader, error_message FROM readers.dead_letters WHERE document_id = ANY(%s)"
    assert rig.rows(dead, names) == []
