"""`streams save` when the API goes away in the middle: it stops, and says how far it came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from streams.cli.main import app
from streams.errors import Unavailable


class _Api(BaseHTTPRequestHandler):
    """Takes every document but those that are called `busy.txt`."""

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(503 if document["title"] == "busy.txt" else 202)

    def _answer(self, status: int) -> None:
        content = json.dumps({"detail": "Postgres cannot be used now"}).encode()
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_it_stops_and_says_how_many_were_saved(tmp_path: Path, url: str) -> None:
    for name in ("a.txt", "busy.txt", "c.txt"):
        (tmp_path / name).write_text(name)
    result = CliRunner().invoke(app, ["save", str(tmp_path), "--url", url])
    assert isinstance(result.exception, Unavailable)
    assert "Postgres cannot be used now" in str(result.exception)
    assert result.stdout == "saved 1, skipped 0\n"


def test_all_is_well_without_a_word_on_stderr_but_the_progress(tmp_path: Path, url: str) -> None:
    (tmp_path / "a.txt").write_text("text")
    result = CliRunner().invoke(app, ["save", str(tmp_path), "--url", url])
    assert (result.exit_code, result.stdout) == (0, "saved 1, skipped 0\n")
    assert "skipped" not in result.stderr
