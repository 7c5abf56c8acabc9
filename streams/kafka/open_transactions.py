"""End the transactions that stand open in a topic, as `kafka-transactions abort` does: for one whose writer is gone.

A broker that was frozen and then killed can leave one that its coordinator knows nothing of: none ever ends it, and
whoever reads committed records stands before it for good. Called when Connect's own reader does.
"""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.api import RequestStruct

from streams.config import Settings
from streams.errors import StackError
from streams.kafka.coordinator import ask_leader
from streams.kafka.transaction_requests import DescribeProducers, WriteMarkers


def abort_open(config: Settings, topic: str, number: int = 0) -> int:
    """Abort what is open in one partition; gives how many transactions that were. Their records are never seen.

    Raises Unavailable, and StackError when the broker refuses.
    """

    def ask(request: RequestStruct) -> Any:
        return ask_leader(config, topic, number, request)

    ((_, ((_, error, said, producers, _),), _),) = ask(DescribeProducers([(topic, [number], {})], {})).topics
    if error:
        raise StackError(f"Kafka does not tell who writes to {topic}: {said or error}")
    markers: list[tuple[Any, ...]] = [
        (producer, epoch, False, [(topic, [number], {})], max(coordinator, 0), {})
        for producer, epoch, _, _, coordinator, start, _ in producers
        if start >= 0
    ]
    if markers:
        answers = ask(WriteMarkers(markers, {})).markers
        refused = [error for _, topics, _ in answers for _, numbers, _ in topics for _, error, _ in numbers if error]
        if refused:
            raise StackError(f"Kafka does not end the transaction in {topic}: error {refused[0]}")
    return len(markers)
