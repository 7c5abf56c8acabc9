"""The ranker: a document against its owner's queries, by the built-in scorer and by one of another package."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.config import Settings
from streams.contract import DocumentSaved, Reject, Replace, RetryLater
from streams.errors import ReaderError
from streams.readers._saved_queries import SavedQueries
from streams.readers._scorer import WordLlamaScorer, scorer_named
from streams.readers._text import CHARACTERS_CONSIDERED_MAX, PASSAGE_CHARACTERS_MAX, passages
from streams.readers.ranker import Ranker, rank

DOCUMENTS = {
    "bread": "Sourdough bread rises slowly. Knead the flour and water, then bake the loaf in a hot oven.",
    "orbits": "A planet moves around its star in an ellipse, faster when it is near and slower when it is far.",
    "football": "The striker scored twice in the second half and the team won the cup on penalties.",
    "databases": "A transaction writes its rows to the log first, so that a crash of the database loses nothing.",
    "gardens": "Plant the tomatoes after the last frost, water the soil well and tie the stems to a stick.",
}
TOPICS = {
    "how to bake a loaf": "bread",
    "planets and gravity": "orbits",
    "goals in a football match": "football",
    "database durability": "databases",
    "growing vegetables": "gardens",
}


def document(body: str = DOCUMENTS["bread"], **changes: Any) -> DocumentSaved:
    fields = {"document_id": "doc-1", "owner_id": "ann", "version": 1, "title": "", "saved_at": datetime.now(UTC)}
    return DocumentSaved(**{**fields, "body": body, **changes})


@pytest.fixture(scope="module")
def scorer() -> WordLlamaScorer:
    return WordLlamaScorer()


@pytest.mark.parametrize(("query", "best"), TOPICS.items())
def test_a_query_ranks_the_document_of_its_topic_first(scorer: WordLlamaScorer, query: str, best: str) -> None:
    scores = {name: scorer([query], body)[0] for name, body in DOCUMENTS.items()}
    assert max(scores, key=lambda name: scores[name]) == best


def test_the_passage_counts_wherever_it_stands_in_a_long_document(scorer: WordLlamaScorer) -> None:
    query = ["how to bake a loaf"]
    filler = f"{DOCUMENTS['football']}\n" * 100
    long = filler + f"{DOCUMENTS['bread']}\n" * 4 + filler
    others = [body for name, body in DOCUMENTS.items() if name != "bread"]
    assert scorer(query, long)[0] > max(scorer(query, other)[0] for other in others) + 0.1


def test_the_title_counts(scorer: WordLlamaScorer) -> None:
    def score(title: str) -> float:
        row = Ranker(lambda _: [("q", "beekeeping")], scorer).scores(document("It is done in spring.", title=title))
        return float(row["doc-1", "q", scorer.model_version]["score"])

    assert score("Beekeeping for beginners") > score("Untitled") + 0.2


def test_the_scores_of_a_document_are_one_set_by_document_query_and_model(scorer: WordLlamaScorer) -> None:
    saved = [(str(uuid4()), "bread"), (str(uuid4()), "planets")]
    effect = rank(document(), Ranker({"ann": saved}.__getitem__, scorer))
    assert isinstance(effect, Replace)
    assert effect.scope == {}
    assert list(effect.rows) == [("doc-1", query_id, "wordllama-l2_supercat-256") for query_id, _ in saved]
    first, second = (row["score"] for row in effect.rows.values())
    assert first > second


def test_an_owner_without_queries_gets_an_empty_set(scorer: WordLlamaScorer) -> None:
    assert rank(document(), Ranker(lambda _: [], scorer)) == Replace({})


@pytest.mark.parametrize("body", ["", " \n ", "\u200b", "x" * 5_000])
def test_a_text_without_words_has_a_finite_score(scorer: WordLlamaScorer, body: str) -> None:
    (score,) = scorer(["anything"], body)
    assert -1.001 <= score <= 1.001


@settings(deadline=None, max_examples=60)
@given(queries=st.lists(st.text(max_size=40), min_size=1, max_size=4), text=st.text())
def test_any_text_has_one_score_a_query(queries: list[str], text: str) -> None:
    scores = WordLlamaScorer()(queries, text)
    assert len(scores) == len(queries)
    assert all(-1.001 <= score <= 1.001 for score in scores)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_passages_keep_every_word_within_their_limit(text: str) -> None:
    pieces = passages(text)
    assert all(0 < len(piece) <= PASSAGE_CHARACTERS_MAX for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_passages_end_with_a_line_or_a_sentence_if_one_is_in_reach() -> None:
    sentence = f"{'word ' * 59}end."
    assert passages(f"{sentence} {sentence}\n{sentence}") == [sentence] * 3
    assert passages("天" * 300 + "。" + "天" * 300) == ["天" * 300 + "。", "天" * 300]


def test_passages_of_one_endless_word_are_cut_at_the_limit() -> None:
    lengths = [len(piece) for piece in passages("x" * (2 * CHARACTERS_CONSIDERED_MAX))]
    assert set(lengths) == {PASSAGE_CHARACTERS_MAX}
    assert sum(lengths) == CHARACTERS_CONSIDERED_MAX


@pytest.mark.parametrize("unit", ["word ", "天气", "😀", "x"])
def test_the_longest_body_takes_two_seconds_of_processor_at_most(scorer: WordLlamaScorer, unit: str) -> None:
    body = unit * (4 * 1024 * 1024 // len(unit.encode()))
    began = time.process_time()
    scorer(["weather"], body)
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("field", ["document_id", "owner_id", "title", "body"])
@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_cannot_be_stored_is_refused_for_good(scorer: WordLlamaScorer, field: str, text: str) -> None:
    with pytest.raises(Reject, match=f"^{field} holds"):
        rank(document(**{field: text}), Ranker(lambda _: [("q", "x")], scorer))


def test_postgres_down_is_tried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.readers._saved_queries.CONNECT_SECONDS_MAX", 1)
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        queries = SavedQueries(Settings(db_port=taken.getsockname()[1]))
        try:
            with pytest.raises(RetryLater, match="saved queries cannot be read from Postgres"):
                queries("ann")
        finally:
            queries.close()


SCORERS = """
class Length:
    model_version = "length-1"
    def __call__(self, queries, text):
        return [len(query) / len(text) for query in queries]

