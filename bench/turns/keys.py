"""Handlers that sleep 0 to 5 ms: `python -m bench.turns.keys runtime|sequential|tasks KEYS [TOPIC]`.

`runtime` reads the topic in order by key at concurrency 100: coroutines, or a thread's `time.sleep` where there is one
key. `sequential` sleeps the same one after the other, `tasks` as asyncio tasks, a key one at a time. Prints the
seconds from the first one's start to the last one's end.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Iterator

from bench.turns.running import Discard, Record, document, read_all, unique
from streams.config import settings
from streams.contract import DocumentSaved, reader

RECORDS = 10_000
CONCURRENCY = 100
_random = random.Random(7)
SLEEPS_SECONDS = [_random.uniform(0, 0.005) for _ in range(RECORDS)]


def key_of(number: int, keys: int) -> str:
    return f"key-{number % keys}"


def records(keys: int) -> Iterator[Record]:
    """What the topic holds: the value is the record's number."""
    return ((key_of(number, keys), str(number).encode()) for number in range(RECORDS))


class Span:
    """From the first start to the last end."""

    def __init__(self) -> None:
        self.began = 0.0
        self.ended = 0.0
        self.handled = 0

    def enter(self) -> None:
        self.began = self.began or time.perf_counter()

    def leave(self) -> None:
        self.ended = time.perf_counter()
        self.handled += 1


def runtime(keys: int, topic: str) -> float:
    span = Span()

    def block(doc: DocumentSaved) -> None:
        span.enter()
        time.sleep(SLEEPS_SECONDS[int(doc.body)])
        span.leave()

    async def wait(doc: DocumentSaved) -> None:
        span.enter()
        await asyncio.sleep(SLEEPS_SECONDS[int(doc.body)])
        span.leave()

    def decode(value: bytes | None) -> DocumentSaved:
        body = (value or b"").decode()
        return document(key_of(int(body), keys), body)

    made = reader(group=unique("keys"), concurrency=CONCURRENCY)(block if keys == 1 else wait)
    read_all(settings(), made, topic, RECORDS, decode, Discard())
    if span.handled != RECORDS:
        raise SystemExit(f"{span.handled} of {RECORDS} records were handled")
    return span.ended - span.began


def sequential() -> float:
    began = time.perf_counter()
    for seconds in SLEEPS_SECONDS:
        time.sleep(seconds)
    return time.perf_counter() - began


def tasks(keys: int) -> float:
    slots = asyncio.Semaphore(CONCURRENCY)

    async def lane(key: int) -> None:
        for seconds in SLEEPS_SECONDS[key::keys]:
            async with slots:
                await asyncio.sleep(seconds)

    async def all_lanes() -> None:
        await asyncio.gather(*map(lane, range(keys)))

    began = time.perf_counter()
    asyncio.run(all_lanes())
    return time.perf_counter() - began


def main() -> None:
    kind, keys, *topic = sys.argv[1:]
    if kind == "runtime":
        print(runtime(int(keys), *topic))
    else:
        print(sequential() if kind == "sequential" else tasks(int(keys)))


if __name__ == "__main__":
    main()
