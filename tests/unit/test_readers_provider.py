"""The summarizer with a provider: every answer that a provider can give ends as a summary, RetryLater or Reject."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.config import Settings
from streams.contract import Context, DocumentSaved, Reject, RetryLater, Row, idempotency_key
from streams.readers._provider import (
    PROMPT_CHARACTERS_MAX,
    RETRY_AFTER_SECONDS_MAX,
    Provider,
    retry_after_seconds,
)
from tests.fake_provider import (
    Behaviour,
    FakeProvider,
    closes_at_once,
    closes_mid_body,
    completion,
    never_answers,
    raw,
    status,
    summary,
    trickles_body,
    trickles_headers,
)

DEADLINE_SECONDS = 30.0  # of the tests that are not about it
SHORT_SECONDS = 0.5
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def document(**changes: Any) -> DocumentSaved:
    fields: dict[str, Any] = {
        "document_id": "doc-1",
        "owner_id": "ann",
        "version": 3,
        "title": "Rivers",
        "body": "Rivers run to the sea.",
        "saved_at": NOON,
    }
    return DocumentSaved(**{**fields, **changes})


def context(doc: DocumentSaved | None = None) -> Context:
    return Context(idempotency_key=idempotency_key("summarizer", doc or document()))


def settings(url: str, deadline_seconds: float) -> Settings:
    return Settings(
        provider_url=url,
        provider_key="secret",
        provider_model="asked-model",
        provider_timeout_seconds=deadline_seconds,
    )


T = TypeVar("T")


def with_provider(url: str, use: Callable[[Provider], Awaitable[T]], seconds: float = DEADLINE_SECONDS) -> T:
    """Use a provider in an event loop, and close it there."""

    async def run() -> T:
        async with aclosing(Provider(settings(url, seconds))) as provider:
            return await use(provider)

    return asyncio.run(run())


def summarize(url: str, doc: DocumentSaved) -> Row:
    return with_provider(url, lambda provider: provider(doc, context(doc)))


def ask(*behaviours: Behaviour, doc: DocumentSaved | None = None) -> tuple[Row, FakeProvider]:
    with FakeProvider(*behaviours) as provider:
        row = summarize(provider.url, doc or document())
    return row, provider


def test_an_answer_becomes_a_row_with_the_model_and_the_tokens() -> None:
    row, _ = ask(summary("Rivers flow. They end in the sea."))
    assert row == {"summary": "Rivers flow. They end in the sea.", "model": "fake-model-1", "tokens": 42}


def test_the_request_carries_the_document_the_key_and_one_idempotency_key_a_version() -> None:
    _, provider = ask(summary("One. Two."))
    (request,) = provider.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["idempotency-key"] == "summarizer:doc-1:3"
    assert request.body["model"] == "asked-model"
    assert request.body["messages"][-1]["content"] == "Rivers\n\nRivers run to the sea."


def test_a_long_body_is_cut_for_the_prompt() -> None:
    _, provider = ask(summary("One. Two."), doc=document(body="x" * (PROMPT_CHARACTERS_MAX + 1)))
    assert provider.requests[0].body["messages"][-1]["content"].count("x") == PROMPT_CHARACTERS_MAX


def test_a_talkative_model_is_cut_to_two_sentences_that_postgres_can_store() -> None:
    row, _ = ask(summary("  First\n one. Second\0 one! Third one. "))
    assert row["summary"] == "First one. Second one!"


def test_what_the_provider_leaves_out_of_its_accounts_is_no_failure() -> None:
    row, _ = ask(summary("One. Two.", model=None, usage=None))
    assert (row["model"], row["tokens"]) == ("asked-model", 0)
    row, _ = ask(summary("One. Two.", usage={}))
    assert row["tokens"] == 0


def test_a_document_without_text_costs_no_call() -> None:
    row, provider = ask(status(500), doc=document(title=" ", body="\n"))
    assert row == {"summary": "", "model": "asked-model", "tokens": 0}
    assert provider.requests == []


@pytest.mark.parametrize("code", [401, 403, 404, 408, 409, 429, 500, 502, 503, 504, 529])
def test_an_error_that_may_pass_is_tried_later_and_not_by_the_client(code: int) -> None:
    with FakeProvider(status(code, message="busy just now")) as provider:
        with pytest.raises(RetryLater, match=f"answered {code}: .*busy just now") as caught:
            summarize(provider.url, document())
        assert caught.value.after_seconds is None
        assert len(provider.requests) == 1


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_refusal_of_the_request_itself_is_final(code: int) -> None:
    with pytest.raises(Reject, match=f"answered {code}: .*too long"):
        ask(status(code, message="the prompt is too long"))


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_honoured(code: int) -> None:
    with pytest.raises(RetryLater) as caught:
        ask(status(code, retry_after="7"))
    assert caught.value.after_seconds == 7


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (raw(b""), "no chat completion"),
        (raw(b"<html>gateway</html>", "text/html"), "no chat completion"),
        (raw(b"\xff\xfe garbage"), "no chat completion"),
        (raw(b'"a string"'), "no chat completion"),
        (raw(b"null"), "no chat completion"),
        (raw(b'{"choices": [{"message": {"content": "\\ud800 half a pair."}}]}'), "no chat completion"),
        (raw(b'{"id": "no choices"}'), "choices Field required"),
        (summary("x", choices=[]), "choices"),
        (summary("x", choices=None), "choices"),
        (summary("x", choices=[{"index": 0}]), r"choices\.0\.message"),
        (summary("x", usage={"total_tokens": -1}), r"usage\.total_tokens"),
        (summary(None), "empty summary"),
        (summary(" \n "), "empty summary"),
        (closes_at_once, "cannot be reached"),
        (closes_mid_body, "cannot be reached"),
    ],
)
def test_an_answer_that_is_none_is_tried_later(answer: Behaviour, reason: str) -> None:
    with pytest.raises(RetryLater, match=reason):
        ask(answer)


@pytest.mark.parametrize("stalling", [never_answers, trickles_headers, trickles_body])
def test_a_provider_that_does_not_end_its_answer_is_left_at_the_deadline(stalling: Behaviour) -> None:
    with FakeProvider(stalling) as fake:
        began = time.monotonic()
        with pytest.raises(RetryLater, match=f"no answer within {SHORT_SECONDS} s"):
            with_provider(fake.url, lambda provider: provider(document(), context()), SHORT_SECONDS)
        assert SHORT_SECONDS <= time.monotonic() - began < SHORT_SECONDS + 3
        assert len(fake.requests) == 1


def test_a_provider_that_is_not_there_is_tried_later() -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        unused = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(RetryLater, match="cannot be reached"):
            summarize(unused, document())


@pytest.mark.parametrize(
    "refused",
    [
        {"message": {"content": None, "refusal": "I cannot help with that"}, "finish_reason": "stop"},
        {"message": {"content": ""}, "finish_reason": "content_filter"},
    ],
)
def test_a_model_that_will_not_summarize_this_document_is_final(refused: dict[str, Any]) -> None:
    with pytest.raises(Reject, match="will not summarize"):
        ask(summary(None, choices=[refused]))


def test_an_outage_then_an_answer_and_the_key_stays_the_same() -> None:
    async def twice(provider: Provider) -> Row:
        with pytest.raises(RetryLater):
            await provider(document(), context())
        return await provider(document(), context())

    with FakeProvider(status(503, retry_after="1"), summary("One. Two.")) as fake:
        row = with_provider(fake.url, twice)
    assert row["summary"] == "One. Two."
    assert len({request.headers["idempotency-key"] for request in fake.requests}) == 1


def test_many_documents_are_summarized_at_once() -> None:
    documents = [document(document_id=f"doc-{n}") for n in range(20)]

    async def all_of(provider: Provider) -> list[Row]:
        return await asyncio.gather(*(provider(doc, context(doc)) for doc in documents))

    with FakeProvider(summary("One. Two.")) as fake:
        rows = with_provider(fake.url, all_of)
    assert len(rows) == 20
    assert {request.headers["idempotency-key"] for request in fake.requests} == {
        f"summarizer:doc-{n}:3" for n in range(20)
    }


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("2.5", 2.5),
        (" 120 ", 120.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("inf", None),
        ("nan", None),
        ("1e3", None),
        ("9" * 400, RETRY_AFTER_SECONDS_MAX),
        ("Fri, 27 Nov 2026 12:00:30 GMT", 30.0),
        ("Fri, 27 Nov 2026 11:00:00 GMT", 0.0),
        ("Fri, 27 Nov 9999 12:00:00 GMT", RETRY_AFTER_SECONDS_MAX),
        ("Fri, 99 Nov 2026 12:00:00 GMT", None),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, NOON) == seconds


@given(st.text())
def test_no_retry_after_header_is_an_error(header: str) -> None:
    seconds = retry_after_seconds(header, NOON)
    assert seconds is None or 0 <= seconds <= RETRY_AFTER_SECONDS_MAX


def test_the_fake_answers_as_the_real_client_reads_it() -> None:
    """The fake's completion is valid for the openai package's own type, or the tests above would prove little."""
    from openai.types.chat import ChatCompletion

    assert ChatCompletion.model_validate(completion("One. Two."), strict=True).usage is not None
