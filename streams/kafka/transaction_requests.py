"""Two requests of Kafka's protocol to a partition's leader, as aiokafka's structures.

Made by `streams.kafka.open_transactions`, sent by `streams.kafka.coordinator`.
Fields and their order: https://kafka.apache.org/protocol
"""

from __future__ import annotations

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

_TAGS = ("tags", TaggedFields)
_NUMBERS = CompactArray(("name", CompactString()), ("partition_indexes", CompactArray(Int32)), _TAGS)


class DescribeProducersResponse(Response):
    """DescribeProducers 0: the producers that are active in each partition."""

    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString()),
                (
                    "partitions",
                    CompactArray(
                        ("partition_index", Int32),
                        ("error_code", Int16),
                        ("error_message", CompactString()),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                _TAGS,
                            ),
                        ),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class DescribeProducers(RequestStruct):
    """DescribeProducers 0."""

    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeProducersResponse
    SCHEMA = Schema(("topics", _NUMBERS), _TAGS)


class WriteMarkersResponse(Response):
    """WriteTxnMarkers 1: an error code a partition."""

    API_KEY = 27
    API_VERSION = 1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                (
                    "topics",
                    CompactArray(
                        ("name", CompactString()),
                        (
                            "partitions",
                            CompactArray(("partition_index", Int32), ("error_code", Int16), _TAGS),
                        ),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class WriteMarkers(RequestStruct):
    """WriteTxnMarkers 1: how a coordinator, or an operator in its place, ends a transaction in a partition."""

    API_KEY = 27
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = WriteMarkersResponse
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("transaction_result", Boolean),
                ("topics", _NUMBERS),
                ("coordinator_epoch", Int32),
                _TAGS,
            ),
        ),
        _TAGS,
    )