made = Length()
nameless = len

class Broken:
    def __init__(self):
        raise RuntimeError("no weights")
"""


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that offers scorers."""
    (tmp_path / "some_scorers.py").write_text(SCORERS)
    info = tmp_path / "scorers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scorers\nVersion: 1.0\n")
    entries = {"class": "Length", "object": "made", "nameless": "nameless", "broken": "Broken", "absent": "Absent"}
    lines = "\n".join(f"{name} = some_scorers:{value}" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[streams.scorers]\n{lines}\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("name", ["class", "object"])
def test_a_scorer_of_another_package_takes_the_place_of_the_built_in(name: str) -> None:
    effect = rank(document("1234567890", title=""), Ranker(lambda _: [("q", "12345")], scorer_named(name)))
    assert effect == Replace({("doc-1", "q", "length-1"): {"score": 5 / 11}})


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unknown", "'unknown', but there are only absent, broken, class, nameless, object, wordllama"),
        ("nameless", "must be callable and have a model_version"),
        ("broken", "cannot be loaded: no weights"),
        ("absent", "cannot be loaded: .*Absent"),
    ],
)
def test_a_scorer_at_fault_is_named(name: str, reason: str) -> None:
    with pytest.raises(ReaderError, match=reason):
        scorer_named(name)


def test_a_scorer_that_returns_too_few_scores_is_an_error_and_no_row() -> None:
    class Short:
        model_version = "short"

        def __call__(self, queries: list[str], text: str) -> list[float]:
            return []

    with pytest.raises(ValueError, match="zip"):
        rank(document(), Ranker(lambda _: [("q", "x")], Short()))
