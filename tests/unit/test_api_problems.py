"""Every error of our tree, and any other, is a problem detail with its own status."""

from __future__ import annotations

import pytest

from streams.errors import InvalidField, NotFound, SchemaError, TooLarge, Unavailable
from tests.api_double import DatabaseDouble, client

DOCUMENT = {"owner_id": "ada", "title": "Notes", "body": "text"}


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (InvalidField("Idempotency-Key", "was used before"), 422),
        (NotFound("there is no document 'a'"), 404),
        (TooLarge("body: is larger than 4 bytes"), 413),
        (Unavailable("Postgres cannot be used now: connection refused"), 503),
        (SchemaError("the event does not fit"), 500),
        (ZeroDivisionError("secret"), 500),
    ],
)
def test_each_failure_has_its_status(failure: Exception, status: int) -> None:
    database = DatabaseDouble()
    database.failure = failure
    answer = client(database).post("/documents", json=DOCUMENT)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["detail"] == str(failure) or isinstance(failure, ZeroDivisionError)
    assert "secret" not in answer.text
    assert ("retry-after" in answer.headers) == (status == 503)


def test_the_description_says_so_of_every_route() -> None:
    described = client(DatabaseDouble()).get("/openapi.json").json()
    operations = [operation for path in described["paths"].values() for operation in path.values()]
    assert len(operations) >= 10
    for operation in operations:
        assert "422" not in operation["responses"]
        assert "application/problem+json" in operation["responses"]["4XX"]["content"]
    names = {parameter["name"] for parameter in described["paths"]["/documents"]["post"]["parameters"]}
    assert names == {"Idempotency-Key", "traceparent"}
