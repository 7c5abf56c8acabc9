"""What the facts about a stack mean: for each fault what is wrong, and the one command that mends it. Pure.

Faults have one root: a dropped slot also fails the task and delays the canary, so all three name the same command.
Called by `doctor`, which gathers the facts; calls nothing that does I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from streams.cdc import connector, slot
from streams.cdc.connect import ConnectorState
from streams.cdc.slot import SlotState
from streams.core.times import duration
from streams.kafka.topics_admin import TopicState
from streams.ops.facts import Canary, Database, Down, Facts, Gate, Worker
from streams.ops.unpublished import OutboxRow
from streams.topics import DOCUMENTS_SAVED, HEARTBEAT, MESSAGE_BYTES_MAX, NOT_RELAYED, Topic, is_legal

SETUP, REPAIR, AGAIN, CHECK_SCHEMAS = "streams setup", "streams outbox repair", "streams doctor", "streams schema check"
UNPUBLISHED_SECONDS_MAX = 30.0  # the relay takes a fortieth of a second, a worker that restarts 10 s
SAFE_SHARE_MIN = 0.2  # of the write-ahead log that the slot may hold back, this must be left
FRAME_BYTES = 256  # of a record around key, value and our headers, at most
_EPOCH = datetime(1970, 1, 1)
_UNUSED = "not in use: the polling relay runs"


State = Literal["ok", "fault", "unknown"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's answer; a fault has the command that mends it."""

    name: str
    state: State
    says: str
    command: str | None = None


def judge(facts: Facts) -> list[Check]:
    """Every check, in the order in which to read them."""
    servers, others = list(_servers(facts)), [*_topics(facts), *_schemas(facts)]
    command = mend(facts, others)
    relay = [*_worker(facts), *_publication_and_slot(facts), *_outbox(facts), *_canary(facts)]
    return [
        *servers,
        *(replace(each, command=command) if each.state == "fault" and not each.command else each for each in relay),
        *others,
    ]


def commands(checks: Sequence[Check]) -> list[str]:
    """The commands that mend all faults, each once, in the order in which they can succeed."""
    wanted = dict.fromkeys(check.command for check in checks if check.command)
    later = (SETUP, CHECK_SCHEMAS, AGAIN)
    return sorted((each for each in wanted if each), key=lambda each: later.index(each) if each in later else -1)


def poison(facts: Facts) -> dict[int, str]:
    """The unpublished rows that the broker will never take, by seq, and why."""
    if isinstance(facts.unpublished, Down) or isinstance(facts.topics, Down):
        return {}
    reasons = {row.seq: _refusal(row, facts.topics.have.get(row.topic), facts.now) for row in facts.unpublished}
    return {seq: reason for seq, reason in reasons.items() if reason}


def _refusal(row: OutboxRow, topic: TopicState | None, now: datetime) -> str:
    config = topic.config if topic else {}
    bytes_max = min(int(config.get("max.message.bytes", MESSAGE_BYTES_MAX)), MESSAGE_BYTES_MAX)
    if not is_legal(row.topic):
        return f"Kafka takes no topic of the name {row.topic!r}"
    if row.bytes + FRAME_BYTES > bytes_max:
        return f"it has {row.bytes} bytes, and {row.topic} takes {bytes_max}"
    if row.created_at <= _EPOCH:
        return "it is dated before 1970"
    if row.created_at > _latest(config, now):
        return "it is dated further ahead than the topic takes"
    return ""


def _latest(config: Mapping[str, str], now: datetime) -> datetime:
    ahead_ms = int(config.get("message.timestamp.after.max.ms", 2**63 - 1))
    try:
        return now + timedelta(milliseconds=ahead_ms)
    except OverflowError:
        return datetime.max


def mend(facts: Facts, others: Sequence[Check] = ()) -> str:
    """The command for whatever keeps the relay from running."""
    if rows := poison(facts):
        return f"streams outbox skip {' '.join(map(str, rows))}"
    polled = is_polled(facts)
    if _needs_repair(facts) and not polled:
        return REPAIR
    for fact in (facts.database, facts.topics, *(() if polled else (facts.worker,))):
        if isinstance(fact, Down):
            return fact.command
    if (_needs_setup(facts) and not polled) or any(check.state == "fault" for check in others):
        return SETUP
    return AGAIN if polled or _is_behind(facts.canary) else REPAIR


def is_polled(facts: Facts) -> bool:
    """Whether the polling relay runs, which needs nothing of Debezium's."""
    return isinstance(facts.database, Database) and facts.database.slot.polled


