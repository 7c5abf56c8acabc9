"""The same on Quix Streams: `python -m bench.turns.noop_quix BOOTSTRAP_SERVERS TOPIC RECORDS`, in its own environment.

Imports nothing of ours. Prints the seconds from the first record to the last.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from uuid import uuid4

from quixstreams import Application

_calls = count()
_began = 0.0
_ended = 0.0


def main() -> None:
    servers, topic, records = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def nothing(_given: object) -> None:
        global _began, _ended  # noqa: PLW0603
        number = next(_calls)
        if number == 0:
            _began = time.perf_counter()
        elif number == records - 1:
            _ended = time.perf_counter()

    app = Application(
        broker_address=servers,
        consumer_group=f"bench-quix-{uuid4().hex[:8]}",
        auto_offset_reset="earliest",
        auto_create_topics=False,
        loglevel="ERROR",
    )
    app.dataframe(app.topic(topic, key_deserializer="bytes", value_deserializer="bytes")).update(nothing)
    app.run(count=records)
    print(_ended - _began)


if __name__ == "__main__":
    main()
