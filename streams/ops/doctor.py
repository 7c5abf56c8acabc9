"""The doctor: asks every server side by side, each within its time, and judges the answers.

Called by `streams doctor` and the care for the connector; calls the probes here, then `diagnosis`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

import psycopg

from streams.cdc import connector, slot
from streams.cdc.connect import Connect
from streams.config import Settings
from streams.database import connect as connect_database
from streams.errors import StreamsError, Unavailable
from streams.kafka.codec import schema_text
from streams.kafka.published import PublishedEvents
from streams.kafka.registry import Registry
from streams.kafka.topics_admin import TopicsAdmin
from streams.ops import canary
from streams.ops.diagnosis import SETUP, Check, judge
from streams.ops.facts import Canary, Database, Down, Facts, Gate, Topics, Worker
from streams.ops.unpublished import OutboxRow, sql, unpublished
from streams.stack.setup import known_readers, wanted_topics
from streams.topics import FIXED, Topic

SECONDS_MAX = 8.0  # for one answer of one server
CANARY_SECONDS_MAX = 8.0
# No subject of ours may take this one: it shares no field with any event.
_STRANGER = '{"type": "record", "name": "Stranger", "fields": [{"name": "nothing_of_ours", "type": "string"}]}'

Fact = TypeVar("Fact")


def examine(config: Settings) -> list[Check]:
    """Every check on the stack of this configuration, in 15 s at most; raises nothing."""
    return judge(gather(config))


def gather(config: Settings) -> Facts:
    """All facts, asked for side by side."""
    start = start_command(config)

    def ask(probe: Callable[[Settings], Fact]) -> Future[Fact | Down]:
        return pool.submit(_answer, probe, config, start)

    with ThreadPoolExecutor(6) as pool:
        database, topics, worker = ask(_database), ask(_topics), ask(_worker)
        registry, rows, bird = ask(_registry), ask(_unpublished), ask(_canary)
        return Facts(
            datetime.now(UTC).replace(tzinfo=None),
            start,
            database.result(),
            topics.result(),
            worker.result(),
            registry.result(),
            rows.result(),
            bird.result(),
        )


def relay_facts(config: Settings) -> Facts:
    """What tells why the relay has failed; the registry and the canary are not asked."""
    start = start_command(config)
    rest = Down("not asked", start)
    return Facts(
        datetime.now(UTC).replace(tzinfo=None),
        start,
        _answer(_database, config, start),
        _answer(_topics, config, start),
        _answer(_worker, config, start),
        rest,
        _answer(_unpublished, config, start),
        rest,
    )


def start_command(config: Settings) -> str:
    """What starts the servers: the local stack's command, or compose's where they have hosts of their own."""
    local = {config.db_host, config.bootstrap_servers.rsplit(":", 1)[0]} <= {"127.0.0.1", "localhost"}
    return "streams up" if local else "docker compose up -d"


def _answer(probe: Callable[[Settings], Fact], config: Settings, start: str) -> Fact | Down:
    try:
        return probe(config)
    except Unavailable as error:
        return Down(str(error), start)
    except StreamsError as error:
        return Down(str(error), SETUP)
    except psycopg.Error as error:
        return Down(f"Postgres refuses: {error.diag.message_primary or error}", SETUP)


def _database(config: Settings) -> Database:
    with connect_database(config, autocommit=True) as connection:
        names = frozenset(name for (name,) in sql.topic_names(connection))
        return Database(slot.read_state(connection), names)


def _topics(config: Settings) -> Topics:
    wanted = _wanted(config)
    return Topics(wanted, TopicsAdmin(config, SECONDS_MAX).describe(topic.name for topic in wanted))


def _wanted(config: Settings) -> list[Topic]:
    """The topics that must exist; of the readers, only what is known without Postgres if that does not answer."""
    try:
        with connect_database(config, autocommit=True) as connection:
            return wanted_topics(connection, known_readers(connection))
    except (Unavailable, psycopg.Error):
        return list(FIXED)


def _worker(config: Settings) -> Worker:
    with Connect(config, SECONDS_MAX) as connect:
        have, wanted = connect.config(connector.NAME) or {}, connector.wanted()
        differs = [key for key in sorted({*have, *wanted}) if have.get(key) != wanted.get(key)]
        return Worker(frozenset(connect.plugins()), connect.state(connector.NAME), differs)


def _registry(config: Settings) -> dict[str, Gate]:
    registry = Registry(config, SECONDS_MAX)
    return {topic.subject: _gate(registry, topic, topic.schema) for topic in _wanted(config) if topic.schema}


def _gate(registry: Registry, topic: Topic, schema: str) -> Gate:
    refusals = registry.compatible(topic.subject, schema_text(schema))
    return Gate(refusals, guarded=bool(registry.compatible(topic.subject, _STRANGER)))


def _unpublished(config: Settings) -> list[OutboxRow]:
    with connect_database(config, autocommit=True) as connection, PublishedEvents(config, SECONDS_MAX) as published:
        return unpublished(connection, published)


def _canary(config: Settings) -> Canary:
    with (
        connect_database(config, autocommit=True, **canary.SESSION_OPTIONS) as connection,
        PublishedEvents(config, SECONDS_MAX) as published,
    ):
        before = slot.read_state(connection).confirmed
        seconds = canary.fly(connection, published, CANARY_SECONDS_MAX)
        return Canary(seconds, slot.read_state(connection).confirmed != before)
