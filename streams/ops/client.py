"""The API's client: saves that are tried again, each at most once in effect.

Called by `streams save`, the demo and the exercises; speaks HTTP to the API. Safe for threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import httpx

from streams.errors import SaveError, Unavailable

ATTEMPTS_MAX = 8
BACKOFF_SECONDS_MAX = 10.0
# `streams api &` may stand on the line before.
KNOCKS_MAX, KNOCK_SECONDS = 20, 0.25
_ANSWER_SECONDS_MAX = 30.0  # the API answers within 4 s; the rest is for sending a large body
_BUSY = (429, 502, 503, 504)
SAVES_IN_FLIGHT = 8

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Client:
    """Connections to one API. `sleep` waits between attempts."""

    def __init__(
        self,
        url: str,
        sleep: Callable[[float], None] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url = url
        self._sleep = sleep
        self._http = httpx.Client(base_url=url, timeout=_ANSWER_SECONDS_MAX, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def check(self) -> None:
        """Raises Unavailable if nothing answers at the URL, not even after the seconds that an API takes to start."""
        for left in reversed(range(KNOCKS_MAX)):
            try:
                self._http.get("/healthz").raise_for_status()
                return
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if not isinstance(error, httpx.ConnectError) or not left:
                    raise Unavailable(f"the API at {self._url} does not answer: {error}") from error
            self._sleep(KNOCK_SECONDS)

    def save(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Save a document; `job_id`, `document_id` and `version`.

        A busy API's Retry-After is honoured, and a lost answer asked for again under the same idempotency key, so
        that it is one save. Raises SaveError when the API refuses it, Unavailable after ATTEMPTS_MAX attempts.
        """
        return self._post("/documents", document)

    def add_query(self, owner_id: str, query: str) -> dict[str, Any]:
        """Save a query of an owner, or find it; `query_id` and the rest. Raises what `save` raises."""
        return self._post("/queries", {"owner_id": owner_id, "query": query})

    def _post(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Idempotency-Key": str(uuid4())}
        for attempt in range(ATTEMPTS_MAX):
            try:
                answer = self._http.post(path, json=dict(content), headers=headers)
            except httpx.TransportError as error:
                obstacle, wait = str(error), None
            else:
                if answer.is_success:
                    return dict(answer.json())
                if answer.status_code not in _BUSY:
                    raise SaveError(_detail(answer))
                obstacle, wait = _detail(answer), _retry_after(answer)
            if attempt + 1 < ATTEMPTS_MAX:
                self._sleep(min(0.25 * 2**attempt if wait is None else wait, BACKOFF_SECONDS_MAX))
        raise Unavailable(f"the API at {self._url} took no save in {ATTEMPTS_MAX} attempts: {obstacle}")


def side_by_side(save: Callable[[Item], Outcome], items: Iterable[Item]) -> Iterator[Outcome]:
    """What `save` gives for each item, in order, several at a time. The first error is raised and ends it."""
    with ThreadPoolExecutor(SAVES_IN_FLIGHT) as workers:
        yield from workers.map(save, items)


def _retry_after(answer: httpx.Response) -> float | None:
    """Retry-After in its form of seconds; the form of a date is left to the backoff."""
    value = answer.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None


def _detail(answer: httpx.Response) -> str:
    """The problem's sentence, if the answer is one."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"it answered {answer.status_code}"
