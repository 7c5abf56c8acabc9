"""Whether the broker answers: one metadata request. Called by the local stack and the doctor; calls the client."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams.errors import Unavailable


def ask_broker(options: dict[str, Any], timeout_seconds: float = 5.0) -> None:
    """Return when the cluster gives its metadata; `options` are librdkafka's. Raises Unavailable."""
    try:
        AdminClient({**options, "log_level": 0}).list_topics(timeout=timeout_seconds)
    except KafkaException as error:
        servers = options["bootstrap.servers"]
        raise Unavailable(f"Kafka at {servers} does not answer: {error.args[0].str()}") from error
