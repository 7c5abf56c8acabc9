"""Sentence embeddings that work offline: WordLlama, whose weights come with its package, loaded once a process.

Called by the summarizer, the ranker and the indexer, from any number of threads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]

MODEL_NAME = "wordllama-l2_supercat-256"
DIMENSIONS = 256

_loading = Lock()


class Embedder:
    """Text to vectors. Shares one read-only matrix; safe for threads.

    It pools the token vectors itself, text by text: WordLlama's own `embed` pads a batch to its longest text, which
    takes memory without bound and makes a vector depend, in its last bits, on its neighbours in the batch.
    """

    def __init__(self, tokenizer: Any, matrix: Vectors) -> None:
        self._tokenizer = tokenizer
        self._matrix = matrix

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape (len(texts), 256); the zero vector for a text without tokens."""
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, encoded in enumerate(self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)):
            if encoded.ids:
                vectors[row] = self._matrix[encoded.ids].mean(axis=0)
        return unit(vectors)


def unit(vectors: Vectors) -> Vectors:
    """The vectors along the last axis at length 1; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def embedder() -> Embedder:
    """The process's embedder; loading it takes half a second and 60 MB."""
    with _loading:
        return _load()


@cache
def _load() -> Embedder:
    with _logging_untouched():
        import wordllama

        # Its own folder as cache: the plain call looks elsewhere and then tries the network.
        folder = Path(wordllama.__file__).parent
        model = wordllama.WordLlama.load(cache_dir=folder, dim=DIMENSIONS, disable_download=True)
    model.tokenizer.no_padding()
    return Embedder(model.tokenizer, model.embedding)


@contextmanager
def _logging_untouched() -> Iterator[None]:
    """Importing WordLlama configures the root logger, which is the program's to do."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
