"""A language model's provider that behaves as told, answer by answer: a real HTTP server on a port of its own.

    with FakeProvider(status(429, retry_after="7"), summary("Two. Sentences.")) as provider:
        …provider.url…, provider.requests

The last behaviour is repeated. Used by the tests of the summarizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Self


@dataclass(frozen=True)
class Request:
    """What the provider was asked."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Handler(BaseHTTPRequestHandler):
    """One request; its behaviour writes the answer."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        behave = self.server.provider.take(request)
        with suppress(ConnectionError):  # the client may have given up: that is what some tests are about
            behave(self)

    def answer(self, code: int, body: bytes, **headers: str) -> None:
        """A whole answer; header names in snake_case."""
        self.send_response(code)
        for name, value in {"content_type": "application/json", "content_length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def trickle(self, data: bytes) -> None:
        """Send the bytes over and over, one every 20 ms, until the provider stops or the client leaves."""
        while not self.server.provider.stopping.is_set():
            for byte in data:
                self.wfile.write(bytes([byte]))
                if self.server.provider.stopping.wait(0.02):
                    return

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""


Behaviour = Callable[[Handler], None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # the default, 5, makes the sixth of many connections at once wait a second
    provider: FakeProvider


class FakeProvider:
    """The server and what it was asked."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self.requests: list[Request] = []
        self.stopping = Event()
        self._behaviours = list(behaviours)
        self._lock = Lock()
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.provider = self
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        """The base URL, as STREAMS_PROVIDER_URL takes it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def take(self, request: Request) -> Behaviour:
        """Note the request; the behaviour for it."""
        with self._lock:
            self.requests.append(request)
            return self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def completion(content: str | None, **changes: Any) -> dict[str, Any]:
    """A chat completion as OpenAI answers it, with changes at its top level."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_764_000_000,
        "model": "fake-model-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42},
        **changes,
    }


def summary(content: str | None, **changes: Any) -> Behaviour:
    """Answers with this summary."""
    return raw(json.dumps(completion(content, **changes)).encode())


def raw(body: bytes, content_type: str = "application/json") -> Behaviour:
    """Answers 200 with these bytes."""
    return lambda handler: handler.answer(200, body, content_type=content_type)


def status(code: int, retry_after: str | None = None, message: str = "as told") -> Behaviour:
    """Answers with an error."""
    headers = {} if retry_after is None else {"retry_after": retry_after}
    body = json.dumps({"error": {"message": message, "type": "fake", "code": None}}).encode()
    return lambda handler: handler.answer(code, body, **headers)


def closes_at_once(handler: Handler) -> None:
    """Closes the connection without an answer."""
    handler.close_connection = True


def closes_mid_body(handler: Handler) -> None:
    """Promises 1,000 bytes, sends some and closes."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def never_answers(handler: Handler) -> None:
    """Takes the request and says nothing."""
    handler.server.provider.stopping.wait()


def trickles_headers(handler: Handler) -> None:
    """A status line, then header bytes for ever, each in time for any timeout of one read."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    handler.trickle(b"X-Slow: yes\r\n")


def trickles_body(handler: Handler) -> None:
    """A promise of a large body, then white space for ever."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(1 << 30))
    handler.end_headers()
    handler.trickle(b" ")
