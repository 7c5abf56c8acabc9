"""What a demonstration needs running: the stack, the API, readers. Each is started if it does not run, and what was
started is stopped again, however the block ends.

Called by the demo, the exercises and bench/stack.py; calls `streams.stack` and starts `streams api` and `streams run`
as processes of the stack, so that `streams logs` shows what they say and `streams down` stops them too.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
from rich.console import Console

from streams.config import Settings
from streams.errors import StackError
from streams.stack.local import API, down, status, up
from streams.stack.process import LocalProcess

READERS = "readers"
READY_SECONDS_MAX = 120.0  # the API loads in 2 s; on a busy machine in 40
_POLL_SECONDS = 0.1


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C, SIGTERM or a closed terminal ends the block as KeyboardInterrupt; more of them cannot disturb its end."""
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP

    def interrupt(_number: int, _frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stack(config: Settings, console: Console) -> Iterator[None]:
    """The local stack. It is stopped at the end unless a part of it ran before."""
    ran_before = any(part["state"] == "running" for part in status(config)["parts"])
    try:
        up(config, console)
        yield
    finally:
        if not ran_before:
            down(config, console)


@contextmanager
def api(config: Settings) -> Iterator[None]:
    """The API, once it takes saves. One that answers already, whoever started it, is used and left alone."""
    if is_ready(config):
        yield
        return
    with _process(config, API, "api") as process:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not is_ready(config):
            raise_if_ended(process)
            if time.monotonic() > deadline:
                raise StackError(f"the API at {config.api_url} was not ready in {READY_SECONDS_MAX:.0f} s")
            time.sleep(_POLL_SECONDS)
        yield


@contextmanager
def readers(config: Settings, groups: Sequence[str]) -> Iterator[LocalProcess]:
    """A worker of each of these readers, restarted when one dies."""
    with _process(config, READERS, "run", *groups) as process:
        yield process


def is_ready(config: Settings) -> bool:
    """Whether the API would take a save now."""
    try:
        return httpx.get(f"{config.api_url}/readyz", timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def raise_if_ended(process: LocalProcess) -> None:
    """Raises StackError if the process runs no more, with its error, or else the last thing that it said."""
    if process.running() is None:
        said = process.last_words("error: ").removeprefix("error: ") or process.last_words() or "it said nothing"
        raise StackError(f"{process.name} ended: {said} (see `streams logs {process.name}`)")


@contextmanager
def _process(config: Settings, name: str, *arguments: str) -> Iterator[LocalProcess]:
    process = LocalProcess(name, config.home.resolve())
    ran_before = process.running() is not None
    try:
        if not ran_before:
            # The home may be a relative path, and a part of the stack runs in the folder of its log.
            process.start([sys.executable, "-m", "streams.cli.main", *arguments], {"STREAMS_HOME": str(process.home)})
        yield process
    finally:
        if not ran_before:
            process.stop()
