"""The jars of the local servers: fetched once into the cache, checked against the listed sha256 and size.

infra/local lists each one. A jar that is missing or not as listed is fetched again. A file that was checked once is
checked again only when its size or time changed, so that a warm start reads no jar. Called by `streams.stack.local`;
calls jgo, which knows Maven's repositories.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from streams.errors import StackError

DOWNLOADS_AT_ONCE = 8
HTTP_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a Maven repository, as infra/local lists it."""

    coordinate: str  # group:artifact:version or group:artifact:version:classifier:packaging
    sha256: str
    bytes: int

    def parts(self) -> tuple[str, str, str, str, str]:
        """Group, artifact, version, classifier and packaging."""
        group, artifact, version, *rest = self.coordinate.split(":")
        classifier, packaging = rest or ("", "jar")
        return group, artifact, version, classifier, packaging

    def path(self, cache: Path) -> Path:
        """Where it stands in the cache: Maven's layout, below `maven`."""
        group, artifact, version, classifier, packaging = self.parts()
        name = "-".join(part for part in (artifact, version, classifier) if part)
        return cache / "maven" / group.replace(".", "/") / artifact / version / f"{name}.{packaging}"

    def folder(self, cache: Path) -> Path:
        """Where an archive is unpacked."""
        return cache / "unpacked" / "-".join(self.parts()[1:3])


@dataclass(frozen=True, slots=True)
class Jars:
    """Everything that the servers are started from."""

    kafka: list[Path]  # the class path of the broker and of Connect
    debezium: Path  # the folder with the connector's jars
    registry: Path  # the folder with the registry's runner and lib/


def infra_folder() -> Path:
    """Where infra/local stands: in the package when installed, beside it in a checkout."""
    installed = Path(str(files("streams"))) / "_files" / "infra" / "local"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "infra" / "local"


def listed(name: str) -> list[Artifact]:
    """The artifacts that a file of infra/local lists, in its order."""
    lines = (infra_folder() / name).read_text("utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [Artifact(coordinate, sha256, int(size)) for coordinate, sha256, size in rows]


def ensure(cache: Path, console: Console) -> Jars:
    """All jars, fetched, checked and unpacked. Raises StackError that names the first that cannot be had."""
    jars, archives = listed("kafka-jars.txt"), listed("archives.txt")
    with _disk_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / "lock"):
            _fetch_missing(cache, jars + archives, console)
            debezium, registry = (_unpacked(cache, archive) for archive in archives)
    return Jars([jar.path(cache) for jar in jars], debezium, registry)


@contextmanager
def _disk_errors(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StackError(f"There is no disk space left for the servers' jars in {cache}.") from error
        raise StackError(f"The cache {cache} cannot be used: {error.strerror or error}.") from error


def _fetch_missing(cache: Path, artifacts: list[Artifact], console: Console) -> None:
    stamps = _Stamps(cache)
    missing = [artifact for artifact in artifacts if not stamps.good(artifact)]
    if missing:
        with _progress(console, sum(artifact.bytes for artifact in missing)) as advance:
            _download(cache, missing, advance)
        broken = [artifact for artifact in missing if not stamps.good(artifact)]
        if broken:
            raise StackError(f"{broken[0].coordinate} is not the file that is listed: its sha256 differs.")
    stamps.save()


class _Stamps:
    """Which files were checked: path → [size, modified]; so a warm start hashes nothing."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._file = cache / "checked.json"
        self._before = _read_json(self._file)
        self._now: dict[str, list[int]] = {}

    def good(self, artifact: Artifact) -> bool:
        """Whether the file is there and as listed; a file that is not is removed."""
        path = artifact.path(self._cache)
        if not path.is_file():
            return False
        stat = path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns]
        if self._before.get(artifact.sha256) != stamp and not _is_as_listed(path, artifact):
            path.unlink()
            return False
        self._now[artifact.sha256] = stamp
        return True

    def save(self) -> None:
        if self._now != self._before:
            _write_json(self._file, self._now)


def _is_as_listed(path: Path, artifact: Artifact) -> bool:
    if path.stat().st_size != artifact.bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == artifact.sha256


@contextmanager
def _progress(console: Console, total_bytes: int) -> Iterator[Callable[[int], None]]:
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("Fetching the servers (once)", total=total_bytes)
        yield lambda count: progress.advance(task, count)


def _download(cache: Path, artifacts: list[Artifact], advance: Callable[[int], None]) -> None:
    from jgo.maven import MavenContext, PythonResolver

    @contextmanager
    def on_file(_name: str, _size: int) -> Iterator[Callable[[int], None]]:
        yield advance

    context = MavenContext(
        resolver=PythonResolver(progress_callback=on_file),
        repo_cache=cache / "maven",
        timeout=HTTP_SECONDS_MAX,
    )

    def fetch(artifact: Artifact) -> None:
        group, name, version, classifier, packaging = artifact.parts()
        context.project(group, name).at_version(version).artifact(classifier, packaging).resolve()

    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        for artifact, done in [(artifact, pool.submit(fetch, artifact)) for artifact in artifacts]:
            try:
                done.result()
            except Exception as error:
                pool.shutdown(cancel_futures=True)
                raise _not_fetched(artifact, error) from error


def _not_fetched(artifact: Artifact, error: Exception) -> Exception:
    import requests

    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return error
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        why = "the Maven repository cannot be reached; the first start needs a network"
    else:
        why = "the Maven repository does not give it"
    return StackError(f"{artifact.coordinate} could not be fetched: {why}.")


def _unpacked(cache: Path, archive: Artifact) -> Path:
    """The archive's folder, unpacked anew when a file of it is missing or cut short."""
    folder = archive.folder(cache)
    if not _is_whole(folder, archive):
        new = folder.with_name(folder.name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        with tarfile.open(archive.path(cache)) as tar:
            tar.extractall(new, filter="data")
        sizes = {str(path.relative_to(new)): path.stat().st_size for path in new.rglob("*") if path.is_file()}
        _write_json(new / ".files.json", {"sha256": archive.sha256, "sizes": sizes})
        shutil.rmtree(folder, ignore_errors=True)
        new.replace(folder)
    return folder


def _is_whole(folder: Path, archive: Artifact) -> bool:
    entry = _read_json(folder / ".files.json")
    if entry.get("sha256") != archive.sha256:
        return False
    try:
        return all((folder / name).stat().st_size == size for name, size in entry["sizes"].items())
    except OSError:
        return False


def _read_json(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_json(path: Path, content: object) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content), "utf-8")
    new.replace(path)
