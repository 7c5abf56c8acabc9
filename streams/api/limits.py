"""What is refused before it is read: a request that is larger than any document could need.

`LimitSize` wraps the app.
"""

from __future__ import annotations

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
