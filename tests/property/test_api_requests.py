"""Whatever bytes or JSON come: the API takes them, or says in a problem what is wrong; it never fails."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streams.outbox.save import Document
from tests.api_double import DatabaseDouble, client

# Of every code point, so also NUL and lone surrogates.
texts = st.text(alphabet=st.characters(), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
fields = st.sampled_from(["document_id", "owner_id", "title", "body"]) | texts
documents = st.fixed_dictionaries({"owner_id": texts, "title": texts, "body": texts}, optional={"document_id": texts})
database = DatabaseDouble()
api = client(database)


@given(content=st.binary(max_size=200) | (values | st.dictionaries(fields, values) | documents).map(json.dumps))
def test_every_request_is_answered(content: bytes | str) -> None:
    database.writes.clear()
    data = content if isinstance(content, bytes) else content.encode()
    answer = api.post("/documents", content=data, headers={"Content-Type": "application/json"})
    assert answer.status_code in {202, 400, 422}
    if answer.status_code == 202:
        assert database.writes[0][0] == _as_sent(json.loads(data), answer.json())
    else:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]
        assert database.writes == []


def _as_sent(sent: dict[str, Any], answer: dict[str, Any]) -> Document:
    """The document that was sent, under the id that it was given."""
    return Document(**({"document_id": answer["document_id"]} | sent))
