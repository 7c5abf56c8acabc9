"""The memory of a worker beside a key that never gets through: `python -m bench.turns.stuck_key TOPIC OTHERS`.

Half of the lag belongs to one key, whose handler asks for another attempt every time. Ends when all OTHERS are done,
and prints the most memory that was resident, in bytes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import count
from threading import Thread

import psutil

from bench.turns.running import Record, document
from streams.config import settings
from streams.contract import DocumentSaved, Retry, RetryLater, Upsert, reader
from streams.kafka.codec import Codec
from streams.ops.worker import assembled
from streams.runtime.loop import Loop
from streams.topics import DOCUMENTS_SAVED

GROUP = "bench-stuck-key"
STUCK = "stuck"
RECORDS = 1_000_000
_others = count(1)
_done = 0


def records(codec: Codec, total: int) -> Iterator[Record]:
    """One record of the stuck key, one of another, and so on."""
    for number in range(total):
        one = document(f"document-{number}" if number % 2 else STUCK, "small")
        event = {name: getattr(one, name) for name in one.__slots__} | {"version": 1 + number // 2 * (1 - number % 2)}
        yield one.document_id, codec.encode(DOCUMENTS_SAVED, event)


@reader(group=GROUP, retry=Retry(attempts_max=10**9, backoff_seconds=0.5, backoff_seconds_max=1.0))
def gets_through(doc: DocumentSaved) -> Upsert:
    global _done  # noqa: PLW0603
    if doc.document_id == STUCK:
        raise RetryLater("as long as the measurement runs")
    _done = next(_others)
    return Upsert(doc.document_id, {"characters": len(doc.body)})


def _watch(others: int, loop: Loop, peaks: list[int]) -> None:
    """Stop the loop, which then writes what is done, when it is through."""
    process = psutil.Process()
    while _done < others:
        peaks.append(process.memory_info().rss)
        time.sleep(0.02)
    loop.stop()


def main() -> None:
    topic, others = sys.argv[1], int(sys.argv[2])
    peaks: list[int] = []
    with assembled(settings(), gets_through, topic) as loop:
        Thread(target=_watch, args=(others, loop, peaks), daemon=True).start()
        loop.run()
    print(max(peaks))


if __name__ == "__main__":
    main()
