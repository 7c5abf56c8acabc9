"""A key's partition must be the one that Kafka Connect's producer chooses."""

from __future__ import annotations

import pytest

from streams.core.partitioning import key_hash, murmur2


# The vectors of Kafka's own UtilsTest, signed as Java prints them.
@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32
    assert key_hash(key) == (signed & 0x7FFFFFFF)
