"""Declaring a reader: what is inferred, what is refused and with which sentence, what identifies an attempt."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams import Context, reader
from streams.contract import idempotency_key, takes_context
from streams.errors import ReaderError
from tests.executing import document


def plain(doc: Any) -> None:
    return None


async def coroutine(doc: Any) -> None:
    return None


async def make() -> int:
    return 1


@pytest.mark.parametrize(
    ("handler", "kind", "runs_as"),
    [
        (plain, None, "thread"),
        (coroutine, None, "async"),
        (partial(coroutine), None, "async"),
        (plain, "thread", "thread"),
        (coroutine, "async", "async"),
        (plain, "process", "process"),
        (coroutine, "process", "process"),
    ],
)
def test_the_kind_is_told_or_inferred(handler: Any, kind: Any, runs_as: str) -> None:
    assert reader(group="g", kind=kind)(handler).runs_as == runs_as


@pytest.mark.parametrize(
    ("handler", "options", "fault"),
    [
        (plain, {"kind": "async"}, 'kind "async" needs a coroutine function as handler'),
        (coroutine, {"kind": "thread"}, 'kind "thread" cannot run a coroutine function; leave kind out'),
        (plain, {"kind": "fibre"}, 'kind is "async", "thread" or "process"'),
        (plain, {"batch": 0}, "batch is a whole number from 1"),
        (plain, {"batch": 2.0}, "batch is a whole number from 1"),
        (plain, {"concurrency": 0}, "concurrency is a whole number from 1"),
        (plain, {"concurrency": "4"}, "concurrency is a whole number from 1"),
        (plain, {"timeout_seconds": 0}, "timeout_seconds is over 0, at most 1000000"),
        (plain, {"timeout_seconds": -1.0}, "timeout_seconds is over 0, at most 1000000"),
        (plain, {"timeout_seconds": math.inf}, "timeout_seconds is over 0, at most 1000000"),
        (plain, {"timeout_seconds": "5"}, "timeout_seconds is over 0, at most 1000000"),
        (plain, {"max_age_seconds": math.nan}, "max_age_seconds is over 0"),
        (plain, {"max_age_seconds": "1d"}, "max_age_seconds is over 0"),
        (lambda doc, made: None, {"setup": make}, "a coroutine function as setup needs one as handler"),
        (lambda doc, other: None, {}, "the handler takes 1 argument(s): the document"),
        (lambda ctx: None, {}, "the handler takes 1 argument(s): the document"),
        (lambda doc, ctx, other: None, {}, "the handler takes 1 argument(s): the document"),
        (lambda ctx, doc: None, {}, "the handler takes 1 argument(s): the document; then ctx, if at all"),
        (lambda *, doc: None, {}, "the handler takes 1 argument(s): the document"),
        (lambda doc, ctx, /: None, {}, "the handler takes 1 argument(s): the document"),
        (lambda doc, *ctx: None, {}, "the handler takes 1 argument(s): the document"),
        (lambda doc, ctx: None, {"setup": dict}, "the handler takes 2 argument(s): the document, what setup made"),
        (plain, {"on_delete": lambda doc, made: None}, "on_delete takes 1 argument(s): the document"),
        (plain, {"patience": 1}, "unexpected keyword argument 'patience'"),
    ],
)
def test_what_cannot_run_is_refused_by_name(handler: Any, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ReaderError) as caught:
        reader(group="some-group", **options)(handler)
    assert str(caught.value).startswith("reader 'some-group': ")
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (lambda doc, ctx: None, {}),
        (lambda doc, *, ctx: None, {}),
        (lambda doc, made, ctx=None: None, {"setup": dict}),
        (lambda doc: None, {"on_delete": lambda doc, ctx: None}),
    ],
)
def test_a_parameter_named_ctx_asks_for_the_context(handler: Any, options: dict[str, Any]) -> None:
    assert reader(group="g", **options)(handler).takes_context


def test_without_it_there_is_none() -> None:
    assert not reader(group="g")(plain).takes_context
    assert not takes_context(lambda doc, **ctx: None)


def test_a_context_for_a_handlers_own_test_needs_the_key_alone() -> None:
    context = Context(idempotency_key="k")
    assert (context.attempt, context.deadline, context.is_replay) == (1, None, False)


def test_the_idempotency_key_names_reader_document_and_version() -> None:
    assert idempotency_key("summarizer", document("doc-1", 3)) == "summarizer:doc-1:3"
    assert idempotency_key("ranker", document("a/b c\nö", 12)) == "ranker:a/b%20c%0A%C3%B6:12"


@example("%20", " ", 1, 1)
@given(st.text(), st.text(), st.integers(1, 9), st.integers(1, 9))
def test_the_idempotency_key_is_a_header_and_one_a_document_and_version(a: str, b: str, v: int, w: int) -> None:
    first, second = (idempotency_key("g", document(name, version)) for name, version in ((a, v), (b, w)))
    assert (first == second) == ((a, v) == (b, w))
    assert all(" " < character < "\x7f" for character in first)
