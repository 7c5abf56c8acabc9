"""The built-in readers against a real Postgres: the worst texts are stored and found, queries are read as they are."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from streams.config import Settings
from streams.contract import DocumentSaved, Reader
from streams.database import connect
from streams.readers._embedding import embedder
from streams.readers._saved_queries import SavedQueries
from streams.readers.indexer import CONTENT_BYTES_MAX, cut, index
from streams.readers.ranker import make_ranker, rank
from streams.sinks.effects import statements
from streams.topics import BODY_BYTES_MAX

Connection = psycopg.Connection[Any]

LETTERS = string.ascii_lowercase + string.digits
WIDE = [chr(point) for point in range(0xC0, 0x800) if chr(point).isalpha()]  # two bytes each in UTF-8
IDEOGRAPHS = [chr(point) for point in range(0x4E00, 0x9FA5)]


def words(alphabet: Iterable[str], length: int) -> Iterator[str]:
    """All words of the length."""
    return ("".join(letters) for letters in itertools.product(alphabet, repeat=length))


def filled(items: Iterable[str], separator: str = " ") -> str:
    """The items one after the other until the content is full."""
    text: list[str] = []
    size = 0
    for item in items:
        text.append(item)
        size += len(item.encode()) + len(separator)
        if size > CONTENT_BYTES_MAX:
            return separator.join(text)
    raise AssertionError("too few items to fill the content")


def pairs(length: int) -> Iterator[str]:
    """Hyphenated compounds, of which Postgres indexes the whole and both parts; no part comes twice."""
    every = words(LETTERS, length)
    return (f"{one}-{other}" for one, other in zip(every, every, strict=False))


WORST = {
    "compounds of three letters": filled(itertools.chain(pairs(3), pairs(4))),
    "compounds of four letters": filled(pairs(4)),
    "compounds of many": filled("-".join(five) for five in zip(*[words(LETTERS, 4)] * 5, strict=False)),
    "short words": filled(itertools.chain.from_iterable(words(LETTERS, length) for length in (1, 2, 3, 4))),
    "short words of wide letters": filled(words(WIDE, 2)),
    "words of one ideograph": filled(itertools.chain(IDEOGRAPHS, words(IDEOGRAPHS, 2))),
    "ideographs without a space": filled(itertools.cycle(IDEOGRAPHS), ""),
    "addresses": filled(f"{word}.bb/{word}" for word in words(LETTERS, 4)),
    "e-mail": filled(f"{word}@{word}.cc" for word in words(LETTERS, 4)),
    "paths": filled(f"/{word}/{word}" for word in words(LETTERS, 4)),
    "numbers": filled(map(str, itertools.count())),
    "negative numbers": filled((f"-{number}" for number in itertools.count()), ""),
    "words of 2,000 letters": filled(itertools.cycle(letter * 2_000 for letter in LETTERS)),
    "one word": "x" * BODY_BYTES_MAX,
    "emoji": "😀" * (BODY_BYTES_MAX // 4),
    "right to left": filled(words("אבגדהוזחטיכלמנסעפצקרשת", 4)),
}


@pytest.fixture
def database(stack: Settings) -> Iterator[Connection]:
    """A connection whose work is undone at the end."""
    with connect(stack) as connection:
        yield connection
        connection.rollback()


def document(body: str, **changes: Any) -> DocumentSaved:
    fields = {"document_id": str(uuid4()), "owner_id": str(uuid4()), "version": 1, "title": ""}
    return DocumentSaved(**{**fields, "body": body, "saved_at": datetime.now(UTC), **changes})


def apply(database: Connection, reader: Reader, doc: DocumentSaved, effect: Any) -> None:
    """Write an effect as the sink does."""
    for statement in statements(reader.group, reader.table, doc, effect):
        database.execute(statement.text, statement.values)


def indexed(database: Connection, doc: DocumentSaved) -> None:
    """Index a document."""
    apply(database, index, doc, index(doc, embedder()))


@pytest.mark.parametrize("body", WORST.values(), ids=WORST.keys())
def test_the_worst_texts_fit_the_index(database: Connection, body: str) -> None:
    doc = document(body)
    indexed(database, doc)
    (row,) = database.execute(
        "SELECT content, truncated FROM readers.search_index WHERE document_id = %s", [doc.document_id]
    )
    content, truncated = row
    assert content == cut(f"\n{body}", CONTENT_BYTES_MAX)
    assert truncated
    assert len(content.encode()) > CONTENT_BYTES_MAX - 4


def test_without_the_cut_the_worst_text_would_be_refused(database: Connection) -> None:
    """The control: the limit is real, and twice the content would break it."""
    doubled = " ".join(itertools.islice(pairs(4), 2 * CONTENT_BYTES_MAX // 10))
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="too long for tsvector"):
        database.execute("SELECT to_tsvector('english', %s)", [doubled])


def test_a_document_is_found_by_its_words_and_by_its_meaning(database: Connection) -> None:
    bread = document("Knead the dough and bake the loaf in a hot oven.")
    planet = document("A planet moves around its star in an ellipse.", owner_id=bread.owner_id)
    indexed(database, bread)
    indexed(database, planet)
    by_words = database.execute(
        "SELECT document_id FROM readers.search_index"
        " WHERE owner_id = %s AND words @@ websearch_to_tsquery('english', 'baking ovens')",
        [bread.owner_id],
    ).fetchall()
    assert by_words == [(bread.document_id,)]
    by_meaning = nearest(database, "how to make bread", bread.owner_id)
    assert by_meaning == [bread.document_id, planet.document_id]


def test_a_document_without_words_is_stored_and_near_nothing(database: Connection) -> None:
    river = document("A river runs to the sea.")
    empty = document("", owner_id=river.owner_id)
    indexed(database, river)
    indexed(database, empty)
    assert database.execute(
        "SELECT vector_norm(embedding), truncated FROM readers.search_index WHERE document_id = %s",
        [empty.document_id],
    ).fetchone() == (0, False)
    assert nearest(database, "sea", river.owner_id) == [river.document_id]


def nearest(database: Connection, query: str, owner_id: str) -> list[str]:
    """The owner's documents by the HNSW index, the nearest first."""
    vector = f"[{','.join(map(str, embedder()([query])[0].tolist()))}]"
    database.execute("SET LOCAL enable_seqscan = off")
    database.execute("SET LOCAL hnsw.iterative_scan = strict_order")  # go on past the documents of others
    found = database.execute(
        "SELECT document_id FROM readers.search_index WHERE owner_id = %s ORDER BY embedding <=> %s::vector LIMIT 10",
        [owner_id, vector],
    )
    return [document_id for (document_id,) in found]


