"""The archive of a program's classes, which all stacks of a user share."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from streams.stack.java import Java


def program(home: Path, cache: Path) -> Java:
    """A program that has run once, and listed its only class."""
    (home / "run").mkdir(parents=True)
    (home / "run" / "some.classes").write_text("java/lang/Object id: 0\n")
    return Java("some", home, cache, [], "Some", 64)


def test_two_stacks_that_start_for_the_first_time_at_once_both_have_the_archive(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    stacks = [program(tmp_path / name, cache) for name in ("a", "b", "c")]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(Java.make_archive, stacks))
    (archive,) = cache.glob("archives/*/*.jsa")
    for stack in stacks:
        assert f"-XX:SharedArchiveFile={archive}" in stack.command()
    checked = [*stacks[0].command()[:1], f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-version"]
    assert subprocess.run(checked, check=False, capture_output=True).returncode == 0
    assert not list(cache.glob("archives/*/*.new"))
