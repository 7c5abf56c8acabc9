"""What a reader's author writes against: the event, the effects, the outcomes, and `@reader`. No I/O.

A reader is a function from one `DocumentSaved` to effects. It writes nothing itself: the runtime applies what it
returns in the same transaction that records the progress, so an effect happens once however often the record comes.
Used by streams/readers and by users' own files through `import streams`; read by runtime and sinks.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from streams.errors import ReaderError


@dataclass(frozen=True, slots=True)
class DocumentSaved:
    """One save (or deletion) of one document. `saved_at` is in UTC; a deletion has an empty title and body."""

    document_id: str
    owner_id: str
    version: int
    title: str
    body: str
    saved_at: datetime
    type: Literal["saved", "deleted"] = "saved"


@dataclass(frozen=True, slots=True)
class Table:
    """A result table in the schema `readers`, with its primary key's columns in order.

    Every table carries `document_id` and `version`, which the sink fills. `shared` is the default table alone: it
    holds the rows of many readers as (reader, key, value jsonb).
    """

    name: str
    key: tuple[str, ...]
    shared: bool = False


OUTPUT = Table("output", key=("key",), shared=True)

Key = str | tuple[str, ...]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Upsert:
    """Make the row `key` be `value`. A key that another document wrote is an error, not an overwrite."""

    key: Key
    value: Row
    table: Table | None = None  # None: the reader's own


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the row `key`, if this document wrote it."""

    key: Key
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Replace:
    """Make `rows` be all that this document has in the table, narrowed by equality on the columns of `scope`."""

    rows: Mapping[Key, Row]
    scope: Mapping[str, Any] = field(default_factory=dict)
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Increment:
    """Add to the numbers of the row `key`, which many documents share; exactly once a version."""

    key: Key
    by: Mapping[str, int]
    table: Table | None = None


Effect = Upsert | Delete | Replace | Increment
Effects = Effect | Iterable[Effect] | None


class RetryLater(Exception):
    """Raised by a handler: not now. `after_seconds` is the least wait, as from a Retry-After header."""

    def __init__(self, reason: str, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


class Reject(Exception):
    """Raised by a handler: never. The record becomes a dead letter at once."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How a failed record is tried again: exponential backoff with full jitter."""

    attempts_max: int = 5
    backoff_seconds: float = 0.5  # before the second attempt; doubles each time
    backoff_seconds_max: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts_max < 1 or self.backoff_seconds < 0 or self.backoff_seconds_max < self.backoff_seconds:
            raise ReaderError(f"{self} is not a retry policy: attempts from 1, backoff from 0 up to its maximum")


Order = Literal["key", "partition", "none"]
_GROUP = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def _forget(_doc: DocumentSaved) -> Effects:
    """The default for a deletion: drop every row that the document has in the reader's table."""
    return Replace({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A declared reader. Calling it calls the handler, so a test needs nothing else."""

    group: str
    handler: Callable[..., Any]
    table: Table = OUTPUT
    order: Order = "key"
    concurrency: int = 16
    retry: Retry = field(default_factory=Retry)
    setup: Callable[[], Any] | None = None  # makes the model or client, once a worker; passed as second argument
    on_delete: Callable[[DocumentSaved], Effects] = _forget
    max_age_seconds: float | None = None  # older events end as `expired`

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        return inspect.iscoroutinefunction(self.handler)


def reader(group: str, **options: Any) -> Callable[[Callable[..., Any]], Reader]:
    """Declare a reader: its consumer group and its options (the fields of `Reader`).

    Raises ReaderError that names the reader and the option.
    """

    def declare(handler: Callable[..., Any]) -> Reader:
        try:
            made = Reader(group=group, handler=handler, **options)
        except TypeError as error:
            raise ReaderError(f"reader {group!r}: {error}") from error
        _check(made)
        return made

    return declare


def _check(made: Reader) -> None:
    """Refuse what cannot run, by name, before any record is read."""
    parameters = len(inspect.signature(made.handler).parameters)
    wanted = 1 if made.setup is None else 2
    faults = {
        "group must be lower-case letters, digits, dot, dash or underscore, at most 63": not _GROUP.fullmatch(
            made.group
        ),
        'order is "key", "partition" or "none"': made.order not in ("key", "partition", "none"),
        "concurrency is a number from 1": not isinstance(made.concurrency, int) or made.concurrency < 1,
        "retry is a Retry": not isinstance(made.retry, Retry),
        "table is a Table": not isinstance(made.table, Table),
        "max_age_seconds is over 0": made.max_age_seconds is not None and made.max_age_seconds <= 0,
        f"the handler takes {wanted} argument(s): the document{', what setup made' if wanted == 2 else ''}": (
            parameters != wanted
        ),
    }
    for fault, found in faults.items():
        if found:
            raise ReaderError(f"reader {made.group!r}: {fault}")
