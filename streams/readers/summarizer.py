"""Two sentences of each saved document.

Offline by default: the two sentences of the text that say most of the whole and least of the same (`_extractive`).
With STREAMS_PROVIDER_URL set, a language model writes them (`_provider`). Called by the runtime.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from streams import Context, DocumentSaved, Table, Upsert, reader
from streams.config import settings
from streams.contract import Row
from streams.readers._text import refuse_unstorable

SUMMARIES = Table("summaries", key=("document_id",))

# From a document and its attempt to {"summary": text, "model": its name, "tokens": what it cost, 0 offline}.
Summarize = Callable[[DocumentSaved, Context], Awaitable[Row]]


def make_summarizer() -> Summarize:
    """The provider's summarizer if one is set, else the offline one; only the chosen one is loaded."""
    config = settings()
    if config.provider_url:
        from streams.readers._provider import Provider

        return Provider(config)
    from streams.readers._extractive import Extractive

    return Extractive()


@reader(group="summarizer", table=SUMMARIES, setup=make_summarizer)
async def summarize(doc: DocumentSaved, summarizer: Summarize, ctx: Context) -> Upsert:
    """The document's summary. RetryLater while a provider cannot answer, Reject when it never will."""
    refuse_unstorable(doc)
    return Upsert(key=doc.document_id, value=await summarizer(doc, ctx))
