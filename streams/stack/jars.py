"""The jars of the local servers: fetched once into the cache, checked against the listed sha256 and size.

infra/local lists each one. A jar that is missing or not as listed is fetched again. A file that was checked once is
checked again only when its size or time changed, so that a warm start reads no jar. Called by `streams.stack.local`;
calls jgo, which knows Maven's repositories.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from streams.errors import StackError
from streams.stack.files import disk_errors, exclusive, infra_folder, read_note, write_note

LISTS = ("kafka-jars.txt", "archives.txt")
DOWNLOADS_AT_ONCE = 8
HTTP_SECONDS_MAX = 30
TRIES = 3


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a Maven repository, as infra/local lists it."""

    coordinate: str  # group:artifact:version or group:artifact:version:classifier:packaging
    sha256: str
    bytes: int

    def words(self) -> tuple[str, str, str, str, str]:
        """Group, artifact, version, classifier and packaging."""
        group, artifact, version, *rest = self.coordinate.split(":")
        classifier, packaging = rest or ("", "jar")
        return group, artifact, version, classifier, packaging

    def path(self, cache: Path) -> Path:
        """Where it stands in the cache: Maven's layout, below `maven`."""
        group, artifact, version, classifier, packaging = self.words()
        name = "-".join(word for word in (artifact, version, classifier) if word)
        return cache / "maven" / group.replace(".", "/") / artifact / version / f"{name}.{packaging}"

    def folder(self, cache: Path) -> Path:
        """Where an archive is unpacked."""
        return cache / "unpacked" / "-".join(self.words()[1:3])


@dataclass(frozen=True, slots=True)
class Jars:
    """Everything that the Java servers are started from."""

    kafka: list[Path]  # the class path of the broker and of Connect
    debezium: Path  # the folder with the connector's jars
    registry: Path  # the folder with the registry's runner and lib/


def listed(name: str) -> list[Artifact]:
    """The artifacts that a file of infra/local lists, in its order."""
    lines = (infra_folder() / name).read_text("utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [Artifact(coordinate, sha256, int(size)) for coordinate, sha256, size in rows]


def ensure(cache: Path, console: Console) -> Jars:
    """All jars, fetched, checked and unpacked. Raises StackError that names the first that cannot be had."""
    jars, archives = (listed(name) for name in LISTS)
    with disk_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        with exclusive(cache / "lock", console):  # other stacks share the cache
            _fetch_missing(cache, jars + archives, console)
            debezium, registry = (_unpacked(cache, archive) for archive in archives)
    return Jars([jar.path(cache) for jar in jars], debezium, registry)


def _fetch_missing(cache: Path, artifacts: list[Artifact], console: Console) -> None:
    checked = _Checked(cache)
    missing = [artifact for artifact in artifacts if not checked.is_good(artifact)]
    if missing:
        with _progress(console, sum(artifact.bytes for artifact in missing)) as advance:
            _download(cache, missing, advance)
        for artifact in missing:
            if not checked.is_good(artifact):
                raise StackError(f"{artifact.coordinate} was fetched, but its sha256 is not the listed one.")
    checked.save()


class _Checked:
    """Which files were found good: sha256 → [size, modified]; so a warm start hashes nothing."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._file = cache / "checked.json"
        self._before = read_note(self._file)
        self._now: dict[str, list[int]] = {}

    def is_good(self, artifact: Artifact) -> bool:
        """Whether the file is there and as listed; a file that is not is removed."""
        path = artifact.path(self._cache)
        if not path.is_file():
            return False
        stamp = [path.stat().st_size, path.stat().st_mtime_ns]
        if self._before.get(artifact.sha256) != stamp and not _is_as_listed(path, artifact):
            path.unlink()
            return False
        self._now[artifact.sha256] = stamp
        return True

    def save(self) -> None:
        if self._now != self._before:
            write_note(self._file, self._now)


def _is_as_listed(path: Path, artifact: Artifact) -> bool:
    if path.stat().st_size != artifact.bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == artifact.sha256


@contextmanager
def _progress(console: Console, total_bytes: int) -> Iterator[Callable[[int], None]]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("Fetching the servers (once)", total=total_bytes)
        yield lambda count: progress.advance(task, count)


def _download(cache: Path, artifacts: list[Artifact], advance: Callable[[int], None]) -> None:
    import requests
    from jgo.maven import MavenContext, PythonResolver

    @contextmanager
    def on_file(_name: str, _size: int) -> Iterator[Callable[[int], None]]:
        yield advance

    resolver = PythonResolver(progress_callback=on_file)
    context = MavenContext(resolver, repo_cache=cache / "maven", timeout=HTTP_SECONDS_MAX)

    def fetch(artifact: Artifact) -> None:
        group, name, version, classifier, packaging = artifact.words()
        remote = context.project(group, name).at_version(version).artifact(classifier, packaging)
        for try_number in range(1, TRIES + 1):
            artifact.path(cache).unlink(missing_ok=True)  # what a broken try has left
            try:
                remote.resolve()
                break
            except (requests.RequestException, RuntimeError):
                if try_number == TRIES:
                    raise

    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        for artifact, done in [(artifact, pool.submit(fetch, artifact)) for artifact in artifacts]:
            try:
                done.result()
            except (OSError, RuntimeError) as error:  # requests' errors are OSErrors, jgo's RuntimeErrors
                pool.shutdown(cancel_futures=True)
                raise _not_fetched(artifact, error) from error


def _not_fetched(artifact: Artifact, error: OSError | RuntimeError) -> Exception:
    import requests

    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return error
    if isinstance(error, requests.RequestException):
        return StackError(
            f"{artifact.coordinate} could not be fetched: no Maven repository answers, and a first start needs one."
        )
    return StackError(f"{artifact.coordinate} could not be fetched: no Maven repository has it.")


def _unpacked(cache: Path, archive: Artifact) -> Path:
    """The archive's folder, unpacked anew when a file of it is missing or cut short."""
    folder = archive.folder(cache)
    if not _is_whole(folder, archive):
        new = folder.with_name(folder.name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        with tarfile.open(archive.path(cache)) as tar:
            # Python 3.11.3 and older have no filters.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            tar.extractall(new)
        sizes = {str(path.relative_to(new)): path.stat().st_size for path in new.rglob("*") if path.is_file()}
        write_note(new / "files.json", {"sha256": archive.sha256, "sizes": sizes})
        shutil.rmtree(folder, ignore_errors=True)
        new.replace(folder)
    return folder


def _is_whole(folder: Path, archive: Artifact) -> bool:
    note = read_note(folder / "files.json")
    if note.get("sha256") != archive.sha256:
        return False
    try:
        return all((folder / name).stat().st_size == size for name, size in note["sizes"].items())
    except FileNotFoundError:
        return False
