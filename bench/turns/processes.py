"""A CPU-bound handler of some 20 ms: `python -m bench.turns.processes runtime|pool CALLS [TOPIC]`.

`runtime` is a reader of kind "process", `pool` a ProcessPoolExecutor of as many processes that does the same calls.
Prints the seconds from the first record, or call, to the last result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from bench.turns.running import Discard, Record, document, read_all, unique
from streams.config import settings
from streams.contract import DocumentSaved, reader

PROCESSES = 2
CALLS = 400
ROUNDS = 240_000  # some 20 ms


def burn(number: int) -> int:
    for each in range(ROUNDS):
        number = (number * 31 + each) & 0xFFFFFFFF
    return number


def warm_up(_: int) -> None:
    time.sleep(0.05)  # long enough that every process gets one


def records(calls: int) -> Iterator[Record]:
    return ((f"key-{number}", str(number).encode()) for number in range(calls))


@reader(group=unique("processes"), kind="process", concurrency=PROCESSES)
def burns(doc: DocumentSaved) -> None:
    burn(int(doc.body))


def runtime(calls: int, topic: str) -> float:
    def decode(value: bytes | None) -> DocumentSaved:
        body = (value or b"").decode()
        return document(f"key-{body}", body)

    # By its name, not as __main__: its processes must find it.
    from bench.turns.processes import burns

    return read_all(settings(), burns, topic, calls, decode, Discard())


def pool(calls: int) -> float:
    with ProcessPoolExecutor(PROCESSES) as executor:
        list(executor.map(warm_up, range(PROCESSES)))
        began = time.perf_counter()
        list(executor.map(burn, range(calls)))
        return time.perf_counter() - began


def main() -> None:
    kind, calls, *topic = sys.argv[1:]
    print(runtime(int(calls), *topic) if kind == "runtime" else pool(int(calls)))


if __name__ == "__main__":
    main()
