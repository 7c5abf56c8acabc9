"""Commits on disk: those that a replay replaced, for `undo`, and those that a plan was made from.

Called by `streams.ops.replay`. Below STREAMS_HOME, replay/<cluster>/<group>/ holds one file a replay, the newest being
the next to undo, and the lock that keeps two replays of a group apart.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from streams.config import Settings
from streams.core.groups import Commit, Partition
from streams.core.offsets import Position
from streams.errors import ConfigError, ReplayRefused


class SavedCommit(BaseModel, frozen=True):
    """One partition's commit; without an offset there was none."""

    topic: str
    partition: int
    offset: int | None
    metadata: str | None = None
    leader_epoch: int | None = None


class Snapshot(BaseModel, frozen=True):
    """A group's commits at a time, as JSON on disk."""

    group: str
    cluster: str
    at: datetime
    commits: tuple[SavedCommit, ...]

    @classmethod
    def of(cls, group: str, cluster: str, at: datetime, commits: Mapping[Partition, Commit | None]) -> Snapshot:
        """Take it from what the broker said."""
        rows = (_saved(partition, commit) for partition, commit in sorted(commits.items(), key=lambda item: item[0]))
        return cls(group=group, cluster=cluster, at=at, commits=tuple(rows))

    @classmethod
    def read(cls, path: Path) -> Snapshot:
        """Raises ConfigError when the file is not one of ours."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise ConfigError(f"{path} holds no saved offsets: {error}") from error

    def write(self, path: Path) -> None:
        """Whole or not at all, and on the disk when this returns. Raises ConfigError."""
        try:
            with open(path.with_suffix(".new"), "w", encoding="utf-8") as file:
                file.write(self.model_dump_json(indent=2))
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error

    def before(self) -> dict[Partition, Commit | None]:
        """The commits by partition, None where there was none."""
        return {Partition(one.topic, one.partition): _commit(one) for one in self.commits}


class SavedOffsets:
    """The saved commits of one group of one cluster."""

    def __init__(self, config: Settings, cluster: str, group: str) -> None:
        self._group = group
        self._folder = config.home.resolve() / "replay" / quote(cluster, safe="") / _folder_name(group)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other replays of the group away. Raises ReplayRefused when one runs already."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self._folder / "lock", timeout=0):
                yield
        except Timeout as error:
            raise ReplayRefused(f"another replay of {self._group} is at work; no offset was changed") from error
        except PermissionError as error:
            raise ConfigError(f"{self._folder} cannot be written: {error.strerror}") from error

    def save(self, snapshot: Snapshot) -> Path:
        """Make this the next to undo."""
        path = self._folder / f"{snapshot.at:%Y%m%dT%H%M%S.%fZ}.json"
        snapshot.write(path)
        return path

    def newest(self) -> Path:
        """The next to undo. Raises ReplayRefused when nothing is left."""
        saved = sorted(self._folder.glob("*.json"))
        if not saved:
            raise ReplayRefused(f"nothing to undo: no replay of {self._group} was applied from this home")
        return saved[-1]

    @staticmethod
    def forget(path: Path) -> None:
        """It is undone; the file stays under another name, for people."""
        path.rename(path.with_suffix(".undone"))


def _folder_name(group: str) -> str:
    """Readable and unique, whatever the group's name holds and however long it is."""
    return f"{quote(group, safe='')[:100]}-{hashlib.sha256(group.encode()).hexdigest()[:8]}"


def _saved(partition: Partition, commit: Commit | None) -> SavedCommit:
    if commit is None:
        return SavedCommit(topic=partition.topic, partition=partition.number, offset=None)
    return SavedCommit(
        topic=partition.topic,
        partition=partition.number,
        offset=commit.position,
        metadata=commit.metadata,
        leader_epoch=commit.leader_epoch,
    )


def _commit(saved: SavedCommit) -> Commit | None:
    if saved.offset is None:
        return None
    return Commit(Position(saved.offset), saved.metadata, saved.leader_epoch)
