"""Every error of the API as a problem detail (RFC 9457): one clear sentence, and for 422 the fields by name.

Registered on the app by `add_handlers`; maps our error tree, FastAPI's validation errors and HTTP's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from streams.errors import InvalidField, NotFound, Overloaded, StreamsError, TooLarge, Unavailable

RETRY_AFTER_SECONDS = 1

_DESCRIBED = {
    "description": "A problem detail (RFC 9457); a 503 says in Retry-After when to come again.",
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string", "description": "One sentence for people."},
                    "errors": {
                        "type": "array",
                        "description": "With 422: each bad field, and why.",
                        "items": {
                            "type": "object",
                            "properties": {"field": {"type": "string"}, "reason": {"type": "string"}},
                        },
                    },
                },
            }
        }
    },
}
# For the OpenAPI description of every route.
RESPONSES: dict[int | str, dict[str, Any]] = {"4XX": _DESCRIBED, "5XX": _DESCRIBED}

# pydantic's error type → what is wrong with the field
_REASONS = {
    "missing": "is missing",
    "extra_forbidden": "is not a field of this request",
    "string_type": "must be a string",
    "string_unicode": "contains a lone surrogate, which is not a Unicode character",
    "string_too_long": "is longer than {max_length:,} characters",
    "string_too_short": "is empty",
    "model_attributes_type": "must be a JSON object",
}


class Problem(JSONResponse):
    """A problem detail; what a caller sent is echoed with `?` for what UTF-8 cannot hold."""

    media_type = "application/problem+json"

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None, **members: Any) -> None:
        title = HTTPStatus(status).phrase
        content = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
        super().__init__(content, status, dict(headers or {}))

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def unavailable(detail: str, retry_after_seconds: int = RETRY_AFTER_SECONDS) -> Problem:
    """503: nothing is wrong with the request, and it is worth another try."""
    return Problem(503, detail, {"Retry-After": str(retry_after_seconds)})


def invalid(fields: list[tuple[str, str]]) -> Problem:
    """422: each of `fields` with its reason."""
    return Problem(
        422,
        "; ".join(f"{field}: {reason}" for field, reason in fields),
        errors=[{"field": field, "reason": reason} for field, reason in fields],
    )


def add_handlers(app: FastAPI) -> None:
    """Make every error of `app` a problem detail."""

    @app.exception_handler(StreamsError)
    async def ours(_request: Request, error: StreamsError) -> Problem:
        return _of_ours(error)

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> Problem:
        # FastAPI leaves a body that does not call itself JSON as bytes, which no model takes.
        if isinstance(error.body, bytes):
            return Problem(415, f"{request.method} {request.url.path} takes Content-Type: application/json")
        return _of_validation(list(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Problem:
        return Problem(error.status_code, _sentence(request, error), error.headers)

    @app.exception_handler(Exception)
    async def unknown(_request: Request, _error: Exception) -> Problem:
        return Problem(500, "something went wrong here; the server's log says what")


def _of_ours(error: StreamsError) -> Problem:
    match error:
        case InvalidField():
            return invalid([(error.field, error.reason)])
        case TooLarge():
            return Problem(413, str(error))
        case NotFound():
            return Problem(404, str(error))
        case Overloaded():
            return unavailable(str(error), error.retry_after_seconds)
        case Unavailable():
            return unavailable(str(error))
        case _:
            return Problem(500, str(error))


def _of_validation(errors: list[dict[str, Any]]) -> Problem:
    first = errors[0]
    if first["type"] == "json_invalid":
        where = f"character {first['loc'][-1]}"
        return Problem(400, f"the request body is not valid JSON ({where}): {first['ctx']['error']}")
    return invalid([(_field(error["loc"]), _reason(error)) for error in errors])


def _field(location: tuple[int | str, ...]) -> str:
    """The path of a field without where it stands (body, path, query, header)."""
    return ".".join(str(part) for part in location[1:]) or "request body"


def _reason(error: dict[str, Any]) -> str:
    reason: str = _REASONS.get(error["type"], error["msg"])
    return reason.format_map(error.get("ctx", {}))


def _sentence(request: Request, error: HTTPException) -> str:
    match error.status_code, error.__cause__:
        case 400, UnicodeDecodeError() as cause:
            return f"the request body is not valid UTF-8: {cause.reason} at byte {cause.start}"
        case 400, RecursionError():
            return "the request body is nested too deeply"
        case 404, _:
            return f"there is nothing at {request.url.path}"
        case 405, _:
            return f"{request.url.path} does not take {request.method}"
    return str(error.detail)
