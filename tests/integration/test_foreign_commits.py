"""What other clients commit for a group of ours."""

from __future__ import annotations

from streams.config import Settings
from streams.core.offsets import Position
from streams.kafka.consumer import KafkaLog
from streams.runtime.ports import Partition
from tests.integration.foreign import Foreign


def test_metadata_that_the_client_reads_past_the_end_of_does_not_stop_a_reader(stack: Settings):
    """What lies behind it differs from read to read: about one in three used to raise."""
    foreign = Foreign(stack)
    group, topic = foreign.group(), foreign.topic()
    foreign.commit_exactly(group, topic, 0, "é")
    log = KafkaLog(stack, topic, group, None)
    partition = Partition(topic, 0)
    try:
        seen = [log.committed([partition])[partition] for _ in range(60)]
    finally:
        log.close()
    assert {one.position for one in seen} == {Position(0)}
    assert not any(one.metadata.startswith("pass:") for one in seen)
