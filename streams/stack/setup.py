"""`streams setup`: everything between the servers and the first save, for both stacks; safe to repeat, and at once.

In this order, because each needs what stands before it: migrations → publication → slot → topics → schemas → connector.
Called by `streams up`, `streams setup` and the compose stack's one-shot service; `ensure_reader` by whoever starts a
reader. Calls cdc (publication, slot, connector) and kafka (topics, registry).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

import streams.outbox
from streams.cdc import connector, slot
from streams.cdc.connect import Connect
from streams.cdc.slot import Connection
from streams.config import Settings, settings
from streams.database import connect as connect_database
from streams.database import migrate, queries
from streams.errors import RelayError
from streams.kafka.codec import schema_text
from streams.kafka.registry import Registry
from streams.kafka.topics_admin import TopicsAdmin
from streams.topics import FIXED, LOG_CONFIG, NOT_RELAYED, Topic, dead_letters, is_legal

log = logging.getLogger(__name__)

COMPATIBILITY = "FULL_TRANSITIVE"  # a replay reads old events with new code, a rolling deploy new events with old code
REGISTRY_SECONDS_MAX = 30.0
_sql = queries(Path(streams.outbox.__file__).parent / "sql" / "relay.sql")


def run_setup(console: Console, config: Settings | None = None, *, with_connect: bool = True) -> None:
    """Make everything as it must be, saying what each step found; Debezium's parts not if polling is chosen.

    Raises StreamsError with one sentence.
    """
    config = config or settings()
    with slot.maintenance(config) as connection, Connect(config) as connect, ThreadPoolExecutor(1) as aside:
        _say(console, "database", _migrated(migrate(connection)))
        readers = known_readers(connection)
        topics = wanted_topics(connection, readers)
        # The registry is slow to answer and nothing but the last step waits for it.
        registering = aside.submit(register_schemas, config, topics)
        with_connect = with_connect and not _sql.is_left_to_polling(connection)
        repair_needed = with_connect and _relay_end(console, config, connection, connect)
        changes = ensure_topics(config, connection, topics)
        _sql.add_readers(connection, names=readers)
        _say(console, "topics", str(changes) or f"{len(topics)} kept")
        _say(console, "schemas", f"{registering.result()} registered, {COMPATIBILITY}")
        if repair_needed:
            raise RelayError(
                f"the publication or the slot {slot.NAME} is missing or lost, and events may be waiting: "
                "run `streams outbox repair`"
            )
        grown = bool(changes.grown)
        done = ensure_connector(config, connect, restart=grown) if with_connect else "left to the polling relay"
        _say(console, "connector", done)


def ensure_reader(config: Settings, group: str) -> None:
    """Make what a reader needs before it joins its group: its dead-letter topic, schema and registration.

    Asks Postgres alone where that was done before: a worker that died is back the sooner.
    """
    topic = dead_letters(group)
    with connect_database(config, autocommit=True) as connection:
        if _sql.reader_is_ready(connection, reader=group, letters=topic.name):
            return
        ensure_topics(config, connection, [topic])
        register_schemas(config, [topic])
        _sql.add_readers(connection, names=[group])


def known_readers(connection: Connection) -> list[str]:
    """The groups of all readers that are found here or were registered before; a faulty file is said, not fatal."""
    from streams.readers.discovery import look

    survey = look()
    for fault in survey.faults:
        log.warning("%s", fault)
    return sorted({*survey.readers, *(name for (name,) in _sql.reader_names(connection))})


def wanted_topics(connection: Connection, readers: Iterable[str]) -> list[Topic]:
    """Every topic that must exist: the fixed ones, one of dead letters a reader, and any that the outbox may name.

    Of the last, which somebody else made, no more is asked than that they take what the outbox may hold.
    """
    topics = {topic.name: topic for topic in (*FIXED, *map(dead_letters, readers))}
    others = sorted({name for (name,) in _sql.topic_names(connection) if is_legal(name)} - topics.keys())
    least = {name: LOG_CONFIG[name] for name in ("max.message.bytes", "message.timestamp.type")}
    return [*topics.values(), *(Topic(name, partitions=1, config=least) for name in others)]


@dataclass(frozen=True, slots=True)
class Changes:
    """The names of the topics that were made, got more partitions, or got other settings."""

    made: list[str]
    grown: list[str]
    altered: list[str]

    def __str__(self) -> str:
        """What was done, empty if nothing."""
        named = {"made": self.made, "given more partitions": self.grown, "settings mended": self.altered}
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in named.items() if names)


def ensure_topics(config: Settings, connection: Connection, topics: list[Topic]) -> Changes:
    """Make and mend the topics, then let the outbox name them."""
    admin = TopicsAdmin(config)
    have = admin.describe(topic.name for topic in topics)
    missing = [topic for topic in topics if topic.name not in have]
    short = [topic for topic in topics if topic.name in have and have[topic.name].partitions < topic.partitions]
    other = {topic.name: have[topic.name].differs(topic) for topic in topics if topic.name in have}
    for topic in missing:
        admin.create(topic)
    for topic in short:
        admin.grow(topic.name, topic.partitions)
    for name, differing in other.items():
        admin.alter(name, differing)
    _sql.add_topics(connection, names=[topic.name for topic in topics if topic not in NOT_RELAYED])
    return Changes(
        made=[topic.name for topic in missing],
        grown=[topic.name for topic in short],
        altered=[name for name, differing in other.items() if differing],
    )


def register_schemas(config: Settings, topics: Iterable[Topic]) -> int:
    """Register each topic's schema and its subject's compatibility; gives the number of subjects."""
    registry = Registry(config, REGISTRY_SECONDS_MAX)
    subjects = [(topic.subject, topic.schema) for topic in topics if topic.schema]
    for subject, schema in subjects:
        registry.register(subject, schema_text(schema))
        registry.set_compatibility(subject, COMPATIBILITY)
    registry.close()
    return len(subjects)


def ensure_connector(config: Settings, connect: Connect, *, restart: bool = False) -> str:
    """Put the connector if it is not as it must be, and wait until it and its task run; says what was done.

    `restart` makes a running task ask for the topics' partitions now, not within five minutes. Raises RelayError
    with the reason when it fails.
    """
    done = _put_connector(connect, restart=restart)
    restarts = connector.wait_until_running(connect, partial(unblock, config))
    return f"{'restarted' if restarts else done}, running"


def unblock(config: Settings) -> None:
    """End the transactions that Connect's own readers wait for. Raises Unavailable and StackError."""
    from streams.kafka.open_transactions import abort_open  # takes long to import, and is hardly ever needed

    abort_open(config, connector.OFFSETS_TOPIC)


