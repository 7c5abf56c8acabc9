"""What a part of the local stack is, and how one is brought up: check, prepare, start, wait until it answers.

Called by `streams.stack.local`, which knows the parts and their order; calls the part's own functions.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import psutil

from streams.errors import StackError, Unavailable
from streams.stack.java import Java
from streams.stack.process import LocalProcess

READY_SECONDS_MAX = 120.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Part:
    """One server of the stack."""

    name: str
    home: Path
    port: int
    prepare: Callable[[], None]  # makes the data folder and the configuration; raises StackError
    command: Callable[[], Sequence[str]]
    probe: Callable[
        [], None
    ]  # a request in the server's own protocol; raises Unavailable while it gives no answer
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    needs: tuple[str, ...] = ()
    java: Java | None = None
    stop_signal: int = signal.SIGTERM

    @property
    def process(self) -> LocalProcess:
        return LocalProcess(self.name, self.home)


def check_port(part: Part) -> None:
    """Raises StackError, with the holder's pid if the system tells it, when another process has the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", part.port))
        except OSError as error:
            by = _holder(part.port)
            raise StackError(
                f"Port {part.port}, which {part.name} needs, is in use{by}: set STREAMS_PORT_BASE to other ports."
            ) from error


def _holder(port: int) -> str:
    try:
        listening = [
            each
            for each in psutil.net_connections("tcp")
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid
        ]
    except psutil.AccessDenied:
        return ""
    return f" by process {listening[0].pid}" if listening else ""


def bring_up(part: Part, cancelled: Event) -> bool:
    """Start the part unless it runs, and wait until it answers; True if it was started."""
    started = part.process.running() is None
    if started:
        part.prepare()
        part.process.start(part.command(), part.env, part.user)
    wait_until_ready(part, cancelled)
    return started


def wait_until_ready(part: Part, cancelled: Event) -> None:
    """Return when the part answers. Raises StackError when it died, or did not answer in time."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            return part.probe()
        except Unavailable as error:
            if part.process.running() is None:
                raise StackError(_died(part)) from error
            if time.monotonic() > deadline:
                raise StackError(
                    f"{part.name} did not answer within {READY_SECONDS_MAX:.0f} s: {error}"
                ) from error
        if cancelled.wait(_POLL_SECONDS):
            raise StackError(f"The start of {part.name} was given up.")


def _died(part: Part) -> str:
    process = part.process
    said = process.last_words()
    return f"{part.name} ended while starting" + (
        f", saying: {said}" if said else f"; see {process.log_file}"
    )


def ask_http(url: str) -> None:
    """Return when the URL answers 200. Raises Unavailable."""
    import httpx  # while the servers start, not before

    try:
        answer = httpx.get(url, timeout=5.0)
    except httpx.HTTPError as error:
        raise Unavailable(f"{url} does not answer: {error}.") from error
    if answer.status_code != httpx.codes.OK:
        raise Unavailable(f"{url} answers {answer.status_code}.")