def test_a_later_version_replaces_the_row(database: Connection) -> None:
    doc = document("Old words.")
    indexed(database, doc)
    indexed(database, document("New text.", document_id=doc.document_id, owner_id=doc.owner_id, version=2))
    rows = database.execute(
        "SELECT version, content FROM readers.search_index WHERE document_id = %s", [doc.document_id]
    ).fetchall()
    assert rows == [(2, "\nNew text.")]


@pytest.fixture
def owner(stack: Settings) -> Iterator[str]:
    """An owner with two saved queries, committed."""
    owner_id = str(uuid4())
    with connect(stack, autocommit=True) as connection:
        for query in ("baking bread", "planets"):
            connection.execute("INSERT INTO app.saved_queries (owner_id, query) VALUES (%s, %s)", [owner_id, query])
        yield owner_id
        connection.execute("DELETE FROM app.saved_queries WHERE owner_id = %s", [owner_id])


def test_a_document_is_scored_against_the_queries_that_its_owner_has_now(
    stack: Settings, database: Connection, owner: str
) -> None:
    ranker = make_ranker()
    doc = document("Knead the dough and bake the loaf.", owner_id=owner)

    def scored() -> list[str]:
        apply(database, rank, doc, rank(doc, ranker))
        return [
            query
            for (query,) in database.execute(
                "SELECT q.query FROM readers.scores s JOIN app.saved_queries q USING (query_id)"
                " WHERE s.document_id = %s AND s.version = 1 ORDER BY s.score DESC",
                [doc.document_id],
            )
        ]

    assert scored() == ["baking bread", "planets"]
    with connect(stack, autocommit=True) as other:
        other.execute("DELETE FROM app.saved_queries WHERE owner_id = %s AND query = 'planets'", [owner])
        other.execute("INSERT INTO app.saved_queries (owner_id, query) VALUES (%s, 'ovens')", [owner])
    assert sorted(scored()) == ["baking bread", "ovens"]
    assert rank(document("of an owner without queries"), ranker).rows == {}
    assert isinstance(ranker.queries_of, SavedQueries)
    ranker.queries_of.close()


def test_the_ranker_cannot_write(stack: Settings) -> None:
    queries = SavedQueries(stack)
    try:
        with queries._pool.connection() as connection, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("DELETE FROM app.saved_queries")
    finally:
        queries.close()


def test_a_connection_that_was_cut_is_replaced(stack: Settings, owner: str) -> None:
    queries = SavedQueries(stack)
    try:
        assert len(queries(owner)) == 2
        with queries._pool.connection() as connection:
            pid = connection.info.backend_pid
        with connect(stack, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        assert len(queries(owner)) == 2
    finally:
        queries.close()
