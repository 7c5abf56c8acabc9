"""Which partition a key belongs to: Java's murmur2, as Kafka Connect and `partitioner=murmur2_random` have it. Pure.

Source: Kafka's org.apache.kafka.common.utils.Utils.murmur2 and BuiltInPartitioner.partitionForKey.
"""

from __future__ import annotations

import struct

_M, _R, _SEED, _MASK = 0x5BD1E995, 24, 0x9747B28C, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    h = (_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        k = (word * _M) & _MASK
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> _R)) * _M) & _MASK)
    if len(data) > whole:
        h = ((h ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def key_hash(key: bytes) -> int:
    """The hash as the partitioner uses it: without the sign bit."""
    return murmur2(key) & 0x7FFFFFFF
