"""Scorers for the ranker: the built-in one, and the choice of another by entry point. Called by the ranker's
setup and by re-scoring.
"""

from __future__ import annotations

import importlib.metadata
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streams.errors import ReaderError
from streams.readers._embedding import MODEL_NAME, Vectors, embedder
from streams.readers._text import passages

if TYPE_CHECKING:
    from streams.readers.ranker import Scorer

ENTRY_POINTS = "streams.scorers"
BUILT_IN = "wordllama"
QUERIES_CACHED_MAX = 4_096  # 1 KB each


class WordLlamaScorer:
    """The cosine of the query with the passage of the text that fits it best; 0 for a text without words.

    The best and not the mean: a document answers a query if some part of it does, however long the rest.
    """

    model_version = MODEL_NAME

    def __init__(self) -> None:
        self._embed = embedder()
        self._query = lru_cache(maxsize=QUERIES_CACHED_MAX)(self._embed_query)

    def __call__(self, queries: list[str], text: str) -> list[float]:
        pieces = self._embed(passages(text) or [""])
        wanted = np.stack([self._query(query) for query in queries])
        best: list[float] = (wanted @ pieces.T).max(axis=1).tolist()
        return best

    def _embed_query(self, query: str) -> Vectors:
        vector: Vectors = self._embed([query])[0]
        return vector


def scorer_named(name: str, named_by: str = "STREAMS_RANKER_MODEL") -> Scorer:
    """The scorer of this name. Raises ReaderError that lists what there is, or says why it cannot be loaded."""
    offered = {entry.name: entry for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if name == BUILT_IN:
        return WordLlamaScorer()
    if name not in offered:
        known = ", ".join(sorted({BUILT_IN, *offered}))
        raise ReaderError(f"{named_by} names the scorer {name!r}, but there are only {known}")
    return _made(offered[name])


def _made(entry: importlib.metadata.EntryPoint) -> Scorer:
    try:
        loaded: Any = entry.load()
        scorer = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:  # a package of others may raise anything
        raise ReaderError(f"the scorer {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error
    if not callable(scorer) or not isinstance(getattr(scorer, "model_version", None), str):
        raise ReaderError(f"the scorer {entry.name!r} ({entry.value}) must be callable and have a model_version")
    return cast("Scorer", scorer)
