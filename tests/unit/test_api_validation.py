"""What the API refuses before it asks Postgres, and with which words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from streams.api.limits import REQUEST_BYTES_MAX
from streams.topics import BODY_BYTES_MAX
from tests.api_double import DatabaseDouble, client

DOCUMENT = {"owner_id": "ada", "title": "Notes", "body": "text"}
JSON = {"Content-Type": "application/json"}
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def post(content: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> tuple[Any, DatabaseDouble]:
    database = DatabaseDouble()
    # Python's json writes lone surrogates as escapes, as a careless client would.
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return client(database).post("/documents", content=data, headers=JSON if headers is None else headers), database


def is_problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return problem


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"title": "a\0b"}, "title", "NUL"),
        ({"body": "\0"}, "body", "NUL"),
        ({"body": "\ud800"}, "body", "lone surrogate"),
        ({"title": "x\udfff"}, "title", "lone surrogate"),
        ({"owner_id": "\udc00"}, "owner_id", "lone surrogate"),
        ({"document_id": "a\ud800"}, "document_id", "lone surrogate"),
        ({"document_id": ""}, "document_id", "empty"),
        ({"document_id": "x" * 256}, "document_id", "longer than 255"),
        ({"document_id": 7}, "document_id", "string"),
        ({"owner_id": ""}, "owner_id", "empty"),
        ({"title": "x" * 10_001}, "title", "longer than 10,000"),
        ({"title": None}, "title", "string"),
        ({"body": ["text"]}, "body", "string"),
        ({"body": True}, "body", "string"),
        ({"tags": []}, "tags", "not a field"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], field: str, reason: str) -> None:
    answer, database = post(DOCUMENT | change)
    problem = is_problem(answer, 422)
    assert [error["field"] for error in problem["errors"]] == [field]
    assert reason in problem["errors"][0]["reason"]
    assert problem["detail"] == f"{field}: {problem['errors'][0]['reason']}"
    assert database.writes == []


def test_every_bad_field_is_named_at_once() -> None:
    problem = is_problem(post({"owner_id": 1, "text": "x"})[0], 422)
    assert {error["field"] for error in problem["errors"]} == {"owner_id", "title", "body", "text"}
    assert {"field": "title", "reason": "is missing"} in problem["errors"]


@pytest.mark.parametrize("content", [b"[]", b"null", b"3", b'"text"', b""])
def test_what_is_no_object_is_refused(content: bytes) -> None:
    assert is_problem(post(content)[0], 422)["errors"][0]["field"] == "request body"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"owner_id": "ada"', "not valid JSON"),
        (b"{owner_id: 1}", "not valid JSON"),
        (b'{"owner_id": "\xff"}', "not valid UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_is_a_bad_request(content: bytes, sentence: str) -> None:
    assert sentence in is_problem(post(content)[0], 400)["detail"]


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "", "multipart/form-data"],
)
def test_another_content_type_is_refused(content_type: str) -> None:
    answer, database = post(DOCUMENT, {"Content-Type": content_type} if content_type else {})
    assert "application/json" in is_problem(answer, 415)["detail"]
    assert database.writes == []


@pytest.mark.parametrize("content_type", ["application/json; charset=UTF-8", "application/merge-patch+json"])
def test_json_in_utf8_is_taken_by_any_of_its_names(content_type: str) -> None:
    assert post(DOCUMENT, {"Content-Type": content_type})[0].status_code == 202


@pytest.mark.parametrize(
    "document",
    [
        {"title": "x" * 10_000, "body": ""},
        {"title": "", "body": "a" * BODY_BYTES_MAX},
        {"title": "مرحبا 😀", "body": "é" * (BODY_BYTES_MAX // 2)},
        {"document_id": "x" * 255, "title": "t", "body": "\u0001\ufffe"},
    ],
)
def test_the_limits_themselves_are_taken(document: dict[str, str]) -> None:
    answer, database = post(DOCUMENT | document)
    assert answer.status_code == 202
    written = database.writes[0][0]
    assert (written.title, written.body) == (document["title"], document["body"])  # type: ignore[union-attr]


@pytest.mark.parametrize("body", ["a" * (BODY_BYTES_MAX + 1), "é" * (BODY_BYTES_MAX // 2) + "a"])
def test_a_body_over_the_limit_is_too_large(body: str) -> None:
    answer, database = post(DOCUMENT | {"body": body})
    assert "4,194,304 bytes" in is_problem(answer, 413)["detail"]
    assert database.writes == []


def test_a_request_that_says_that_it_is_too_large_is_not_read() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("it was read")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-length", str(REQUEST_BYTES_MAX + 1).encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/documents", "headers": headers, "query_string": b""}
    asyncio.run(client(DatabaseDouble()).app(scope, receive, send))  # type: ignore[arg-type]
    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == [413]


def test_a_request_of_unknown_length_is_cut_off_when_it_is_too_large() -> None:
    answer = client(DatabaseDouble()).post(
        "/documents", content=(b" " * 1_000_000 for _ in range(REQUEST_BYTES_MAX // 1_000_000 + 1)), headers=JSON
    )
    is_problem(answer, 413)


def test_the_path_names_the_document_and_may_have_slashes() -> None:
    database = DatabaseDouble()
    answer = client(database).put("/documents/notes%2F2026/a%20b.md", json=DOCUMENT)
    assert answer.json()["document_id"] == "notes/2026/a b.md"
    assert answer.headers["location"] == f"/jobs/{answer.json()['job_id']}"
    assert is_problem(client(database).put("/documents/a", json=DOCUMENT | {"document_id": "a"}), 422)


@pytest.mark.parametrize("path", ["/documents/a%00b", "/documents/" + "x" * 256, "/documents/"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_bad_id_in_the_path_is_named(method: str, path: str) -> None:
    answer = client(DatabaseDouble()).request(method, path, json=DOCUMENT if method == "PUT" else None)
    problem = is_problem(answer, 422)
    assert [error["field"] for error in problem["errors"]] == ["document_id"]


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_bad_idempotency_key_is_named(key: str) -> None:
    problem = is_problem(post(DOCUMENT, JSON | {"Idempotency-Key": key})[0], 422)
    assert [error["field"] for error in problem["errors"]] == ["Idempotency-Key"]


@pytest.mark.parametrize(
    ("header", "passed_on"),
    [
        (TRACEPARENT, TRACEPARENT),
        (TRACEPARENT.upper(), None),
        ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", None),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01", None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_a_valid_traceparent_is_passed_on(header: str | None, passed_on: str | None) -> None:
    _, database = post(DOCUMENT, JSON | ({"traceparent": header} if header else {}))
    assert database.writes[0][1].traceparent == passed_on


def test_requests_under_one_key_are_told_apart() -> None:
    def request_hash(method: str, path: str, document: dict[str, str]) -> bytes:
        database = DatabaseDouble()
        answer = client(database).request(method, path, json=document, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202
        return database.writes[0][1].request_hash

    first = request_hash("POST", "/documents", DOCUMENT)
    assert first == request_hash("POST", "/documents", dict(reversed(DOCUMENT.items())))
    others = [
        request_hash("POST", "/documents", DOCUMENT | {"body": "other"}),
        request_hash("PUT", "/documents/a", DOCUMENT),
        request_hash("PUT", "/documents/b", DOCUMENT),
    ]
    assert len({first, *others}) == 4


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/documents/", 422),
        ("PATCH", "/documents", 405),
        ("POST", "/documents/a", 405),
        ("GET", "/jobs/no-uuid", 404),
        ("DELETE", "/queries/no-uuid", 404),
        ("GET", "/queries", 422),
    ],
)
def test_every_refusal_is_a_problem(method: str, path: str, status: int) -> None:
    answer = client(DatabaseDouble()).request(method, path)
    is_problem(answer, status)
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize("query", ["", "x" * 401, "a\0b", 5])
def test_a_bad_query_is_named(query: Any) -> None:
    answer = client(DatabaseDouble()).post("/queries", json={"owner_id": "ada", "query": query})
    assert [error["field"] for error in is_problem(answer, 422)["errors"]] == ["query"]
