"""Readers that always succeed: one that records what it sees, one that counts."""

from __future__ import annotations

import hashlib
import os

from streams import DocumentSaved, Increment, Upsert, reader
from tests.readers_for_tests import PREFIX


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@reader(group=f"{PREFIX}recorder")
def record(doc: DocumentSaved) -> Upsert:
    """What this reader sees of a document."""
    seen = {"version": doc.version, "title": digest(doc.title), "body": digest(doc.body), "pid": os.getpid()}
    return Upsert(doc.document_id, seen)


@reader(group=f"{PREFIX}counter")
async def count(doc: DocumentSaved) -> list[Increment]:
    """Versions, all together and by document."""
    return [Increment("all", {"versions": 1}), Increment(f"of {doc.document_id}", {"versions": 1})]
