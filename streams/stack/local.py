"""The local stack: real servers as processes of this machine, side by side, below STREAMS_HOME.

Called by `streams up | down | status | logs` and by the tests; calls the parts (postgres, kafka, connect, registry),
then `streams.stack.setup`. One command at a time changes a home: a second one waits for the first.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

from rich.console import Console

from streams.config import Settings
from streams.errors import ConfigError, StackError
from streams.stack import connect, kafka, postgres, registry
from streams.stack.files import disk_errors, exclusive, read_note, write_note
from streams.stack.jars import ensure
from streams.stack.part import Part, bring_up, check_ports, port_of
from streams.stack.process import TOOL, LocalProcess

NAMES = ("postgres", "kafka", "connect", "registry")
API = "api"  # a part too, once it was started with the stack
LAYOUT = 1  # of a home; raised when an older home cannot be used any more
# All that a stack makes below its home but the lock, and so all that a wipe removes.
_MADE = (
    "analytics",
    "postgres",
    "postgres.new",
    "postgres.password",
    "kafka",
    "kafka.new",
    "logs",
    "run",
    "tmp",
    "stack.json",
)


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One row of `streams status`. State: running, stopped, or died; pid is null and memory 0 unless running."""

    name: str
    state: str
    pid: int | None
    port: int
    memory_bytes: int


def up(config: Settings, console: Console) -> list[str]:
    """Bring up all parts that do not run and set the stack up; gives the names of those that were started.

    Raises StackError or ConfigError, each with one sentence.
    """
    home = config.home.resolve()
    _check_settings(config, home)
    with _changing(home, console):
        _check_home(config, home)
        _stop_all(home, _left_behind(home))
        parts = _parts(config, home, console)
        started = _bring_up_all(parts, console)
        _setup().run_setup(console, config)
        _make_archives(parts, console)
    return started


def down(config: Settings, console: Console, wipe: bool = False) -> list[str]:
    """Stop what runs, the log's clients first; with `wipe` remove all that the stack made. Gives the stopped."""
    home = config.home.resolve()
    if not home.exists():
        return []
    with _changing(home, console):
        stopped = [*_stop_all(home, [*_guests(home), "connect", "registry"]), *_stop_all(home, ["kafka", "postgres"])]
        if wipe:
            _wipe(home)
    return stopped


def status(config: Settings) -> dict[str, Any]:
    """The parts and the addresses, as `streams status --json` prints them."""
    home = config.home.resolve()
    names = [*NAMES, API] if LocalProcess(API, home).pid_file.exists() else NAMES
    return {
        "parts": [asdict(_status_of(config, LocalProcess(name, home))) for name in names],
        "database_url": config.database_url,
        "bootstrap_servers": config.bootstrap_servers,
        "connect_url": config.connect_url,
        "registry_url": config.registry_url,
        "api_url": config.api_url,
    }


def _status_of(config: Settings, process: LocalProcess) -> PartStatus:
    running, port = process.running(), port_of(config, process.name)
    if running is None:
        return PartStatus(process.name, "died" if process.pid_file.exists() else "stopped", None, port, 0)
    return PartStatus(process.name, "running", running.pid, port, process.memory_bytes())


@contextmanager
def _changing(home: Path, console: Console) -> Iterator[None]:
    with disk_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        with exclusive(home / "lock", console):
            yield


def _check_settings(config: Settings, home: Path) -> None:
    """`up` must not set up somebody else's servers, nor take a path that Java's lists of paths cannot hold."""
    local = Settings.model_construct(port_base=config.port_base)
    for name in ("db_host", "db_port", "bootstrap_servers", "connect_url", "registry_url"):
        if getattr(config, name) != getattr(local, name):
            raise ConfigError(f"STREAMS_{name.upper()} names another server than the local stack's: unset it.")
    for path in (home, config.cache.resolve()):
        if any(sign in str(path) for sign in ",:\n\\"):
            raise ConfigError(f"The path {path} has a comma, colon or backslash, which Java's servers cannot take.")


def _check_home(config: Settings, home: Path) -> None:
    """A home keeps the layout and profile that it was made with, and its ports while it runs."""
    mine = {"layout": LAYOUT, "broker_profile": config.broker_profile, "port_base": config.port_base}
    made = {**mine, **read_note(home / "stack.json")}
    if made["layout"] != LAYOUT:
        raise StackError(f"The stack in {home} was made by another version: run `streams down --wipe` first.")
    if made["broker_profile"] != config.broker_profile:
        raise StackError(
            f"The stack in {home} was made with STREAMS_BROKER_PROFILE={made['broker_profile']}: set it so, "
            "or run `streams down --wipe` first."
        )
    if made["port_base"] != config.port_base and any(LocalProcess(name, home).running() for name in NAMES):
        raise StackError(
            f"The stack in {home} runs with STREAMS_PORT_BASE={made['port_base']}: set it so, "
            "or run `streams down` first."
        )
    write_note(home / "stack.json", mine)


def _parts(config: Settings, home: Path, console: Console) -> list[Part]:
    """In an order in which each stands after those that it needs."""
    jars = ensure(config.cache.resolve(), console)
    return [
        postgres.part(config, home),
        kafka.part(config, home, jars),
        connect.part(config, home, jars),
        registry.part(config, home, jars),
    ]


def _bring_up_all(parts: list[Part], console: Console) -> list[str]:
    """All parts side by side, each after those that it needs; gives the names of those that were started."""
    for part in parts:
        if part.process.running() is None:
            check_ports(part)
    cancelled = Event()
    begun: dict[str, Future[bool]] = {}
    with ThreadPoolExecutor(len(parts)) as pool, console.status("Starting the servers"):
        for part in parts:
            begun[part.name] = pool.submit(_after, [begun[name] for name in part.needs], part, cancelled)
        _setup()
        try:
            return [name for name, done in begun.items() if done.result()]
        except BaseException:
            cancelled.set()
            raise


def _setup() -> ModuleType:
    """Imported while the servers start: that takes half a second, in which nobody waits for it."""
    return import_module("streams.stack.setup")


def _after(needed: list[Future[bool]], part: Part, cancelled: Event) -> bool:
    for each in needed:
        each.result()
    return bring_up(part, cancelled)


def _make_archives(parts: list[Part], console: Console) -> None:
    programs = [part.java for part in parts if part.java]
    with ThreadPoolExecutor(2) as pool, console.status("Preparing quicker starts (once)"):
        list(pool.map(lambda program: program.make_archive(), programs))


def _guests(home: Path) -> list[str]:
    """What was started beside the servers, such as the API and a demonstration's readers."""
    return sorted({path.stem for path in (home / "run").glob("*.json")} - set(NAMES))


def _left_behind(home: Path) -> list[str]:
    """The tools of a `streams up` that was killed: they still write where the next one is about to."""
    return sorted(path.stem for path in (home / "run").glob(f"{TOOL}*.json"))


def _stop_all(home: Path, names: Sequence[str]) -> list[str]:
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        stopped = pool.map(lambda name: LocalProcess(name, home).stop(), names)
        return [name for name, was_running in zip(names, stopped, strict=True) if was_running]


def _wipe(home: Path) -> None:
    for path in [home / name for name in _MADE]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
