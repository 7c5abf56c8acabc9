"""Four requests of Kafka's protocol to a group's coordinator, as aiokafka's structures.

Made by `streams.kafka.exact_offsets` and `streams.kafka.membership`, sent by `streams.kafka.coordinator`.
Fields and their order: https://kafka.apache.org/protocol
"""

from __future__ import annotations

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

_RESULTS = Array(("name", String()), ("partitions", Array(("partition_index", Int32), ("error_code", Int16))))


class FetchOffsetsResponse(Response):
    """OffsetFetch 7: every commit, with its leader epoch and metadata."""

    API_KEY = 9
    API_VERSION = 7
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
                        ("committed_offset", Int64),
                        ("committed_leader_epoch", Int32),
                        ("metadata", CompactString()),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class FetchOffsets(RequestStruct):
    """OffsetFetch 7, the first version that waits for transactions; no topics means all."""

    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = FetchOffsetsResponse
    SCHEMA = Schema(
        ("group_id", CompactString()),
        (
            "topics",
            CompactArray(("name", CompactString()), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class CommitOffsetsResponse(Response):
    """OffsetCommit 6: an error code a partition."""

    API_KEY = 8
    API_VERSION = 6
    SCHEMA = Schema(("throttle_time_ms", Int32), ("topics", _RESULTS))


class CommitOffsets(RequestStruct):
    """OffsetCommit 6, the first version with leader epochs."""

    API_KEY = 8
    API_VERSION = 6
    RESPONSE_TYPE = CommitOffsetsResponse
    SCHEMA = Schema(
        ("group_id", String()),
        ("generation_id", Int32),
        ("member_id", String()),
        (
            "topics",
            Array(
                ("name", String()),
                (
                    "partitions",
                    Array(
                        ("partition_index", Int32),
                        ("committed_offset", Int64),
                        ("committed_leader_epoch", Int32),
                        ("committed_metadata", String()),
                    ),
                ),
            ),
        ),
    )


class RemoveOffsetsResponse(Response):
    """OffsetDelete 0: an error code for the group, or one a partition."""

    API_KEY = 47
    API_VERSION = 0
    SCHEMA = Schema(("error_code", Int16), ("throttle_time_ms", Int32), ("topics", _RESULTS))


class RemoveOffsets(RequestStruct):
    """OffsetDelete 0."""

    API_KEY = 47
    API_VERSION = 0
    RESPONSE_TYPE = RemoveOffsetsResponse
    SCHEMA = Schema(("group_id", String()), ("topics", Array(("name", String()), ("partitions", Array(Int32)))))


class LeaveGroupResponse(Response):
    """LeaveGroup 3: an error code for the group, or one a member."""

    API_KEY = 13
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("members", Array(("member_id", String()), ("group_instance_id", String()), ("error_code", Int16))),
    )


class LeaveGroup(RequestStruct):
    """LeaveGroup 3, the first version that takes a member out by its instance id."""

    API_KEY = 13
    API_VERSION = 3
    RESPONSE_TYPE = LeaveGroupResponse
    SCHEMA = Schema(
        ("group_id", String()),
        ("members", Array(("member_id", String()), ("group_instance_id", String()))),
    )
