"""What is refused before it is read: a request that is too large, or that is not JSON.

`LimitSize` wraps the app; `json_only` is a dependency of the routes that take a body.
"""

from __future__ import annotations

from email.message import Message as MimeMessage

from fastapi import Request
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams.api.problems import Problem
from streams.topics import BODY_BYTES_MAX

# JSON may escape every byte of a body as \u00XX, six times its size; title and ids take less than the rest.
REQUEST_BYTES_MAX = 6 * BODY_BYTES_MAX + 1024 * 1024
_TOO_LARGE = f"the request is larger than {REQUEST_BYTES_MAX:,} bytes: no body that is allowed could need that"


class LimitSize:
    """Answers 413 to a request over REQUEST_BYTES_MAX: unread if it says its length, else as soon as it is over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif _declared_bytes(scope) > REQUEST_BYTES_MAX:
            await Problem(413, _TOO_LARGE)(scope, receive, send)
        else:
            await self._app(scope, _counted(receive), send)


def _declared_bytes(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _counted(receive: Receive) -> Receive:
    seen_bytes = 0

    async def counted() -> Message:
        nonlocal seen_bytes
        message = await receive()
        seen_bytes += len(message.get("body", b""))
        if seen_bytes > REQUEST_BYTES_MAX:
            raise HTTPException(413, _TOO_LARGE)
        return message

    return counted


async def json_only(request: Request) -> None:
    """415 for a body that does not say that it is JSON in UTF-8."""
    mime = MimeMessage()
    mime["content-type"] = request.headers.get("content-type", "text/plain")
    subtype = mime.get_content_subtype() if mime.get_content_maintype() == "application" else ""
    charset = str(mime.get_param("charset", "utf-8")).lower()
    if (subtype != "json" and not subtype.endswith("+json")) or charset != "utf-8":
        raise HTTPException(415, "send the request as Content-Type: application/json, in UTF-8")
