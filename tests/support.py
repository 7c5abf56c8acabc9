"""What tests share: polling with a deadline, free ports."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Between two looks: what comes soon is seen soon, and what takes long does not have the processor spent on asking.
_POLL_SHARE, _POLL_SECONDS_MIN, _POLL_SECONDS_MAX = 0.1, 0.02, 0.25
_PORTS_OF_A_STACK = 10


def eventually(check: Callable[[], T], seconds: float = 30.0, message: str = "") -> T:
    """What `check` returns once it is truthy; an AssertionError in it counts as not yet.

    Fails after `seconds` with `message` and what the last try gave. Any other exception passes through.
    """
    began = time.monotonic()
    while True:
        try:
            last: object = (result := check())
            if result:
                return result
        except AssertionError as error:
            last = error
        if (waited := time.monotonic() - began) > seconds:
            raise AssertionError(f"{message or 'it'} did not happen within {seconds} s; last seen: {last!r}")
        time.sleep(min(max(waited * _POLL_SHARE, _POLL_SECONDS_MIN), _POLL_SECONDS_MAX))


def free_port_base() -> int:
    """The first of ten consecutive ports that nobody uses, below those that the system hands out by itself."""
    for base in random.sample(range(11000, 32000, _PORTS_OF_A_STACK), k=200):
        if all(_is_free(base + offset) for offset in range(_PORTS_OF_A_STACK)):
            return base
    raise AssertionError("no ten consecutive ports are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
