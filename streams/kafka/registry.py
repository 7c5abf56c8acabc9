"""The schema registry's client: register, get by id, set and test compatibility, nothing more.

So that Redpanda's, Apicurio's and Confluent's registries all serve. Called by the codec and by setup.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httpx

from streams.config import Settings
from streams.errors import Incompatible, SchemaError, Unavailable, UnknownSchema

_SECONDS_MAX = 5.0


class Registry:
    """A connection to one registry; safe for threads."""

    def __init__(self, config: Settings, seconds_max: float = _SECONDS_MAX) -> None:
        self._url = config.registry_url.rstrip("/")
        self._http = httpx.Client(
            timeout=seconds_max, headers={"Content-Type": "application/vnd.schemaregistry.v1+json"}
        )

    def register(self, subject: str, schema: str) -> int:
        """Register a schema, or find it if it is there already; return its id. Raises Incompatible, SchemaError."""
        return int(self._call("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})["id"])

    def schema(self, schema_id: int) -> str:
        """The text of the schema with this id. Raises UnknownSchema."""
        return str(self._call("GET", f"/schemas/ids/{schema_id}")["schema"])

    def set_compatibility(self, subject: str, level: str) -> None:
        """Set a subject's level, e.g. FULL_TRANSITIVE."""
        self._call("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": level})

    def compatible(self, subject: str, schema: str) -> list[str]:
        """Why the subject would not take this schema; empty if it would (or has no version yet).

        Version by version: Redpanda's registry has no call for all of them at once.
        """
        quoted = quote(subject, safe="")
        try:
            versions = self._call("GET", f"/subjects/{quoted}/versions", shape=list)
        except UnknownSchema:
            return []
        reasons: list[str] = []
        for version in versions:
            path = f"/compatibility/subjects/{quoted}/versions/{version}?verbose=true"
            answer = self._call("POST", path, {"schema": schema})
            if not answer["is_compatible"]:
                reasons += [str(message) for message in answer.get("messages") or ["incompatible"]]
        return reasons

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None, shape: type = dict) -> Any:
        try:
            answer = self._http.request(method, self._url + path, content=json.dumps(body) if body else None)
        except httpx.HTTPError as error:
            raise Unavailable(f"the schema registry at {self._url} does not answer: {error}") from error
        if not answer.is_success:
            raise _refusal(answer)
        with suppress(ValueError):
            if isinstance(said := answer.json(), shape):
                return said
        raise Unavailable(f"{self._url} does not answer as a schema registry: {answer.text[:200]!r}")


def _refusal(answer: httpx.Response) -> Exception:
    """The registry's no, as one of our errors; what only says "not now" or "not you" is Unavailable."""
    try:
        reason = str(answer.json()["message"])
    except (ValueError, TypeError, KeyError):
        # Not the registry's own words: a proxy, another server, or a wrong address.
        return Unavailable(f"the schema registry answered {answer.status_code}: {answer.text[:200]}")
    what = f"the schema registry answered {answer.status_code}: {reason}"
    kinds = {404: UnknownSchema, 409: Incompatible, 400: SchemaError, 422: SchemaError}
    return kinds.get(answer.status_code, Unavailable)(what)
