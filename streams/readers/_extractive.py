"""The offline summarizer: the two sentences of a text that say most of the whole and least of the same.

Called by the summarizer; calls `_sentences` and `_embedding`. Deterministic: no chance, ties go to the earlier.
"""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np

from streams.contract import Context, DocumentSaved, Row
from streams.readers._embedding import MODEL_NAME, Embedder, Vectors, embedder, unit
from streams.readers._sentences import sentences
from streams.readers._text import CHARACTERS_CONSIDERED_MAX

SENTENCES_MAX = 2
SENTENCES_CONSIDERED_MAX = 2_000
SENTENCE_CHARACTERS_MAX = 400  # a longer one (no stops, minified text) is cut, with an ellipsis
# The second sentence is taken for what it says of the whole, less this share of what it repeats of the first.
REDUNDANCY_WEIGHT = 0.3
# The opening says what a text is about: so much more for its first sentence, half of that at the fourth, as 1/x.
LEAD_BONUS = 0.4
LEAD_SENTENCES = 4
BYTES_ENOUGH = 50  # of a sentence in UTF-8; shorter ones are labels and captions
LETTERS_ENOUGH = 0.7  # of the characters; fewer are code, paths and numbers
WITHOUT_END = 0.7  # weight of what has no stop at its end: items of a list, what was cut

_STOPS = tuple(".!?。！？｡।؟۔")
_CLOSING = "\"'”’»)]*_`」』）》"


class Extractive:
    """The offline summarizer as the reader calls it."""

    def __init__(self) -> None:
        self._embed = embedder()

    async def __call__(self, doc: DocumentSaved, _ctx: Context) -> Row:
        """The summary's row; computed on a thread, so that the event loop keeps serving other documents."""
        summary = await asyncio.to_thread(extract, doc.title, doc.body, self._embed)
        return {"summary": summary, "model": f"extractive-{MODEL_NAME}", "tokens": 0}


def extract(title: str, body: str, embed: Embedder) -> str:
    """Two sentences of the body in their order; one if it has no more; the title if it has none.

    Of any body it considers the first 200,000 characters, and of those the first 2,000 sentences: that bounds the
    time at a second or so of one core and the memory at 20 MB.
    """
    considered = islice(sentences(body[:CHARACTERS_CONSIDERED_MAX]), SENTENCES_CONSIDERED_MAX)
    candidates = list(dict.fromkeys(_cut(sentence) for sentence in considered))
    if len(candidates) <= SENTENCES_MAX:
        return " ".join(candidates) or _cut(" ".join(title.split()))
    chosen = _most_telling(embed(candidates), _weights(candidates))
    return " ".join(candidates[place] for place in sorted(chosen))


def _most_telling(vectors: Vectors, weights: Vectors) -> list[int]:
    """Two rows by maximal marginal relevance (Carbonell and Goldstein, 1998), the weighted centroid as the query."""
    relevance = weights * (vectors @ unit(weights @ vectors))
    first = int(relevance.argmax())
    marginal = (1 - REDUNDANCY_WEIGHT) * relevance - REDUNDANCY_WEIGHT * (vectors @ vectors[first])
    marginal[first] = -np.inf
    return [first, int(marginal.argmax())]


def _weights(candidates: list[str]) -> Vectors:
    """How far each sentence may speak for the text, by its look and its place."""
    looks = np.array([_look(sentence) for sentence in candidates])
    places = np.arange(len(candidates))
    return (looks * (1 + LEAD_BONUS / (1 + places / LEAD_SENTENCES))).astype(np.float32)


def _look(sentence: str) -> float:
    """1 for a whole sentence of words; less for one that is short, has no end, or is signs and digits."""
    length = min(len(sentence.encode()) / BYTES_ENOUGH, 1.0)
    letters = min(sum(map(str.isalpha, sentence)) / len(sentence) / LETTERS_ENOUGH, 1.0)
    return length * letters * (1.0 if sentence.rstrip(_CLOSING).endswith(_STOPS) else WITHOUT_END)


def _cut(sentence: str) -> str:
    """The sentence, cut between words where it is over the limit."""
    if len(sentence) <= SENTENCE_CHARACTERS_MAX:
        return sentence
    head, _, _ = sentence[: SENTENCE_CHARACTERS_MAX + 1].rpartition(" ")
    return (head or sentence[:SENTENCE_CHARACTERS_MAX]) + "…"
