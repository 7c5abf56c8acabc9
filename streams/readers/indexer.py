"""The search index of the saved documents: full text (Postgres) and an embedding (pgvector) of each.

Called by the runtime; writes the table `search_index`, whose `words` Postgres generates from `content`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams import DocumentSaved, Table, Upsert, reader
from streams.readers._text import passages, refuse_unstorable

if TYPE_CHECKING:
    from streams.readers._embedding import Embedder

SEARCH_INDEX = Table("search_index", key=("document_id",))

# A tsvector holds 1 MiB of words and positions; above that Postgres refuses the row. The worst text that we found,
# pairs of three letters such as "abc-def" (a compound and both its parts), takes 3.5 bytes for each of its own.
CONTENT_BYTES_MAX = 256 * 1024


def make_embedder() -> Embedder:
    """The process's embedder."""
    from streams.readers._embedding import embedder

    return embedder()


@reader(group="indexer", table=SEARCH_INDEX, setup=make_embedder)
def index(doc: DocumentSaved, embed: Embedder) -> Upsert:
    """The document's row; `truncated` says that only the first 256 KiB of title and body can be searched."""
    refuse_unstorable(doc)
    text = f"{doc.title}\n{doc.body}"
    content = cut(text, CONTENT_BYTES_MAX)
    return Upsert(
        key=doc.document_id,
        value={
            "owner_id": doc.owner_id,
            "title": doc.title,
            "content": content,
            "truncated": len(content) < len(text),
            "embedding": embedding(text, embed),
        },
    )


def cut(text: str, bytes_max: int) -> str:
    """The longest beginning of the text that takes at most so many bytes in UTF-8."""
    return text[:bytes_max].encode()[:bytes_max].decode(errors="ignore")


def embedding(text: str, embed: Embedder) -> str:
    """The mean direction of the text's passages, in pgvector's notation, 256 numbers.

    All zeros for a text without words: pgvector stores that and leaves it out of the HNSW index, which is right, as it
    is near nothing.
    """
    from streams.readers._embedding import unit

    vector = unit(embed(passages(text)).sum(axis=0))
    return f"[{','.join(f'{number:.7g}' for number in vector.tolist())}]"