def _is_behind(canary: Canary | Down) -> bool:
    """Whether the relay has more to do than the canary could wait for, and is doing it."""
    return isinstance(canary, Canary) and canary.seconds is None and canary.slot_moved


def _needs_repair(facts: Facts) -> bool:
    database, worker = facts.database, facts.worker
    broken = isinstance(database, Database) and not database.slot.usable
    state = worker.state if isinstance(worker, Worker) else None
    return broken or (state is not None and state.connector == "STOPPED")


def _needs_setup(facts: Facts) -> bool:
    worker = facts.worker
    return isinstance(worker, Worker) and (worker.state is None or bool(worker.differs) or not worker.state.running)


def _ok(name: str, says: str) -> Check:
    return Check(name, "ok", says)


def _fault(name: str, says: str, command: str | None = None) -> Check:
    return Check(name, "fault", says, command)


def _unknown(name: str, fact: Down) -> Check:
    return Check(name, "unknown", f"not looked at: {fact.reason}")


def _servers(facts: Facts) -> Iterator[Check]:
    answers = {
        "postgres": facts.database,
        "kafka": facts.topics,
        "connect": facts.worker,
        "registry": facts.registry,
    }
    for name, fact in answers.items():
        if name == "connect" and is_polled(facts):
            yield _ok(name, _UNUSED)
        else:
            yield _fault(name, fact.reason, fact.command) if isinstance(fact, Down) else _ok(name, "answers")


def _worker(facts: Facts) -> Iterator[Check]:
    worker = facts.worker
    if is_polled(facts):
        yield from (_ok(name, _UNUSED) for name in ("plugin", "connector", "task"))
        return
    if isinstance(worker, Down):
        yield from (_unknown(name, worker) for name in ("plugin", "connector", "task"))
        return
    wanted = connector.wanted()["connector.class"]
    if wanted in worker.plugins:
        yield _ok("plugin", "Debezium's Postgres connector is there")
    else:
        yield _fault("plugin", f"Kafka Connect lacks the connector {wanted}", facts.start)
    yield _connector(worker)
    yield _task(worker.state)


def _connector(worker: Worker) -> Check:
    state = worker.state
    if state is None:
        return _fault("connector", f"the connector {connector.NAME} is missing")
    if state.connector == "STOPPED":
        return _fault("connector", "it is stopped, as a repair that did not end leaves it")
    if state.connector != "RUNNING":
        return _fault("connector", f"it is {state.connector}" + (f": {state.reason}" if state.trace else ""))
    if worker.differs:
        return _fault(
            "connector", f"its configuration differs from connectors/{connector.NAME}.json: {_list(worker.differs)}"
        )
    return _ok("connector", "RUNNING")


def _task(state: ConnectorState | None) -> Check:
    if state is None or state.task is None:
        return _fault("task", "the connector has no task")
    if state.task != "RUNNING":
        return _fault("task", f"it is {state.task}" + (f": {state.reason}" if state.trace else ""))
    return _ok("task", "RUNNING")


def _publication_and_slot(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.database, Down):
        yield from (_unknown(name, facts.database) for name in ("publication", "slot"))
        return
    state = facts.database.slot
    if state.polled:
        yield _ok("publication", _UNUSED)
        yield _slot(state, late=False) if state.usable_slot else _ok("slot", _UNUSED)
        return
    if state.publication_ok:
        yield _ok("publication", f"{slot.NAME} has the inserts of app.outbox")
    elif state.publication_exists:
        yield _fault("publication", f"{slot.NAME} is not for the inserts of app.outbox alone")
    else:
        yield _fault("publication", f"the publication {slot.NAME} is missing, so what is saved now is passed over")
    yield _slot(state, late=isinstance(facts.canary, Canary) and facts.canary.seconds is None)


def _slot(state: SlotState, late: bool) -> Check:
    if not state.slot_exists:
        return _fault("slot", f"the slot {slot.NAME} is missing")
    if state.lost:
        return _fault("slot", f"Postgres gave the slot up ({state.invalidation_reason or state.wal_status})")
    if state.plugin != slot.PLUGIN:
        return _fault("slot", f"the slot speaks {state.plugin}, not {slot.PLUGIN}")
    behind = f"{state.lag_bytes} bytes behind, " + (
        "no limit" if state.safe_bytes is None else f"{state.safe_bytes} more may be written before it is lost"
    )
    if _nearly_lost(state):
        return _fault("slot", f"it will soon be lost: {behind}")
    if late and not state.active:
        return _fault("slot", f"nobody reads it: {behind}")
    return _ok("slot", behind)


