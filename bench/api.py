"""POST /documents at a steady rate against the API that runs: `python -m bench.api`. Exit code 1 if the goal is missed.

The load is a process of its own, and open: request i leaves at i / rate seconds whether or not the ones before it
were answered, and its latency counts from then. So a server that stalls cannot slow its own measurement down.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import quantiles
from urllib.parse import urlsplit

from streams.config import settings

CONNECTIONS = 64
P99_MS_GOAL = 25.0


@dataclass
class Result:
    """What was answered, and how long after its time each request was."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)


def _request(host: str, number: int, body_bytes: int) -> bytes:
    document = {"owner_id": "bench", "title": f"Document {number}", "body": "x" * body_bytes}
    content = json.dumps(document).encode()
    head = f"POST /documents HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def _answer(reader: asyncio.StreamReader) -> int:
    """The status of the next answer on the connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    await reader.readexactly(int(head.split("content-length:")[1].split()[0]))
    return int(head.split()[1])


async def _worker(url: str, jobs: asyncio.Queue[tuple[float, bytes] | None], result: Result) -> None:
    host = urlsplit(url)
    reader, writer = await asyncio.open_connection(host.hostname, host.port)
    while (job := await jobs.get()) is not None:
        due, request = job
        writer.write(request)
        result.statuses[await _answer(reader)] += 1
        result.latencies_ms.append(1000 * (time.perf_counter() - due))
    writer.close()


async def _load(url: str, rate: int, seconds: float, body_bytes: int) -> Result:
    result, jobs = Result(), asyncio.Queue[tuple[float, bytes] | None]()
    workers = [asyncio.create_task(_worker(url, jobs, result)) for _ in range(CONNECTIONS)]
    requests = [_request(urlsplit(url).netloc, number, body_bytes) for number in range(int(rate * seconds))]
    start = time.perf_counter() + 0.1
    for number, request in enumerate(requests):
        due = start + number / rate
        await asyncio.sleep(due - time.perf_counter())
        jobs.put_nowait((due, request))
    for _ in workers:
        jobs.put_nowait(None)
    await asyncio.gather(*workers)
    return result


def _report(result: Result, rate: int) -> bool:
    cuts = quantiles(result.latencies_ms, n=1000)
    p50, p99, p999 = cuts[499], cuts[989], cuts[998]
    print(f"POST /documents at {rate}/s: {sum(result.statuses.values()):,} requests, {dict(result.statuses)}")
    print(f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, p99.9 {p999:.1f} ms, worst {max(result.latencies_ms):.0f} ms")
    return p99 <= P99_MS_GOAL and set(result.statuses) == {202}


def main() -> None:
    """Warm up for a second, measure, report."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--url", default=settings().api_url)
    options.add_argument("--rate", type=int, default=500, help="requests a second")
    options.add_argument("--seconds", type=float, default=20)
    options.add_argument("--body-bytes", type=int, default=1000)
    chosen = options.parse_args()
    try:
        asyncio.run(_load(chosen.url, chosen.rate, 1, chosen.body_bytes))
    except ConnectionRefusedError:
        sys.exit(f"error: nothing listens at {chosen.url}: run `streams up` and `streams api`")
    result = asyncio.run(_load(chosen.url, chosen.rate, chosen.seconds, chosen.body_bytes))
    sys.exit(0 if _report(result, chosen.rate) else 1)


if __name__ == "__main__":
    main()
