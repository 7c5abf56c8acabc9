"""Requests that confluent-kafka cannot make, to a group's coordinator or a partition's leader, by aiokafka.

Called by `streams.kafka.exact_offsets` and `streams.kafka.membership` with requests of `streams.kafka.group_requests`,
and by `streams.kafka.open_transactions` with those of `streams.kafka.transaction_requests`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.helpers import create_ssl_context
from aiokafka.protocol.api import RequestStruct
from aiokafka.structs import TopicPartition

from streams.config import Settings
from streams.errors import StackError, Unavailable

logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # what it has to say is raised

_SECONDS_MAX = 8.0
_GROUP_COORDINATOR = 0


def ask(config: Settings, group: str, request: RequestStruct) -> Any:
    """The coordinator's answer; every call makes its connections anew.

    Raises StackError if the broker does not know the request, Unavailable.
    """
    return _run(config, request, lambda client: client.coordinator_lookup(_GROUP_COORDINATOR, group))


def ask_leader(config: Settings, topic: str, number: int, request: RequestStruct) -> Any:
    """The answer of a partition's leader. Raises as `ask` does."""

    async def leader(client: AIOKafkaClient) -> int:
        await client.set_topics([topic])
        if (node := client.cluster.leader_for_partition(TopicPartition(topic, number))) in (None, -1):
            raise NodeNotReadyError
        return int(node)

    return _run(config, request, leader)


def _run(config: Settings, request: RequestStruct, choose: Callable[[AIOKafkaClient], Awaitable[int]]) -> Any:
    try:
        return asyncio.run(asyncio.wait_for(_ask(config, request, choose), _SECONDS_MAX))
    except (OSError, TimeoutError, KafkaError) as error:
        said = str(error) or type(error).__name__
        raise Unavailable(f"Kafka at {config.bootstrap_servers} does not answer: {said}") from error


async def _ask(config: Settings, request: RequestStruct, choose: Callable[[AIOKafkaClient], Awaitable[int]]) -> Any:
    client = AIOKafkaClient(**_connection(config))
    try:
        await client.bootstrap()
        if not client.cluster.brokers():  # a busy broker may be fenced for a moment, and then tells of none
            raise NodeNotReadyError
        return await client.send(await choose(client), _Exactly(request))
    finally:
        await client.close()


def _connection(config: Settings) -> dict[str, Any]:
    """The settings under aiokafka's names."""
    tls = config.kafka_security_protocol.endswith("SSL")
    return {
        "bootstrap_servers": config.bootstrap_servers,
        "security_protocol": config.kafka_security_protocol,
        "ssl_context": create_ssl_context(cafile=config.kafka_ssl_ca) if tls else None,
        "sasl_mechanism": config.kafka_sasl_mechanism or "PLAIN",
        "sasl_plain_username": config.kafka_sasl_username,
        "sasl_plain_password": config.kafka_sasl_password,
    }


class _Exactly:
    """Sends a request in the one version that it is written for."""

    def __init__(self, request: RequestStruct) -> None:
        self._request = request

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        low, high = versions.get(self._request.API_KEY, (0, -1))
        if not low <= self._request.API_VERSION <= high:
            raise StackError(f"this broker does not know {type(self._request).__name__} {self._request.API_VERSION}")
        return self._request
