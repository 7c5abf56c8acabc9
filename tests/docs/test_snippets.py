"""Every snippet of the documentation is run: Python, SQL, and shell against a stack of the page's own.

What is not run as it stands, and why: `docker` needs Docker, so it is held to the compose file; `make` is asked whether
it knows the target, `make demo` and the exercise's check are run by tests/e2e, and pytest only collects.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
import yaml
from rich.console import Console

from streams.config import Settings, settings
from streams.contract import DocumentSaved, Reader
from streams.stack import local
from tests.docs.test_names import PAGES, ROOT, read
from tests.support import eventually, free_port_base

SERVICES = yaml.safe_load((ROOT / "infra/redpanda/compose.yaml").read_text())["services"]
DOCKER_VERBS = {"up", "down", "ps", "run", "stop", "start", "restart", "exec", "cp"}
SCRIPT_SECONDS_MAX = 400  # a minute on an idle machine
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.number}"


BLOCKS = [
    Block(page, number, *found) for page in PAGES for number, found in enumerate(_BLOCK.findall(read(page)), start=1)
]
SHELL_PAGES = sorted({block.page for block in BLOCKS if block.language == "sh" and "docker" not in block.text})


def blocks(language: str, page: Path | None = None) -> list[Block]:
    return [block for block in BLOCKS if block.language == language and page in (None, block.page)]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_of_a_language_that_is_run(block: Block) -> None:
    assert block.language in {"sh", "python", "sql", "text"}


# --------------------------------------------------------------------------------------------------- Python


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_runs(block: Block) -> None:
    names: dict[str, object] = {"__name__": "snippet"}
    exec(compile(block.text, str(block), "exec"), names)
    for reader in (value for value in names.values() if isinstance(value, Reader)):
        assert reader(DocumentSaved("d", "ada", 1, "a title", "two words", datetime.now(UTC))) is not None


# --------------------------------------------------------------------------------------------------- docker


@pytest.mark.parametrize("block", [block for block in blocks("sh") if "docker" in block.text], ids=str)
def test_docker_commands_are_of_this_compose_file(block: Block) -> None:
    for words in (shlex.split(line, comments=True) for line in block.text.splitlines()):
        if words[:1] != ["docker"]:
            continue
        assert words[1] == "compose"
        assert words[2] in DOCKER_VERBS
        if words[2] in {"stop", "start", "restart", "exec"}:
            assert words[3] in SERVICES


# ---------------------------------------------------------------------------------------------------- shell


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Settings]:
    """The settings of a stack that is not up yet; taken down whatever the page did with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMS_HOME", str(tmp_path / "home"))
        patch.setenv("STREAMS_PORT_BASE", str(free_port_base()))
        settings.cache_clear()
        try:
            yield settings()
        finally:
            local.down(settings(), Console(stderr=True), wipe=True)
    settings.cache_clear()


@pytest.mark.parametrize("page", SHELL_PAGES, ids=str)
@pytest.mark.timeout(SCRIPT_SECONDS_MAX + 60)
def test_shell_and_sql_run(page: Path, home: Settings, tmp_path: Path) -> None:
    clone = _clone(tmp_path / "a clone")
    environment = {**os.environ, "PYTHONPATH": str(_plugin(tmp_path / "plugin", page))}
    environment.pop("MAKEFLAGS", None)
    script = tmp_path / "script.sh"
    script.write_text("\n".join(_script(page, home)), "utf-8")
    log = tmp_path / "log"
    with log.open("wb") as said:
        shell = subprocess.Popen(
            ["bash", str(script)], cwd=clone, env=environment, stdout=said, stderr=said, start_new_session=True
        )
    try:
        with suppress(subprocess.TimeoutExpired):
            shell.wait(SCRIPT_SECONDS_MAX)
        assert shell.poll() == 0, log.read_text("utf-8", "replace")[-3000:]
        for block in blocks("sql", page):
            eventually(lambda block=block: _rows(home, block.text), 60, f"{block} gives rows")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(30)


def _clone(folder: Path) -> Path:
    """The repository as it is checked out, in another folder; what a page writes stays there.

    Hidden folders stay behind: they are tools' own, and tests beside this one write and remove files in them meanwhile.
    """
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info"))
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def _plugin(folder: Path, page: Path) -> Path:
    """The page's reader, offered as an installed package does: the page itself says to put it into streams/readers."""
    readers = [block.text for block in blocks("python", page) if "@reader" in block.text]
    info = folder / "snippet-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: snippet\nVersion: 0\n")
    if readers:
        (folder / "snippet_reader.py").write_text(readers[0], "utf-8")
        (info / "entry_points.txt").write_text("[streams.readers]\nsnippet = snippet_reader\n")
    return folder


def _script(page: Path, home: Settings) -> Iterator[str]:
    """All of the page's shell blocks as one session, as a user has one."""
    yield "set -euo pipefail"
    yield "trap 'echo \"failed: $BASH_COMMAND\"' ERR"
    for block in blocks("sh", page):
        for line in block.text.splitlines():
            yield from _runnable(line, home)


def _runnable(line: str, home: Settings) -> Iterator[str]:
    words = shlex.split(line, comments=True)
    match words:
        case ["docker", *_] | ["streams", "exercise", "check", *_]:
            return
        case ["make", *targets]:
            yield shlex.join(["make", "--dry-run", *targets])
        case [_, "-m", "pytest", *_]:
            yield shlex.join([*words, "--collect-only", "--quiet"])
        case ["streams", "api", "&"]:
            yield line
            yield f"timeout 60 bash -c 'until true 2>/dev/null </dev/tcp/127.0.0.1/{home.api_port}; do sleep 0.2; done'"
        case ["streams", "run", *groups, "&"]:
            yield line
            asked = " ".join(f"--group {group}" for group in groups)
            yield f"timeout 60 bash -c 'until streams lag {asked} >/dev/null 2>&1; do sleep 0.2; done'"
        case _:
            yield line


def _rows(home: Settings, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(home.database_url) as connection:
        return connection.execute(query.encode()).fetchall()
