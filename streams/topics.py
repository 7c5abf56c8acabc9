"""Every topic: its name, partitions, key and schema; the one list that `streams setup` makes and doctor checks.

Called by the stack's setup, the doctor, the codec and the runtime; calls nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

BODY_BYTES_MAX = 4 * 1024 * 1024  # of a document's text in UTF-8; the API answers 413 above
OUTBOX_BYTES_MAX = 6 * 1024 * 1024  # of an event, frame and all; the table's CHECK says the same
MESSAGE_BYTES_MAX = 8 * 1024 * 1024  # of any record: a body twice over, with room for a dead letter's frame
# A record dated more than an hour ahead of the broker's clock would otherwise be refused and kill the relay's task.
# 292 years, the most that Redpanda takes: it keeps durations in nanoseconds.
NO_TIMESTAMP_LIMIT_MS = (2**63 - 1) // 10**6

LOG_CONFIG = {
    "max.message.bytes": str(MESSAGE_BYTES_MAX),
    "message.timestamp.type": "CreateTime",  # a record's time is its save's, and by it the outbox knows its own
    "message.timestamp.after.max.ms": str(NO_TIMESTAMP_LIMIT_MS),
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it must be. `schema` names the file in schemas/ that its values follow, None for bare JSON."""

    name: str
    partitions: int
    schema: str | None = None
    config: dict[str, str] = field(default_factory=lambda: dict(LOG_CONFIG))

    @property
    def subject(self) -> str:
        """The registry's subject of the values (TopicNameStrategy)."""
        return f"{self.name}-value"


DOCUMENTS_SAVED = Topic("documents-saved", partitions=12, schema="document-saved.avsc")

# Debezium writes here every 10 s; were it absent, the relay would stall while every state says RUNNING.
HEARTBEAT = Topic(
    "__debezium-heartbeat.docs",
    partitions=1,
    config={"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "3600000"},
)

# The doctor's own event goes this way: through the outbox, the relay and the log, past every reader.
CANARY = Topic(
    "documents-canary",
    partitions=1,
    config={"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "3600000"},
)


def dead_letters(reader: str) -> Topic:
    """The topic of a reader's dead letters, keyed like the log itself."""
    return Topic(f"{DOCUMENTS_SAVED.name}.{reader}.dlq", DOCUMENTS_SAVED.partitions, "dead-letter.avsc")


def changelog(group: str) -> Topic:
    """The topic in which the analytics of this group keep their table: of each key the latest record counts.

    As many partitions as the log, since a row stands in the partition of its event. In small segments: all is read at
    each start, and what stands in the last segment is not compacted.
    """
    config = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024), "segment.ms": "86400000"}
    return Topic(f"{group}-documents-changelog", DOCUMENTS_SAVED.partitions, config=config)


ANALYTICS = "analytics"  # the consumer group, and what Faust begins its topics' names with
RESCORER = "rescorer"  # the consumer group that works through the chunks of a re-score
# A chunk is work to do, not history: whatever of it was not done in a week, `streams rescore resume` sends again.
RESCORE = Topic(
    "documents-rescore",
    partitions=12,
    schema="rescore-chunk.avsc",
    config={**LOG_CONFIG, "retention.ms": str(7 * 24 * 3600 * 1000)},
)
FIXED = (DOCUMENTS_SAVED, HEARTBEAT, CANARY, changelog(ANALYTICS), RESCORE, dead_letters(RESCORER))
NOT_RELAYED = (HEARTBEAT, changelog(ANALYTICS))  # no row of the outbox goes there

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal(name: str) -> bool:
    """Whether Kafka takes a topic of this name."""
    return bool(_LEGAL_NAME.fullmatch(name)) and name not in (".", "..")
