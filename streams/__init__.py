"""What a reader's author imports."""

from streams.contract import (
    Context,
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
    "Context",
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
