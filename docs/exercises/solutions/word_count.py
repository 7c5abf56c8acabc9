"""Counts the words of each saved document, and of each owner."""

from __future__ import annotations

from streams import DocumentSaved, Increment, Upsert, reader


@reader(group="word-count")
def count_words(doc: DocumentSaved) -> tuple[Upsert, Increment]:
    """The document's own row, which is replaced, and its owner's, which grows once a version."""
    words = len(doc.body.split())
    return (
        Upsert(key=doc.document_id, value={"words": words}),
        Increment(key=f"owner:{doc.owner_id}", by={"saves": 1, "words": words}),
    )
