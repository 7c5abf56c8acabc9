"""The local stack: real servers as processes of this machine, side by side, below STREAMS_HOME.

Called by `streams up | down | status | logs` and by the tests; calls the parts (postgres, kafka, connect, registry),
then `streams.stack.setup`. One command at a time changes a home: a second one waits for the first.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Event

from filelock import FileLock
from rich.console import Console

from streams.config import PORT_OFFSETS, Settings
from streams.errors import ConfigError, StackError
from streams.stack.part import Part, bring_up, check_port
from streams.stack.process import LocalProcess

NAMES = ("postgres", "kafka", "connect", "registry")
API = "api"  # a part too, when it was started with the stack
# All that a stack makes below its home, and so all that a wipe removes.
_OWN = ("postgres", "postgres.new", "kafka", "kafka.new", "logs", "run", "tmp", "stack.json")


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One row of `streams status`: `state` is running or stopped, pid null and memory 0 when stopped."""

    name: str
    state: str
    pid: int | None
    port: int
    memory_bytes: int


def up(config: Settings, console: Console) -> list[str]:
    """Bring up all parts that do not run and set the stack up; gives the names of those that were started.

    Raises StackError or ConfigError with one sentence.
    """
    home = config.home.resolve()
    _check_settings(config, home)
    with _lock(home, console):
        _check_home(config, home)
        parts = _parts(config, home, console)
        started = _bring_up_all(parts, console)
        _set_up(console)
        _make_archives(parts, console)
    return started


def down(config: Settings, wipe: bool = False) -> list[str]:
    """Stop what runs, clients of the log first; with `wipe` remove all that the stack made. Gives the stopped ones."""
    home = config.home.resolve()
    if not home.exists():
        return []
    with _lock(home, Console(stderr=True)):
        stopped = [*_stop_all(home, (API, "connect", "registry")), *_stop_all(home, ("kafka", "postgres"))]
        if wipe:
            _wipe(home)
    return stopped


def status(config: Settings) -> dict[str, object]:
    """The parts and the addresses, as `streams status --json` prints them."""
    home = config.home.resolve()
    shown = [*NAMES, API] if LocalProcess(API, home).pid_file.exists() else NAMES
    return {
        "parts": [asdict(_part_status(config, home, name)) for name in shown],
        "database_url": config.database_url,
        "bootstrap_servers": config.bootstrap_servers,
        "connect_url": config.connect_url,
        "registry_url": config.registry_url,
        "api_url": config.api_url,
    }


def _part_status(config: Settings, home: Path, name: str) -> PartStatus:
    process = LocalProcess(name, home)
    running = process.running()
    port = config.port_base + PORT_OFFSETS[name]
    return PartStatus(
        name,
        "running" if running else "stopped",
        running.pid if running else None,
        port,
        process.memory_bytes(),
    )


def _check_settings(config: Settings, home: Path) -> None:
    """The local stack is reached at its own addresses, or `up` would set up somebody else's servers."""
    local = Settings.model_construct  # noqa: F841
    for path in (home, config.cache.resolve()):
        if any(sign in str(path) for sign in ",:\n\\"):
            raise ConfigError(
                f"The path {path} has a comma, colon or backslash, which Kafka cannot take: choose another."
            )


@contextmanager
def _lock(home: Path, console: Console) -> Iterator[None]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = FileLock(home / "lock")
        with lock.acquire(blocking=True):
            yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StackError(f"There is no disk space left in {home}.") from error
        raise StackError(f"The home {home} cannot be used: {error.strerror or error}.") from error


def _check_home(config: Settings, home: Path) -> None:
    """A home keeps the profile that its log was formatted with, and its ports while it runs."""
    marker = home / "stack.json"
    mine = {"broker_profile": config.broker_profile, "port_base": config.port_base}
    made = json.loads(marker.read_text()) if marker.exists() else mine
    if made["broker_profile"] != config.broker_profile:
        raise StackError(
            f"The stack in {home} was made with the broker profile {made['broker_profile']}: set "
            f"STREAMS_BROKER_PROFILE={made['broker_profile']}, or run `streams down --wipe` first."
        )
    if made["port_base"] != config.port_base and any(LocalProcess(name, home).running() for name in NAMES):
        raise StackError(
            f"The stack in {home} runs on the ports from {made['port_base']}: set "
            f"STREAMS_PORT_BASE={made['port_base']}, or run `streams down` first."
        )
    marker.write_text(json.dumps(mine))


def _parts(config: Settings, home: Path, console: Console) -> list[Part]:
    from streams.stack import connect, jars, kafka, postgres, registry

    have = jars.ensure(config.cache.resolve(), console)
    return [
        postgres.part(config, home),
        kafka.part(config, home, have),
        connect.part(config, home, have),
        registry.part(config, home, have),
    ]


def _bring_up_all(parts: list[Part], console: Console) -> list[str]:
    """All parts side by side, each after those that it needs."""
    for part in parts:
        if part.process.running() is None:
            check_port(part)
    cancelled = Event()
    begun: dict[str, Future[bool]] = {}
    with ThreadPoolExecutor(len(parts)) as pool, console.status("Starting the servers"):
        for part in parts:
            begun[part.name] = pool.submit(_after, [begun[name] for name in part.needs], part, cancelled)
        try:
            return [name for name, done in begun.items() if done.result()]
        except BaseException:
            cancelled.set()
            raise


def _after(needed: list[Future[bool]], part: Part, cancelled: Event) -> bool:
    for each in needed:
        each.result()
    return bring_up(part, cancelled)


def _set_up(console: Console) -> None:
    if find_spec("streams.stack.setup"):
        import_module("streams.stack.setup").run_setup(console)


def _make_archives(parts: list[Part], console: Console) -> None:
    programs = [part.java for part in parts if part.java]
    with ThreadPoolExecutor(2) as pool, console.status("Preparing quicker starts (once)"):
        list(pool.map(lambda program: program.make_archive(), programs))


def _stop_all(home: Path, names: tuple[str, ...]) -> list[str]:
    import signal

    def stop(name: str) -> bool:
        fast = signal.SIGINT if name == "postgres" else signal.SIGTERM
        return LocalProcess(name, home).stop(fast)

    with ThreadPoolExecutor(len(names)) as pool:
        return [name for name, stopped in zip(names, pool.map(stop, names), strict=True) if stopped]


def _wipe(home: Path) -> None:
    for name in _OWN:
        path = home / name
        remove: Callable[[Path], object] = shutil.rmtree if path.is_dir() else Path.unlink
        if path.exists():
            remove(path)
