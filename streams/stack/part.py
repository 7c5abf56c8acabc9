"""What a part of the local stack is, and how one is brought up: check, prepare, start, wait until it answers.

Called by `streams.stack.local`, which knows the parts and their order; calls the part's own functions.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import psutil

from streams.config import PORT_OFFSETS, Settings
from streams.errors import StackError, Unavailable
from streams.stack.java import Java
from streams.stack.process import LocalProcess

if TYPE_CHECKING:
    import httpx

HOST = "127.0.0.1"
READY_SECONDS_MAX = 300.0  # one that died is noticed at once; a first start on a crowded machine takes minutes
# A port that a killed server of ours held is free as soon as the system has torn the process down.
PORT_SECONDS_MAX = 2.0
_POLL_SECONDS = 0.1


def port_of(config: Settings, name: str) -> int:
    """The port of a part of the local stack."""
    return config.port_base + PORT_OFFSETS[name]


@dataclass(frozen=True, slots=True)
class Part:
    """One server of the stack."""

    name: str
    home: Path
    ports: tuple[int, ...]  # all that it listens on
    prepare: Callable[[], None]  # makes the data folder and the configuration; raises StackError
    command: Callable[[], Sequence[str]]
    probe: Callable[[], None]  # a request in the server's own protocol; raises Unavailable while unanswered
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    needs: tuple[str, ...] = ()
    stop_signal: int = signal.SIGTERM
    java: Java | None = None

    @property
    def process(self) -> LocalProcess:
        return LocalProcess(self.name, self.home)


def check_ports(part: Part) -> None:
    """Raises StackError, with the holder's pid if the system tells it, when another process has a port."""
    deadline = time.monotonic() + PORT_SECONDS_MAX
    for port in part.ports:
        while not _is_free(port):
            if time.monotonic() > deadline:
                by = _holder(port)
                raise StackError(
                    f"Port {port} of {part.name} is in use{by}: free it, or set STREAMS_PORT_BASE to another."
                )
            time.sleep(_POLL_SECONDS)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _holder(port: int) -> str:
    try:
        sockets = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return ""
    pids = [each.pid for each in sockets if each.laddr and each.laddr.port == port and each.pid]
    return f" by process {pids[0]}" if pids else ""


def bring_up(part: Part, cancelled: Event) -> bool:
    """Start the part unless it runs, and wait until it answers; True if it was started."""
    # What runs may have been killed a moment ago, and be gone at the next look: then it is started as well.
    if part.process.running() is not None:
        part.process.wake()
        if _becomes_ready(part, cancelled):
            return False
    check_ports(part)
    part.prepare()
    part.process.start(part.command(), part.env, part.user, part.stop_signal)
    if not _becomes_ready(part, cancelled):
        raise StackError(_died(part))
    return True


def _becomes_ready(part: Part, cancelled: Event) -> bool:
    """Whether it answers in the end; False as soon as it has ended."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            part.probe()
            return True
        except Unavailable as error:
            if part.process.running() is None:
                return False
            if time.monotonic() > deadline:
                raise StackError(f"{part.name} did not answer within {READY_SECONDS_MAX:.0f} s: {error}") from error
        if cancelled.wait(_POLL_SECONDS):
            raise StackError(f"The start of {part.name} was given up.")


def _died(part: Part) -> str:
    said = part.process.last_words()
    return f"{part.name} ended while starting: {said or 'it said nothing'} (see `streams logs {part.name}`)."


def ask_http(url: str) -> None:
    """Return when the URL answers 200. Raises Unavailable."""
    from httpx import HTTPError, codes

    try:
        answer = _http().get(url)
    except HTTPError as error:
        raise Unavailable(f"{url} does not answer: {error}.") from error
    if answer.status_code != codes.OK:
        raise Unavailable(f"{url} answers {answer.status_code}.")


@cache
def _http() -> httpx.Client:
    """For this machine's own servers: no proxy, and no certificates, whose loading would cost more than the asking."""
    import httpx  # while the servers start, not before

    return httpx.Client(timeout=5.0, trust_env=False, verify=False)
