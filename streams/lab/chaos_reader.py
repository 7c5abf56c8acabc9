"""The reader of `streams lab chaos`: it makes whatever is applied twice stay to be seen.

Run by streams/lab/chaos_worker.py, and by child processes of its workers: so it imports little.
"""

from __future__ import annotations

from uuid import uuid4

from streams import DocumentSaved, Increment, Reject, Upsert, reader
from streams.contract import Effects

GROUP = "lab-chaos"
OWNER = "lab-chaos"
POISON = "poison"
COUNTER = "documents"


@reader(group=GROUP)
def account(doc: DocumentSaved) -> Effects:
    """A row under a new key each time, and a step of a counter."""
    if doc.owner_id != OWNER:
        return None
    if doc.title == POISON:
        raise Reject("it is meant to fail")
    return [Upsert(uuid4().hex, {"version": doc.version}), Increment(COUNTER, {"n": 1})]