def _nearly_lost(state: SlotState) -> bool:
    if state.wal_status == "unreserved":
        return True
    if state.safe_bytes is None or state.held_bytes is None:
        return False
    return state.safe_bytes < SAFE_SHARE_MIN * (state.safe_bytes + state.held_bytes)


def _outbox(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.unpublished, Down):
        yield _unknown("outbox", facts.unpublished)
        return
    rows = facts.unpublished
    for seq, reason in poison(facts).items():
        yield _fault("outbox", f"row {seq} cannot be published, and all behind it wait: {reason}")
    age = (facts.now - rows[0].created_at).total_seconds() if rows else 0.0
    if age > UNPUBLISHED_SECONDS_MAX:
        passed_over = isinstance(facts.canary, Canary) and facts.canary.seconds is not None and not is_polled(facts)
        waits = f"{len(rows)} rows are unpublished, the oldest (row {rows[0].seq}) for {duration(age)}"
        if passed_over and not poison(facts):
            yield _fault("outbox", f"{waits}, though the relay runs: it has passed them over", REPAIR)
        else:
            yield _fault("outbox", waits)
    elif not poison(facts):
        yield _ok("outbox", f"{len(rows)} rows unpublished")


def _canary(facts: Facts) -> Iterator[Check]:
    canary = facts.canary
    if isinstance(canary, Down):
        yield _unknown("canary", canary)
    elif canary.seconds is not None:
        yield _ok("canary", f"from commit to consumer in {canary.seconds * 1000:.0f} ms")
    elif canary.slot_moved:
        yield _fault("canary", "an event has not arrived in the log: the relay is behind, and is catching up")
    else:
        yield _fault("canary", "an event written to the outbox does not arrive in the log: the relay stands still")


def _topics(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.topics, Down):
        yield _unknown("topics", facts.topics)
        return
    checks = [each for topic in facts.topics.wanted for each in _topic(topic, facts.topics.have.get(topic.name))]
    if isinstance(facts.database, Database):
        checks += _unnamed(facts.topics.wanted, facts.database.outbox_topics)
    yield from checks
    if all(check.state == "ok" for check in checks):
        yield _ok("topics", f"{len(facts.topics.wanted)} as they must be")


def _topic(wanted: Topic, have: TopicState | None) -> Iterator[Check]:
    name = f"topic {wanted.name}"
    if have is None:
        stalls = ", and without it the relay stalls while every state says RUNNING" if wanted == HEARTBEAT else ""
        yield _fault(name, f"it is missing{stalls}", SETUP)
        return
    if have.partitions < wanted.partitions:
        moved = "; more of them move keys, so a document's records are in order only before and after the change"
        yield _fault(
            name,
            f"it has {have.partitions} partition{'s' if have.partitions > 1 else ''}, not {wanted.partitions}"
            + (moved if wanted == DOCUMENTS_SAVED else ""),
            SETUP,
        )
    if have.partitions > wanted.partitions and wanted == DOCUMENTS_SAVED:
        change = f"it has {have.partitions} partitions, and had {wanted.partitions} at first"
        yield _ok(name, f"{change}: a document's records are in order only before and after they were added")
    if differs := have.differs(wanted):
        values = [f"{setting} is {have.config[setting]}, not {value}" for setting, value in differs.items()]
        yield _fault(name, "; ".join(values), SETUP)


def _unnamed(wanted: Sequence[Topic], outbox_topics: frozenset[str]) -> list[Check]:
    """Topics that a save or a dead letter could not be written for."""
    missing = [topic.name for topic in wanted if topic not in NOT_RELAYED and topic.name not in outbox_topics]
    return [_fault(f"topic {name}", "app.topics lacks it, so the outbox refuses its rows", SETUP) for name in missing]


def _schemas(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.registry, Down):
        yield _unknown("schemas", facts.registry)
        return
    faults = [fault for subject, gate in facts.registry.items() for fault in _gate(subject, gate)]
    yield from faults
    if not faults:
        yield _ok("schemas", f"{len(facts.registry)} subjects take ours and refuse others")


def _gate(subject: str, gate: Gate) -> Iterator[Check]:
    if gate.refusals:
        yield _fault(f"schema {subject}", f"the registry would refuse ours: {_list(gate.refusals)}", CHECK_SCHEMAS)
    if not gate.guarded:
        yield _fault(f"schema {subject}", "it is not registered, or takes incompatible ones", SETUP)


def _list(parts: Sequence[str]) -> str:
    return ", ".join(parts)
