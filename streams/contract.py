"""What a reader's author writes against: the event, the effects, the outcomes, and `@reader`. No I/O.

A reader is a function from one `DocumentSaved` to effects. It writes nothing itself: the runtime applies what it
returns in the same transaction that records the progress, so an effect happens once however often the record comes.
Used by streams/readers and by users' own files through `import streams`; read by runtime and sinks.
"""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

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


_AS_IT_IS = string.punctuation.replace("%", "")  # in a header; letters and digits are anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a handler may want to know of its attempt: it is passed as `ctx` to one that has a parameter of that name.

    `idempotency_key` is the same for every attempt at one version by one reader, also after a restart and in a replay;
    it may stand in an HTTP header. After `deadline` (in UTC) the result is not wanted any more: it is the attempt's
    start + `timeout_seconds`, or the event's time + `max_age_seconds` if that is earlier; None without either.
    """

    idempotency_key: str
    attempt: int = 1  # 2 after the first failure, and so on
    deadline: datetime | None = None
    is_replay: bool = False  # this reader has completed this version before: it is computed again on purpose


def idempotency_key(group: str, document: DocumentSaved) -> str:
    """One key a reader and version; a document id beyond ASCII is percent-encoded, for a header."""
    return f"{group}:{quote(document.document_id, safe=_AS_IT_IS)}:{document.version}"


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
Kind = Literal["async", "thread", "process"]
# Eleven days: past every handler, and short of the 24 that a wait for a pipe can take.
TIMEOUT_SECONDS_MAX = 1_000_000
_GROUP = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def _forget(_doc: DocumentSaved) -> Effects:
    """The default for a deletion: drop every row that the document has in the reader's table."""
    return Replace({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A declared reader. Calling it calls the handler, so a test needs nothing else.

    The handler takes the document, then what `setup` made if there is a `setup`, and a `Context` if it has a parameter
    named `ctx`. With `batch` over 1 it takes a list of documents (and of contexts) and returns a list as long: for each
    what it would return for one, or an exception, which fails that document alone. If the call itself raises, each of
    its documents is tried in a list of its own. Deletions go to `on_delete` one by one; it may take `ctx` too.

    `kind` says where handlers run. "async": coroutines, on one event loop. "thread": plain functions, on threads of the
    worker. "process": either, in processes of their own, for what keeps a processor busy or may crash; the reader must
    stand by its name in a module, since a process imports it, and each process calls `setup` for itself. If one dies,
    only its record is run again; after three deaths in a row that is a dead letter, `WorkerDied`.

    After `timeout_seconds` a coroutine is cancelled and a process killed, and the attempt has failed with TimeoutError,
    to be tried again. A thread cannot be ended: its handler is only told, by `ctx.deadline`.
    """

    group: str
    handler: Callable[..., Any]
    table: Table = OUTPUT
    order: Order = "key"
    kind: Kind | None = None  # None: "async" for a coroutine function, else "thread"
    concurrency: int | None = None  # calls at once; None: 16, or as many processes as there are processors
    batch: int = 1  # documents a call, at most: as many as are ready, without waiting for more
    retry: Retry = field(default_factory=Retry)
    timeout_seconds: float | None = None  # of one call
    setup: Callable[[], Any] | None = None  # makes the model or client, once a worker; passed as second argument
    on_delete: Callable[..., Effects] = _forget
    max_age_seconds: float | None = None  # older events end as `expired`

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        return inspect.iscoroutinefunction(self.handler)

    @property
    def runs_as(self) -> Kind:
        """The kind, told or inferred."""
        return self.kind or ("async" if self.is_async else "thread")

    @property
    def takes_context(self) -> bool:
        """Whether the handler or `on_delete` has a parameter named `ctx`."""
        return takes_context(self.handler) or takes_context(self.on_delete)


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


def takes_context(function: Callable[..., Any]) -> bool:
    """Whether it has a parameter named `ctx` that can be passed by its name."""
    parameter = inspect.signature(function).parameters.get("ctx")
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def _check(made: Reader) -> None:
    """Refuse what cannot run, by name, before any record is read."""
    wanted = 1 if made.setup is None else 2
    faults = {
        "group must be lower-case letters, digits, dot, dash or underscore, at most 63": not _GROUP.fullmatch(
            made.group
        ),
        'order is "key", "partition" or "none"': made.order not in ("key", "partition", "none"),
        'kind is "async", "thread" or "process"': made.kind not in (None, "async", "thread", "process"),
        'kind "async" needs a coroutine function as handler': made.kind == "async" and not made.is_async,
        'kind "thread" cannot run a coroutine function; leave kind out': made.kind == "thread" and made.is_async,
        "concurrency is a whole number from 1": made.concurrency is not None and not _is_count(made.concurrency),
        "batch is a whole number from 1": not _is_count(made.batch),
        "retry is a Retry": not isinstance(made.retry, Retry),
        "table is a Table": not isinstance(made.table, Table),
        f"timeout_seconds is over 0, at most {TIMEOUT_SECONDS_MAX}": not _is_seconds(
            made.timeout_seconds, TIMEOUT_SECONDS_MAX
        ),
        "max_age_seconds is over 0": not _is_seconds(made.max_age_seconds),
        "a coroutine function as setup needs one as handler": inspect.iscoroutinefunction(made.setup)
        and not made.is_async,
        f"the handler takes {wanted} argument(s): the document{', what setup made' if wanted == 2 else ''}; "
        "then ctx, if at all": not _takes(made.handler, wanted),
        "on_delete takes 1 argument(s): the document; then ctx, if at all": not _takes(made.on_delete, 1),
    }
    for fault, found in faults.items():
        if found:
            raise ReaderError(f"reader {made.group!r}: {fault}")


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with so many arguments and, if it has that parameter, `ctx` by name."""
    signature, named = inspect.signature(function), {"ctx": None} if takes_context(function) else {}
    try:
        signature.bind(*range(count), **named)
    except TypeError:
        return False
    return len(signature.parameters) == count + len(named)


def _is_count(number: object) -> bool:
    return isinstance(number, int) and number >= 1


def _is_seconds(number: object, most: float = float("inf")) -> bool:
    return number is None or (isinstance(number, (int, float)) and 0 < number <= most)
