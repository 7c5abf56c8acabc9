"""The client tries a save again where that helps, and no longer than it should."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from streams.errors import SaveError, Unavailable
from streams.ops.client import ATTEMPTS_MAX, BACKOFF_SECONDS_MAX, KNOCK_SECONDS, KNOCKS_MAX, Client

Answer = Callable[[int, httpx.Request], httpx.Response]
DOCUMENT = {"owner_id": "ada", "title": "Notes", "body": "text"}


class Api:
    """Answers by number of attempt, and remembers what it was asked and how long it was let alone."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[httpx.Request] = []
        self.waits_seconds: list[float] = []
        self._answer = answer

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self._answer(len(self.requests), request)

    def client(self) -> Client:
        return Client("http://api", sleep=self.waits_seconds.append, transport=httpx.MockTransport(self.handle))


def accepted() -> httpx.Response:
    return httpx.Response(202, json={"job_id": "j", "document_id": "d", "version": 1})


def test_a_busy_api_is_asked_again_when_it_says() -> None:
    api = Api(lambda n, _: accepted() if n == 3 else httpx.Response(503, headers={"Retry-After": "7"}))
    assert api.client().save(DOCUMENT)["version"] == 1
    assert api.waits_seconds == [7, 7]


def test_all_attempts_of_a_save_have_one_key_and_another_save_has_another() -> None:
    def answer(n: int, request: httpx.Request) -> httpx.Response:
        if n == 1:
            raise httpx.ReadError("connection reset", request=request)
        return accepted()

    api = Api(answer)
    with api.client() as client:
        client.save(DOCUMENT)
        client.save(DOCUMENT)
    keys = [request.headers["Idempotency-Key"] for request in api.requests]
    assert keys[0] == keys[1] != keys[2]
    assert json.loads(api.requests[1].content) == DOCUMENT


def test_it_gives_up_after_its_attempts() -> None:
    api = Api(lambda _n, _r: httpx.Response(503, json={"detail": "Postgres cannot be used now"}))
    with pytest.raises(Unavailable, match="Postgres cannot be used now"):
        api.client().save(DOCUMENT)
    assert len(api.requests) == ATTEMPTS_MAX
    assert len(api.waits_seconds) == ATTEMPTS_MAX - 1
    assert api.waits_seconds == sorted(api.waits_seconds)


def test_no_wait_is_longer_than_the_bound() -> None:
    api = Api(lambda n, _: accepted() if n == 2 else httpx.Response(503, headers={"Retry-After": "86400"}))
    api.client().save(DOCUMENT)
    assert api.waits_seconds == [BACKOFF_SECONDS_MAX]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (httpx.Response(422, json={"detail": "title: is empty"}), "title: is empty"),
        (httpx.Response(500, text="<html>"), "it answered 500"),
        (httpx.Response(400, json=["odd"]), "it answered 400"),
    ],
)
def test_a_refusal_is_final(answer: httpx.Response, sentence: str) -> None:
    api = Api(lambda _n, _r: answer)
    with pytest.raises(SaveError, match=sentence):
        api.client().save(DOCUMENT)
    assert len(api.requests) == 1


@pytest.mark.parametrize(("url", "knocks"), [("http://127.0.0.1:1", KNOCKS_MAX), ("not a url", 1), ("", 1)])
def test_an_api_that_is_not_there_is_said_after_a_few_seconds_at_most(url: str, knocks: int) -> None:
    waits: list[float] = []
    with Client(url, sleep=waits.append) as client, pytest.raises(Unavailable, match="does not answer"):
        client.check()
    assert waits == [KNOCK_SECONDS] * (knocks - 1)


def test_an_api_that_is_starting_is_waited_for() -> None:
    def answer(n: int, request: httpx.Request) -> httpx.Response:
        if n < 4:
            raise httpx.ConnectError("Connection refused", request=request)
        return httpx.Response(200)

    api = Api(answer)
    api.client().check()
    assert len(api.waits_seconds) == 3
