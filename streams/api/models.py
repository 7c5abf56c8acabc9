"""What the API takes and gives, as pydantic models: the limits of every field stand here.

Used by the routes; FastAPI makes the OpenAPI description from it. The messages that callers see are in problems.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints
from pydantic_core import PydanticCustomError

from streams.errors import TooLarge
from streams.topics import BODY_BYTES_MAX

TITLE_CHARACTERS_MAX = 10_000
# Four bytes a character at most, and an index entry of Postgres holds 2,704: an owner and a query share one.
ID_CHARACTERS_MAX = 255
QUERY_CHARACTERS_MAX = 400


def _storable(text: str) -> str:
    """Text that Postgres and UTF-8 can hold: JSON's escapes can name characters that they cannot."""
    if "\0" in text:
        raise PydanticCustomError("nul", "contains a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("string_unicode", "contains a lone surrogate") from None
    return text


def _within_body_limit(text: str) -> str:
    if len(text.encode()) > BODY_BYTES_MAX:
        raise TooLarge(f"body: is larger than {BODY_BYTES_MAX:,} bytes of UTF-8")
    return text


def _text(least: int, most: int) -> Any:
    return StringConstraints(strict=True, min_length=least, max_length=most)


Id = Annotated[str, _text(1, ID_CHARACTERS_MAX), AfterValidator(_storable)]
Title = Annotated[str, _text(0, TITLE_CHARACTERS_MAX), AfterValidator(_storable)]
Body = Annotated[str, StringConstraints(strict=True), AfterValidator(_storable), AfterValidator(_within_body_limit)]
Query = Annotated[str, _text(1, QUERY_CHARACTERS_MAX), AfterValidator(_storable)]


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DocumentContent(_Input):
    """A document whose id stands in the path."""

    owner_id: Id
    title: Title
    body: Body


class NewDocument(DocumentContent):
    """A document to save; without an id it is given one."""

    document_id: Id | None = None


class NewQuery(_Input):
    """A query that its owner's documents are scored against."""

    owner_id: Id
    query: Query


class Accepted(BaseModel):
    """A write that is in the log for good; the job tells how far the readers are."""

    job_id: UUID
    document_id: str
    version: int


class ReaderState(BaseModel):
    """How one reader stands to one job. `attempts`, `next_attempt_at`, `error` where they say something."""

    state: Literal["pending", "done", "retrying", "dead", "expired", "superseded"]
    attempts: int | None = None
    next_attempt_at: datetime | None = None
    error: str | None = None


class Job(Accepted):
    """One save or deletion, and what each reader made of it."""

    saved_at: datetime
    readers: dict[str, ReaderState]


class Summary(BaseModel):
    """The summarizer's result, for the version that it read."""

    version: int
    summary: str
    model: str


class Score(BaseModel):
    """The ranker's result for one saved query, for the version that it read."""

    query_id: UUID
    query: str
    model_version: str
    version: int
    score: float


class ReaderProgress(BaseModel):
    """How far one reader is with one document: the latest version it saw, and the latest it applied."""

    state: Literal["done", "retrying", "dead", "expired"]
    version: int
    applied_version: int | None


class DocumentView(BaseModel):
    """A document as saved, with what the readers have made of it so far."""

    document_id: str
    owner_id: str
    title: str
    body: str
    version: int
    saved_at: datetime
    summary: Summary | None
    scores: list[Score]
    readers: dict[str, ReaderProgress]


class SavedQuery(BaseModel):
    """A saved query of one owner."""

    query_id: UUID
    owner_id: str
    query: str
    created_at: datetime


class SavedQueries(BaseModel):
    """All saved queries of one owner, oldest first."""

    queries: list[SavedQuery]
