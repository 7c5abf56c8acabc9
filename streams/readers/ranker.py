"""The score of each saved document against every saved query of its owner, from -1 to 1 with the built-in scorer.

The scorer is WordLlama's cosine (`_scorer`), or by STREAMS_RANKER_MODEL one that another package offers under the
entry-point group `streams.scorers`, such as a cross-encoder. Called by the runtime; reads `app.saved_queries`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from streams import DocumentSaved, Replace, Table, reader
from streams.contract import Key, Row
from streams.readers._text import refuse_unstorable

SCORES = Table("scores", key=("document_id", "query_id", "model_version"))


class Scorer(Protocol):
    """What `streams.scorers` offers: this object, or a class without parameters that makes it."""

    model_version: str  # part of the scores' key: change it when the scores change their meaning

    def __call__(self, queries: list[str], text: str) -> Sequence[float]:
        """One score a query, higher for a better match; `text` is the title, a line feed and the body.

        It raises RetryLater where it cannot answer now; what else it raises is the document's fault.
        """
        ...


class Ranker:
    """The owner's queries and the scorer, made once a worker; safe for threads."""

    def __init__(self, queries_of: Callable[[str], list[tuple[str, str]]], scorer: Scorer) -> None:
        self.queries_of = queries_of
        self.scorer = scorer

    def scores(self, doc: DocumentSaved) -> dict[Key, Row]:
        """The rows of the document: (document_id, query_id, model_version) to its score."""
        saved = self.queries_of(doc.owner_id)
        if not saved:
            return {}
        scores = self.scorer([query for _, query in saved], f"{doc.title}\n{doc.body}")
        return {
            (doc.document_id, query_id, self.scorer.model_version): {"score": float(score)}
            for (query_id, _), score in zip(saved, scores, strict=True)
        }


def make_ranker() -> Ranker:
    """The scorer of the settings and a pool to read queries. Raises ReaderError for an unknown scorer."""
    from streams.config import settings
    from streams.readers._saved_queries import SavedQueries
    from streams.readers._scorer import scorer_named

    config = settings()
    return Ranker(SavedQueries(config), scorer_named(config.ranker_model))


@reader(group="ranker", table=SCORES, setup=make_ranker)
def rank(doc: DocumentSaved, ranker: Ranker) -> Replace:
    """All scores of the document as a set: those of queries since deleted go. RetryLater while Postgres is down."""
    refuse_unstorable(doc)
    return Replace(rows=ranker.scores(doc))
