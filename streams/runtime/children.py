"""A process of its own for a reader's handler: what keeps a processor busy, or may crash, does it there.

The worker's half is `Child`: called by the executor, one thread a child, or by whoever must run a record apart. It
starts a fresh interpreter (never a fork: the worker holds clients with threads of their own), which imports the reader
by name and runs `serve`. Between them is one duplex pipe: a request is a list of calls, its answer their attempts.
The standard library's executor would not do: it fails every job when one process dies, and its processes survive a
worker that is killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import importlib
import logging
import math
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NoReturn

import psutil

from streams import logs
from streams.contract import Reader, Reject
from streams.core.outcomes import Failure
from streams.errors import ReaderError
from streams.runtime.handling import Answer, Attempt, Call, Handler, describe, timed_out

log = logging.getLogger(__name__)

# One death may be another's doing (an operator, a memory that others filled); three over the same record are its own.
DEATHS_MAX = 3
_LOOK_SECONDS = 1.0  # how often a waiting worker looks whether the process lives
_PROGRAM = "import sys; sys.path[:] = {path!r}; from streams.runtime.children import serve; serve{arguments!r}"
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


class _Died(Exception):
    """The child ended in the middle of a request; the message says how."""


class _TooLong(Exception):
    """No answer in time."""


class Child:
    """One process that runs a reader's handler, whatever its kind, and is started again when it dies.

    `start` and `attempt` belong to one thread, which must live as long as the child.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._handler = Handler(reader)  # never set up: it only knows what may go together
        self._lock = Lock()  # no start once stopped
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection

    def start(self) -> None:
        """Start the process and wait for its `setup`, whose error comes out here.

        Raises ReaderError if the reader cannot be imported by its name, or the process ends before it is ready.
        """
        name = name_of(self._reader)
        self._pipe, theirs = Pipe()
        with self._lock, theirs:
            if self._stopped:
                raise ReaderError(f"reader {self._reader.group!r}: the worker stops")
            self._process = _spawned(theirs, *name)
        try:
            error = self._receive(None)
        except (EOFError, OSError):
            raise ReaderError(f"reader {self._reader.group!r}: its process ended at its start: {self._end()}") from None
        if error is not None:
            self._end()
            raise error

    def attempt(self, calls: Sequence[Call], timeout_seconds: float | None) -> list[Attempt]:
        """The attempt of each call; waits for them. The timeout is of one call of the handler. Raises nothing."""
        return self._handler.attempt_each(calls, lambda some: self._answer(some, timeout_seconds))

    def stop(self) -> None:
        """End the process, also in the middle of a request, from any thread. It does not start again."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                _kill(self._process)

    def _answer(self, calls: Sequence[Call], timeout_seconds: float | None) -> Answer:
        """Of one request; over a dead child again, if only one record can be at fault."""
        failure: Failure
        for death in range(1, 1 + (DEATHS_MAX if len(calls) == 1 else 1)):
            try:
                return self._ask(calls, timeout_seconds)
            except _Died as died:
                failure = _worker_died(died, death)
                log.warning("%s: its process ended over %s: %s", self._reader.group, _named(calls), died)
            except BaseException as error:  # noqa: BLE001 - it took too long, or setup failed when started again
                return describe(error, permanent=False)
        return failure

    def _ask(self, calls: Sequence[Call], timeout_seconds: float | None) -> Answer:
        """One request. Raises _Died, TimeoutError, and what `start` raises."""
        if self._process is None:
            self.start()
        try:
            self._pipe.send(calls)
            answer = self._receive(timeout_seconds)
        except _TooLong:
            self._end()
            raise timed_out(timeout_seconds) from None
        except (EOFError, OSError):
            raise _Died(self._end()) from None
        return answer if isinstance(answer, Failure) else [_unpacked(one) for one in answer]

    def _receive(self, timeout_seconds: float | None) -> Any:
        """What it sends next. Raises EOFError or OSError if it has ended, _TooLong."""
        until = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not self._pipe.poll(max(0.0, min(_LOOK_SECONDS, until - time.monotonic()))):
            if time.monotonic() >= until:
                raise _TooLong
            # The pipe alone does not tell: a process that it forked may hold the other end open.
            if self._process is None or _has_ended(self._process):
                raise EOFError
        return self._pipe.recv()

    def _end(self) -> str:
        """Make sure that it is gone; says how it ended."""
        with self._lock:
            process, self._process = self._process, None
            assert process is not None
            code = _kill(process)
        self._pipe.close()
        return f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"


def name_of(reader: Reader) -> tuple[str, str]:
    """The module and the qualified name by which another process finds the reader. Raises ReaderError."""
    module = getattr(reader.handler, "__module__", None)
    name = getattr(reader.handler, "__qualname__", type(reader.handler).__name__)
    with suppress(KeyError, AttributeError):
        if module != "__main__" and attrgetter(name)(sys.modules[str(module)]) is reader:
            return str(module), name
    raise ReaderError(
        f"reader {reader.group!r}: a process cannot import it as {name} from {module};"
        " declare it by @reader on a function at the top of a module"
    )


def _spawned(pipe: Connection, module: str, name: str) -> subprocess.Popen[bytes]:
    program = _PROGRAM.format(path=sys.path, arguments=(pipe.fileno(), module, name, tuple(logs.choice())))
    # -u: what it printed is not lost when it is killed. A session of its own: Ctrl-C in the terminal is the worker's
    # affair, and what the handler starts in turn can be ended with it.
    return subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        stdin=subprocess.DEVNULL,
        pass_fds=[pipe.fileno()],
        start_new_session=True,
    )


def _kill(process: subprocess.Popen[bytes]) -> int:
    """End it and all that it started; its exit code, which is that of its own end if it had ended by itself."""
    if process.returncode is None:  # else its number may be another's by now
        with suppress(ProcessLookupError, PermissionError):  # it has ended; macOS says the latter
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Asked without taking its exit code, so that its number, which is its group's, stays its own."""
    try:
        return psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def _named(calls: Sequence[Call]) -> str:
    document, _ = calls[0]
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    return f"{document.document_id} version {document.version}{more}"


