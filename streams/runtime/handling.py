"""One attempt of a handler at one record, or at several at once: what it gave, or how it failed, as data.

Called by the executors, on their threads and in their processes; calls the reader's code and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from streams.contract import (
    Context,
    Delete,
    DocumentSaved,
    Effect,
    Increment,
    Reader,
    Reject,
    Replace,
    RetryLater,
    Upsert,
    takes_context,
)
from streams.core.outcomes import Done, Expired, Failure
from streams.errors import SchemaError

log = logging.getLogger(__name__)

TRACEBACK_CHARACTERS_MAX = 16 * 1024
_MESSAGE_CHARACTERS_MAX = 4 * 1024
_EFFECTS = (Upsert, Delete, Replace, Increment)

_NOTHING = Done(())

Attempt = Done | Expired | Failure
Call = tuple[DocumentSaved, Context | None]  # what one record asks of the handler; a context only if it takes one
Answer = list[Attempt] | Failure  # of one call with several documents: of each, or why the call itself failed


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


def timed_out(seconds: float | None) -> TimeoutError:
    """The end of an attempt that took too long."""
    return TimeoutError(f"the handler took longer than {seconds:g} s, its timeout_seconds")


class Handler:
    """The reader's function with what its `setup` made, as one call from document to attempt."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._expires = reader.max_age_seconds is not None
        self._made: tuple[Any, ...] = ()
        self._limit = reader.timeout_seconds
        self._takes_context = takes_context(reader.handler)
        self._on_delete_takes_context = takes_context(reader.on_delete)

    def set_up(self) -> Any:
        """Make the model or client; an awaitable if `setup` is a coroutine function."""
        if self._reader.setup is not None:
            made = self._reader.setup()
            self._made = (made,)
            return made
        return None

    async def set_up_async(self) -> None:
        """The same, awaited."""
        made = self.set_up()
        if asyncio.iscoroutine(made):
            self._made = (await made,)

    # ----------------------------------------------------------------------------------- one document

    def attempt(self, document: DocumentSaved, context: Context | None = None) -> Attempt:
        """Run a plain handler once."""
        if self._expires and self._expired(document):
            return Expired()
        try:
            given = self._call(document, context)
            return _NOTHING if given is None else Done(effects_of(given))
        # SystemExit too: a handler that calls sys.exit() has failed, it does not end a thread of ours.
        except BaseException as error:  # noqa: BLE001
            return describe(error)

    async def attempt_async(self, document: DocumentSaved, context: Context | None = None) -> Attempt:
        """Run a coroutine handler once."""
        if self._expires and self._expired(document):
            return Expired()
        try:
            given = self._call(document, context)
            if isinstance(given, Awaitable):
                given = await (given if self._limit is None else self._in_time(given))
            return Done(effects_of(given))
        except BaseException as error:  # noqa: BLE001 - a handler's own CancelledError is its failure too
            return describe(error)

    def _call(self, document: DocumentSaved, context: Context | None) -> Any:
        if document.type == "deleted":
            if self._on_delete_takes_context:
                return self._reader.on_delete(document, ctx=self._timed(document, context))
            return self._reader.on_delete(document)
        if self._takes_context:
            return self._reader.handler(document, *self._made, ctx=self._timed(document, context))
        return self._reader.handler(document, *self._made)

    # ----------------------------------------------------------------------------- several documents

    def goes_together(self, call: Call) -> bool:
        """Whether it may be one of several in one call of the handler."""
        document, _ = call
        return self._reader.batch > 1 and document.type == "saved" and not self._expired(document)

    def answer(self, calls: Sequence[Call]) -> Answer:
        """Call a plain handler once: with the one document, or with the list of those that go together."""
        if len(calls) == 1 and not self.goes_together(calls[0]):
            return [self.attempt(*calls[0])]
        try:
            return _attempts_of(self._call_with_list(calls), len(calls))
        except BaseException as error:  # noqa: BLE001
            return describe(error)

    async def answer_async(self, calls: Sequence[Call]) -> Answer:
        """The same of a coroutine handler."""
        if len(calls) == 1 and not self.goes_together(calls[0]):
            return [await self.attempt_async(*calls[0])]
        try:
            return _attempts_of(await self._in_time(self._call_with_list(calls)), len(calls))
        except BaseException as error:  # noqa: BLE001
            return describe(error)

    def _call_with_list(self, calls: Sequence[Call]) -> Any:
        documents = [document for document, _ in calls]
        if self._takes_context:
            return self._reader.handler(documents, *self._made, ctx=[self._timed(*call) for call in calls])
        return self._reader.handler(documents, *self._made)

    def attempt_each(self, calls: Sequence[Call], answer: Callable[[Sequence[Call]], Answer]) -> list[Attempt]:
        """The attempt of each: in one call what goes together; by itself the rest, and all if that one fails."""
        together = [call for call in calls if self.goes_together(call)]
        found = self._by_call(together, answer(together)) if len(together) > 1 else {}
        return [found.get(id(call)) or _alone(answer([call])) for call in calls]

    async def attempt_each_async(self, calls: Sequence[Call]) -> list[Attempt]:
        """The same of a coroutine handler."""
        together = [call for call in calls if self.goes_together(call)]
        found = self._by_call(together, await self.answer_async(together)) if len(together) > 1 else {}
        return [found.get(id(call)) or _alone(await self.answer_async([call])) for call in calls]

    def _by_call(self, calls: Sequence[Call], answer: Answer) -> dict[int, Attempt]:
        """The attempts by their calls' identity; none if the call that they shared failed."""
        if isinstance(answer, Failure):
            why = f"{answer.error_class}: {answer.message}"
            log.warning("%s: a call with %s documents failed: %s; each alone", self._reader.group, len(calls), why)
            return {}
        return dict(zip(map(id, calls), answer, strict=True))

    # --------------------------------------------------------------------------------------- its time

    async def _in_time(self, given: Awaitable[Any]) -> Any:
        """What a coroutine gives within `timeout_seconds`, after which it is cancelled. Raises TimeoutError."""
        try:
            async with asyncio.timeout(self._limit) as timer:
                made = await given
        except BaseException as error:
            if timer.expired():
                raise timed_out(self._limit) from error
            raise
        if timer.expired():  # it swallowed its cancellation
            raise timed_out(self._limit)
        return made

    def _timed(self, document: DocumentSaved, context: Context | None) -> Context:
        """The context with the deadline of an attempt that begins now."""
        assert context is not None, "the handler takes a context"
        limits = []
        if self._limit is not None:
            limits.append(time.time() + self._limit)
        if self._reader.max_age_seconds is not None and document.type == "saved":
            limits.append(document.saved_at.timestamp() + self._reader.max_age_seconds)
        return replace(context, deadline=_moment(min(limits))) if limits else context

    def _expired(self, document: DocumentSaved) -> bool:
        """A deletion never expires: the document's rows would stay for good."""
        limit = self._reader.max_age_seconds
        return limit is not None and document.type == "saved" and time.time() - document.saved_at.timestamp() > limit


def _alone(answer: Answer) -> Attempt:
    return answer if isinstance(answer, Failure) else answer[0]


def _attempts_of(given: Any, count: int) -> list[Attempt]:
    """What a handler returned for a list of documents. Raises Reject if that is no list, or one of another length."""
    if not isinstance(given, (list, tuple)) or len(given) != count:
        what = f"{len(given)} results" if isinstance(given, (list, tuple)) else type(given).__name__
        raise Reject(f"the handler returned {what} for {count} document(s), not a list as long")
    return [_attempt_of(one) for one in given]


def _attempt_of(given: Any) -> Attempt:
    try:
        return describe(given) if isinstance(given, BaseException) else Done(effects_of(given))
    except Exception as error:  # noqa: BLE001 - effects may be a generator that raises anything
        return describe(error)


def _moment(seconds: float) -> datetime | None:
    """A time since the epoch as one; None past the last year that there is."""
    with suppress(OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(seconds, UTC)
    return None
