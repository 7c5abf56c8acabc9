"""What a reader's author imports."""

from streams.contract import (
    Delete,
    DocumentSaved,
    Increment,
    Reject,
    Replace,
    Retry,
    RetryLater,
    Table,
    Upsert,
    reader,
)

__all__ = [
    "Delete",
    "DocumentSaved",
    "Increment",
    "Reject",
    "Replace",
    "Retry",
    "RetryLater",
    "Table",
    "Upsert",
    "reader",
]
