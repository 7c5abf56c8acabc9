"""A document's text, made fit for the built-in readers. Called by each of them; calls nothing."""

from __future__ import annotations

import re

from streams.contract import DocumentSaved, Reject

# Models read this much of a document, the beginning. It bounds their time (1 s for the worst text) and memory.
CHARACTERS_CONSIDERED_MAX = 200_000
# One embedding speaks for about a paragraph: the mean over a longer text says little of any of its parts.
PASSAGE_CHARACTERS_MAX = 400

_REST = PASSAGE_CHARACTERS_MAX - 1
_PASSAGE = re.compile(
    rf"""\S.{{0,{_REST}}}(?:(?=\n|\Z) | (?<=[.!?])(?=\s) | (?<=[。！？]))  # to the last end of a line or sentence
       | \S.{{0,{_REST}}}(?!\S)  # without one in reach, to the last end of a word
       | \S.{{{_REST}}}           # without one, to the limit""",
    re.DOTALL | re.VERBOSE,
)


def refuse_unstorable(doc: DocumentSaved) -> None:
    """Raise Reject if a text holds what neither the models nor Postgres take: NUL or a lone surrogate.

    The API refuses both; another producer on the log may not.
    """
    for field in ("document_id", "owner_id", "title", "body"):
        text: str = getattr(doc, field)
        if "\0" in text:
            raise Reject(f"{field} holds a NUL character, which Postgres cannot store")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Reject(f"{field} holds half a surrogate pair at character {error.start}, which is no text") from error


def passages(text: str) -> list[str]:
    """The text in pieces of up to PASSAGE_CHARACTERS_MAX characters, each cut at the best place in reach."""
    return _PASSAGE.findall(text[:CHARACTERS_CONSIDERED_MAX])
