"""Document events out of the log's records. Called by the readers' worker and by analytics; calls the codec."""

from __future__ import annotations

from collections.abc import Callable

from streams.contract import DocumentSaved
from streams.errors import BrokenFrame
from streams.kafka.codec import Codec
from streams.topics import DOCUMENTS_SAVED


def decoder(codec: Codec) -> Callable[[bytes | None], DocumentSaved]:
    """From a record's value to the document event. What it gives raises SchemaError, and Unavailable for not now."""

    def decode(value: bytes | None) -> DocumentSaved:
        document = DocumentSaved(**codec.decode(DOCUMENTS_SAVED, value))
        # Progress is kept by these two: Postgres stores no NUL, and versions begin with 1.
        if "\0" in document.document_id or document.version < 1:
            raise BrokenFrame(f"{document.document_id!r} version {document.version} is no document's version")
        return document

    return decode
