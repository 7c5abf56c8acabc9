"""`streams api` as a process, and a network between it and its servers that a test can cut."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import httpx

from tests.support import eventually

ROOT = Path(__file__).parents[1]
START_SECONDS_MAX = 60


def streams(*arguments: str, **env: str) -> list[str]:
    """The command line that runs `streams` of this checkout."""
    return [sys.executable, "-m", "streams.cli.main", *arguments]


def environment(env: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **env}


def free_port() -> int:
    """A port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Api:
    """A running API: its process, and a client of it."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, client: httpx.Client) -> None:
        self.process = process
        self.url = url
        self.client = client

    def save(self, **fields: str) -> httpx.Response:
        """POST a document with these fields, and some for the rest."""
        return self.client.post("/documents", json={"owner_id": "ada", "title": "Notes", "body": "text"} | fields)

    def is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return self.client.get("/readyz").is_success
        return False

    def is_alive(self) -> bool:
        with suppress(httpx.TransportError):
            return self.client.get("/healthz").is_success
        return False


@contextmanager
def serving(ready: bool = True, **env: str) -> Iterator[Api]:
    """An API of its own port with `env` in its environment; killed at the end if it still runs."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(streams("api", "--port", str(port)), env=environment(env))
    try:
        with httpx.Client(base_url=url, timeout=20, limits=httpx.Limits(max_connections=None)) as client:
            api = Api(process, url, client)
            eventually(api.is_ready if ready else api.is_alive, START_SECONDS_MAX, "the API's start")
            yield api
    finally:
        process.kill()
        process.wait()


class Network:
    """A TCP port that leads to another one: it can be made silent, or cut, and mended again."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._flows = Event()
        self._flows.set()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        """From now on nothing passes; connections stay, as to a frozen server."""
        self._flows.clear()

    def restore(self) -> None:
        """Let it all pass again."""
        self._flows.set()

    def cut(self) -> None:
        """End every connection, as when the server dies; new ones are taken."""
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        """End it for good."""
        self._listener.close()
        self.restore()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target_port))
                self._open += [near, far]
                Thread(target=self._pass, args=(near, far), daemon=True).start()
                Thread(target=self._pass, args=(far, near), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._flows.wait()
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