def _worker_died(died: _Died, deaths: int) -> Failure:
    message = f"the handler's process ended with {died}, {deaths} time(s) in a row"
    return Failure("WorkerDied", message, "", permanent=True)


def _unpacked(attempt: bytes) -> Attempt:
    try:
        loaded: Attempt = pickle.loads(attempt)
    except Exception as error:  # noqa: BLE001 - what is in it may raise anything
        return describe(Reject(f"the handler's result does not unpickle: {type(error).__name__}: {error}"))
    return loaded


# ------------------------------------------------------------------------------------------- in the child


def serve(descriptor: int, module: str, name: str, logging_as: tuple[bool, int, str, str]) -> None:
    """The child's whole life: get ready, say so, answer requests until the pipe ends."""
    pipe: Connection = Connection(descriptor)
    requests: SimpleQueue[bytes] = SimpleQueue()
    _obey_only_the_worker()
    Thread(target=_listen, args=(pipe, requests), daemon=True).start()
    logs.configure(**logs.Choice(*logging_as)._asdict())
    faulthandler.enable()  # a crash says where in Python it happened
    with asyncio.Runner() as runner:  # its loop runs for a coroutine handler only: a plain one may run its own
        try:
            reader = _imported(module, name)
            handler = Handler(reader)
            runner.run(handler.set_up_async()) if reader.is_async else handler.set_up()
        except BaseException as error:  # noqa: BLE001 - the worker raises it
            pipe.send(_portable(error))
            return
        pipe.send(None)
        if reader.is_async:
            runner.run(_serve_async(handler, pipe, requests))
        while True:
            _reply(pipe, handler.answer(pickle.loads(requests.get())))


async def _serve_async(handler: Handler, pipe: Connection, requests: SimpleQueue[bytes]) -> NoReturn:
    """The loop runs on between requests, for what a client does in the background."""
    while True:
        request = await asyncio.to_thread(requests.get)
        _reply(pipe, await handler.answer_async(pickle.loads(request)))


def _reply(pipe: Connection, answer: Answer) -> None:
    pipe.send(answer if isinstance(answer, Failure) else [_packed(attempt) for attempt in answer])


def _obey_only_the_worker() -> None:
    """It ends with the worker and not by the signals that ask the worker to drain, which may go to all processes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # not SIG_IGN: what a handler starts would inherit that
    if sys.platform == "linux":
        # `_listen` needs the interpreter's lock, which a handler in foreign code may hold for good.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError):  # where there is such a file: the system short of memory takes the child, not the worker
        Path("/proc/self/oom_score_adj").write_text("1000")


def _listen(pipe: Connection, requests: SimpleQueue[bytes]) -> None:
    """Take requests in, so that the worker's end is seen at once, also in the middle of a handler."""
    try:
        while True:
            requests.put(pipe.recv_bytes())
    finally:
        os._exit(1)


def _imported(module: str, name: str) -> Reader:
    found = attrgetter(name)(importlib.import_module(module))
    if not isinstance(found, Reader):
        raise ReaderError(f"{module}.{name} is no reader in a new process")
    return found


def _packed(attempt: Attempt) -> bytes:
    try:
        return pickle.dumps(attempt)
    except Exception as error:  # noqa: BLE001 - what is in it may raise anything
        return pickle.dumps(describe(Reject(f"the handler's result does not pickle: {type(error).__name__}: {error}")))


def _portable(error: BaseException) -> BaseException:
    """The error with its traceback as a note; if it does not survive the way, one that says the same."""
    text = "".join(traceback.format_exception(error))
    error.add_note(f"In the reader's process:\n{text}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - an exception of a library may hold anything
        return ReaderError(f"its process does not start: {type(error).__name__}: {error}\n{text}")
    return error
