"""Prometheus and promtool for the tests: those on the PATH, or Debian's, unpacked into the cache of downloads.

apt checks what it fetches, and needs no rights for it: nothing is installed. Where its lists are missing or too old, it
gets lists of its own. A machine with neither is told so by a failure.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from streams.config import Settings

PACKAGE = "prometheus"
PROGRAMS = ("prometheus", "promtool")
_SECONDS_MAX = 200


def program(name: str) -> Path:
    """The program's path. Raises AssertionError if it cannot be had."""
    assert name in PROGRAMS
    if found := shutil.which(name):
        return Path(found)
    folder = Settings().cache.absolute() / "prometheus"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if not all((folder / "bin" / each).is_file() for each in PROGRAMS):
            _fetch(folder)
    return folder / "bin" / name


def _fetch(folder: Path) -> None:
    """From what apt knows, or else after an update of lists that are kept in `folder`."""
    new = folder / "new"
    shutil.rmtree(new, ignore_errors=True)
    for part in ("lists/partial", "archives/partial"):
        (new / part).mkdir(parents=True)
    # As root, apt would download as a user who may not come here.
    apt = ["apt-get", "--quiet", "-o", "APT::Sandbox::User=root", "-o", f"Dir::Cache={new}"]
    own = [*apt, "-o", f"Dir::State::Lists={new}/lists"]
    said = ""
    for commands in ([[*apt, "download", PACKAGE]], [[*own, "update"], [*own, "download", PACKAGE]]):
        said = "".join(_output(command, new) for command in commands)
        if archives := list(new.glob("*.deb")):
            said = _output(["dpkg-deb", "--extract", str(archives[0]), str(new / "root")], new)
            shutil.rmtree(folder / "bin", ignore_errors=True)
            (new / "root/usr/bin").rename(folder / "bin")
            shutil.rmtree(new)
            return
    raise AssertionError(f"there is no promtool on the PATH, and Debian's {PACKAGE} cannot be fetched: {said}")


def _output(command: list[str], folder: Path) -> str:
    """What a command says; whether it did its work is seen by what it leaves."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"
    return done.stdout + done.stderr
