"""One attempt of a handler at one record: what it gave, or how it failed, as data.

Called by the executors, on their threads; calls the reader's code and nothing else.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Iterable
from typing import Any

from streams.contract import (
    Delete,
    DocumentSaved,
    Effect,
    Increment,
    Reader,
    Reject,
    Replace,
    RetryLater,
    Upsert,
)
from streams.core.outcomes import Done, Expired, Failure
from streams.errors import SchemaError

TRACEBACK_CHARACTERS_MAX = 16 * 1024
_MESSAGE_CHARACTERS_MAX = 4 * 1024
_EFFECTS = (Upsert, Delete, Replace, Increment)

Attempt = Done | Expired | Failure


def describe(error: BaseException, *, permanent: bool | None = None) -> Failure:
    """An exception as text, cut to size and free of what Postgres cannot store.

    Permanent unless told: Reject, undecodable text and schema errors; all others may pass when tried again.
    """
    if permanent is None:
        permanent = isinstance(error, (Reject, UnicodeError, SchemaError))
    return Failure(
        error_class=_clean(type(error).__qualname__),
        message=_clean(_text_of(error))[:_MESSAGE_CHARACTERS_MAX],
        traceback=_clean("".join(traceback.format_exception(error, limit=-50)))[-TRACEBACK_CHARACTERS_MAX:],
        permanent=permanent,
        after_seconds=error.after_seconds if isinstance(error, RetryLater) else None,
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as inner:  # noqa: BLE001 - a user's __str__ may raise anything
        return f"<the error has no text: {type(inner).__name__}>"


def _clean(text: str) -> str:
    """Without NUL and lone surrogates."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")


def effects_of(given: Any) -> tuple[Effect, ...]:
    """What a handler returned, as a tuple. Raises Reject for anything that is no effect."""
    if given is None:
        return ()
    if isinstance(given, _EFFECTS):
        return (given,)
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes, dict)):
        effects = tuple(given)
        if all(isinstance(effect, _EFFECTS) for effect in effects):
            return effects
    raise Reject(f"the handler returned {type(given).__name__}, not effects")


class Handler:
    """The reader's function with what its `setup` made, as one call from document to attempt."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._made: tuple[Any, ...] = ()

    def set_up(self) -> Any:
        """Make the model or client; an awaitable if `setup` is a coroutine function."""
        if self._reader.setup is not None:
            made = self._reader.setup()
            self._made = (made,)
            return made
        return None

    def adopt(self, made: Any) -> None:
        """Take what an awaited `setup` made."""
        self._made = (made,)

    def attempt(self, document: DocumentSaved) -> Attempt:
        """Run a plain handler once."""
        if self._expired(document):
            return Expired()
        try:
            return Done(effects_of(self._call(document)))
        # SystemExit too: a handler that calls sys.exit() has failed, it does not end a thread of ours.
        except BaseException as error:  # noqa: BLE001
            return describe(error)

    async def attempt_async(self, document: DocumentSaved) -> Attempt:
        """Run a coroutine handler once."""
        if self._expired(document):
            return Expired()
        try:
            given = self._call(document)
            return Done(effects_of(await given if isinstance(given, Awaitable) else given))
        except BaseException as error:  # noqa: BLE001 - a handler's own CancelledError is its failure too
            return describe(error)

    def _call(self, document: DocumentSaved) -> Any:
        if document.type == "deleted":
            return self._reader.on_delete(document)
        return self._reader.handler(document, *self._made)

    def _expired(self, document: DocumentSaved) -> bool:
        """A deletion never expires: the document's rows would stay for good."""
        limit = self._reader.max_age_seconds
        return limit is not None and document.type == "saved" and time.time() - document.saved_at.timestamp() > limit