def _put_connector(connect: Connect, *, restart: bool) -> str:
    state = connector.decided_state(connect)
    changed = connect.config(connector.NAME) != connector.wanted()
    if changed:
        connect.put(connector.NAME, connector.wanted())
    if state is None:
        return "made"
    if state.connector == "STOPPED":
        raise RelayError(
            f"the connector {connector.NAME} was stopped by a repair that did not end: run `streams outbox repair`"
        )
    if state.connector == "PAUSED":
        connect.resume(connector.NAME)
        return "resumed"
    if restart and state.running:
        connect.restart_task(connector.NAME)
        return "restarted"
    return "changed" if changed else "kept"


def _relay_end(console: Console, config: Settings, connection: Connection, connect: Connect) -> bool:
    """Make the publication and the slot if this is the first setup; True if they are broken and need a repair."""
    state = slot.read_state(connection)
    if state.usable:
        _say(console, "publication", "kept")
        _say(console, "slot", "kept")
        return False
    if state.slot_exists or _sql.outbox_count(connection) or connect.state(connector.NAME) is not None:
        return True
    slot.create_publication(connection)
    _say(console, "publication", "made")
    slot.create_slot(config)
    _say(console, "slot", "made")
    return False


def _migrated(names: list[str]) -> str:
    return f"migrated: {', '.join(names)}" if names else "kept"


def _say(console: Console, step: str, result: str) -> None:
    console.print(f"  {step:<12} {result}", highlight=False, soft_wrap=True)
