"""Fixtures of all tests: one local stack for the whole run, brought up when the first test asks for it."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from streams.config import Settings, settings
from streams.stack import local
from tests.support import free_port_base


def pytest_configure() -> None:
    """A run that is told to stop ends like one that Ctrl-C stops: its fixtures still take down what they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell's background job begins with SIGINT ignored, and hands that down to the programs under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def stack() -> Iterator[Settings]:
    """The settings of a running stack, set up, of this run's own; `settings()` and child processes see it too."""
    with tempfile.TemporaryDirectory(prefix="streams-test-") as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMS_HOME", str(Path(home) / "home"))
        patch.setenv("STREAMS_PORT_BASE", str(free_port_base()))
        settings.cache_clear()
        console = Console(stderr=True)
        try:
            local.up(settings(), console)
            yield settings()
        finally:
            local.down(settings(), console, wipe=True)
    settings.cache_clear()
