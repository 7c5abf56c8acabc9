"""The indexer: a row that Postgres takes whatever the text. (That it does take it: tests/integration.)"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.contract import DocumentSaved, Reject, Upsert
from streams.readers._embedding import DIMENSIONS, embedder
from streams.readers.indexer import CONTENT_BYTES_MAX, cut, embedding, index
from streams.topics import BODY_BYTES_MAX


def document(body: str, **changes: Any) -> DocumentSaved:
    fields = {"document_id": "doc-1", "owner_id": "ann", "version": 1, "title": "A title"}
    return DocumentSaved(**{**fields, "body": body, "saved_at": datetime.now(UTC), **changes})


def row(body: str, **changes: Any) -> dict[str, Any]:
    effect = index(document(body, **changes), embedder())
    assert isinstance(effect, Upsert)
    assert effect.key == "doc-1"
    return dict(effect.value)


def numbers(vector: str) -> list[float]:
    assert vector[0] + vector[-1] == "[]"
    return [float(number) for number in vector[1:-1].split(",")]


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_a_row_holds_title_and_body_whole() -> None:
    made = row("The body.")
    assert {name: made[name] for name in ("owner_id", "title", "content", "truncated")} == {
        "owner_id": "ann",
        "title": "A title",
        "content": "A title\nThe body.",
        "truncated": False,
    }


def test_the_embedding_is_a_unit_vector_that_knows_the_topic() -> None:
    bread, loaf, planet = (
        numbers(embedding(text, embedder())) for text in ("Baking bread.", "A loaf from the oven.", "Planets in orbit.")
    )
    assert len(bread) == DIMENSIONS
    assert math.isclose(cosine(bread, bread), 1, rel_tol=1e-4)
    assert cosine(bread, loaf) > cosine(bread, planet) + 0.1


def test_a_text_without_words_has_the_zero_vector() -> None:
    assert numbers(row("", title="")["embedding"]) == [0.0] * DIMENSIONS


def test_a_text_over_the_limit_is_cut_and_says_so() -> None:
    made = row("é" * CONTENT_BYTES_MAX, title="")
    assert made["truncated"] is True
    assert len(made["content"].encode()) == CONTENT_BYTES_MAX - 1  # a line feed, then as many whole é as fit


def test_a_text_of_the_limit_is_whole() -> None:
    made = row("x" * (CONTENT_BYTES_MAX - len("A title\n")))
    assert made["truncated"] is False


@given(text=st.text(st.characters(exclude_categories=["Cs"])), bytes_max=st.integers(0, 50))
def test_a_cut_is_the_longest_beginning_that_fits(text: str, bytes_max: int) -> None:
    kept = cut(text, bytes_max)
    assert text.startswith(kept)
    assert len(kept.encode()) <= bytes_max
    assert kept == text or len(text[: len(kept) + 1].encode()) > bytes_max


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text_has_a_finite_vector(text: str) -> None:
    vector = numbers(row(text)["embedding"])
    assert len(vector) == DIMENSIONS
    assert all(map(math.isfinite, vector))


@pytest.mark.parametrize("unit", ["word ", "天气", "😀", "x"])
def test_the_longest_body_takes_two_seconds_of_processor_at_most(unit: str) -> None:
    embedder()
    body = unit * (BODY_BYTES_MAX // len(unit.encode()))
    began = time.process_time()
    assert row(body)["truncated"]
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("field", ["document_id", "owner_id", "title", "body"])
@pytest.mark.parametrize("text", ["a\0b", "\udc00"])
def test_text_that_cannot_be_stored_is_refused_for_good(field: str, text: str) -> None:
    with pytest.raises(Reject, match=f"^{field} holds"):
        index(document(**{"body": "", field: text}), embedder())
