"""What a demonstration starts, it stops; how it says that something ended; that its end cannot be disturbed."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from streams.config import Settings
from streams.errors import StackError
from streams.lab import services
from streams.stack.process import LocalProcess
from tests.support import eventually, free_port_base

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_the_next_do_not(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    ended_well: list[bool] = []

    def work() -> None:
        try:
            os.kill(os.getpid(), number)
        finally:
            for each in SIGNALS:
                os.kill(os.getpid(), each)
            ended_well.append(True)

    with pytest.raises(KeyboardInterrupt), services.interruptible():
        work()
    assert ended_well
    assert signal.getsignal(number) == before


def test_what_ended_is_named_with_its_last_words(tmp_path: Path) -> None:
    process = LocalProcess("readers", tmp_path)
    process.start([sys.executable, "-c", "print('error: there is no reader', flush=True); print('INFO another ends')"])
    eventually(lambda: process.running() is None)
    with pytest.raises(StackError, match=r"^readers ended: there is no reader \(see `streams logs readers`\)$"):
        services.raise_if_ended(process)


def test_an_api_that_cannot_start_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port_base()
    monkeypatch.setenv("STREAMS_API_PORT", str(port))  # for the process that it starts
    config = Settings(home=tmp_path, api_url=f"http://127.0.0.1:{port}")
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(StackError, match=r"^api ended: the API cannot listen on .* in use"),
        services.api(config),
    ):
        pass
    assert LocalProcess("api", tmp_path).running() is None
