"""Move a group's committed offsets: plan, apply, undo. Works for any group of any cluster.

Called by `streams replay`; lets `streams.core.replay` decide, asks `streams.kafka.admin`, reads and writes commits
through `streams.kafka.exact_offsets`, keeps what it replaces in `streams.ops.saved_offsets`. The broker itself refuses
a change while the group has members; members that only assign themselves partitions are listed nowhere, so commits are
watched for a while first.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from streams.config import Settings
from streams.core import replay as core
from streams.core.groups import Cluster, Commit, Group, Head, Log, Partition, nearest
from streams.core.offsets import Position
from streams.core.replay import Move, Plan
from streams.errors import ConfigError, ReplayRefused, StackError, StreamsError, UnknownGroup
from streams.kafka.admin import GroupsAdmin
from streams.kafka.exact_offsets import ExactOffsets
from streams.kafka.heads import Heads
from streams.ops.lag_history import mark
from streams.ops.saved_offsets import SavedOffsets, Snapshot

# An assign-only member commits every 5 s by default (auto.commit.interval.ms); one that commits less often is not seen.
WATCH_SECONDS = 5.0
_WATCH_EVERY_SECONDS = 0.5
_HEADS_SECONDS_MAX = 3.0


class Replays:
    """Plans, applies and undoes over one connection."""

    def __init__(self, config: Settings, watch_seconds: float = WATCH_SECONDS) -> None:
        self._config = config
        self._admin = GroupsAdmin(config)
        self._offsets = ExactOffsets(config)
        self._watch_seconds = watch_seconds

    def plan(self, group: str, to: str, topics: Sequence[str] = ()) -> Plan:
        """What moving the group to `to` would do. Raises UnknownGroup, ReplayRefused, ConfigError, Unavailable."""
        target = core.parse_target(to, datetime.now(UTC))
        described = self._known(group)
        commits = self._offsets.read(group)
        cluster = self._admin.cluster()
        partitions = core.parse_topics(topics, cluster) if topics else cluster.read_by(commits, described)
        logs = self._logs(partitions)
        since = self._since(partitions, target.value) if target.kind == "time" else {}
        moves = core.resolve(target, partitions, commits, logs, since)
        if not moves:
            raise ReplayRefused(f"{group} has no commit to move; name topics with --topic and a place with --to")
        left_out = [str(one) for one in sorted(partitions - {move.partition for move in moves})]
        notes = [target.note, f"left alone, having no commit to shift: {', '.join(left_out)}" if left_out else ""]
        return self._plan(described, cluster, moves, commits, notes)

    def read_plan(self, group: str, path: Path) -> Plan:
        """A plan from a file: ours, Kafka's export, or written by hand. Raises as `plan` does."""
        targets = core.from_csv(_read(path), group)
        described = self._known(group)
        commits = self._offsets.read(group)
        cluster = self._admin.cluster()
        core.check_known(targets, cluster)
        moves = core.exactly(targets, commits, self._logs(targets))
        beside = _beside(path)
        if not beside.exists():
            note = f"{path} does not say what the offsets were when it was made, so that is not compared"
            return replace(self._plan(described, cluster, moves, commits, [note]), expected=None)
        made = Snapshot.read(beside)
        if (made.group, made.cluster) != (group, cluster.id):
            raise ReplayRefused(
                f"{path} was made for group {made.group} of cluster {made.cluster}, not for {group} here"
            )
        return replace(self._plan(described, cluster, moves, commits, []), expected=made.before())

    def write_plan(self, plan: Plan, path: Path) -> None:
        """The CSV that Kafka's tool reads, and beside it what the offsets were. Raises ConfigError."""
        now = {move.partition: move.before for move in plan.moves}
        try:
            path.write_text(core.to_csv(plan.moves), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
        Snapshot.of(plan.group, plan.cluster, datetime.now(UTC), now).write(_beside(path))

    def apply(self, plan: Plan) -> None:
        """Commit what the plan says, after a watch; what was committed before is saved for `undo`.

        Raises ReplayRefused, with nothing changed, when the group lives, has moved since the plan, or an offset is not
        in the log.
        """
        saved = SavedOffsets(self._config, plan.cluster, plan.group)
        targets = {move.partition: move.to for move in plan.moves}
        with saved.locked():
            self._check_bounds(targets)
            current = self._at_rest(plan.group, plan.expected or {})
            now = datetime.now(UTC)
            before = {partition: current.get(partition) for partition in targets}
            path = saved.save(Snapshot.of(plan.group, plan.cluster, now, before))
            # No metadata: it makes a reader of ours begin a new pass, so that what is read again is computed again, and
            # no client fails over a text that it did not write.
            commits = {partition: Commit(to, "") for partition, to in targets.items()}
            try:
                self._offsets.write(plan.group, commits)
            except StreamsError:
                if self._offsets.read(plan.group) == current:
                    path.unlink()  # nothing was changed, so there is nothing to undo
                raise
            self._verify(plan.group, commits)
        mark(self._config, "replay", plan.group, f"{len(targets)} partitions moved")

    def undo_plan(self, group: str) -> Plan:
        """What `undo` would do: take back the newest replay of the group. Raises as `plan` does."""
        cluster = self._admin.cluster()
        before = Snapshot.read(SavedOffsets(self._config, cluster.id, group).newest()).before()
        core.check_known(before, cluster)
        described = self._admin.describe([group]).get(group, Group(group, "Unknown"))
        commits = self._offsets.read(group)
        targets = _positions(before)
        moves = core.exactly(targets, commits, self._logs(targets))
        removed = ", ".join(str(partition) for partition, commit in sorted(before.items()) if commit is None)
        notes = [f"had no commit before, so the one that is there now is removed: {removed}" if removed else ""]
        return self._plan(described, cluster, moves, commits, notes)

    def undo(self, group: str) -> None:
        """Restore exactly what the newest replay of the group replaced, metadata included; the one before it is next.

        Refuses as `apply` does, but takes the group from wherever it went since. An offset that retention took
        meanwhile is restored too: it is what was.
        """
        saved = SavedOffsets(self._config, self._admin.cluster().id, group)
        with saved.locked():
            path = saved.newest()
            before = Snapshot.read(path).before()
            self._check_bounds(_positions(before), undo=True)
            current = self._at_rest(group, {})
            self._offsets.write(group, {one: commit for one, commit in before.items() if commit is not None})
            if added := [one for one, commit in before.items() if commit is None and one in current]:
                self._offsets.remove(group, added)
            self._verify(group, before)
            saved.forget(path)
        mark(self._config, "replay", group, "undone")

    def _known(self, group: str) -> Group:
        names = self._admin.names()
        if group not in names:
            raise UnknownGroup(f"there is no consumer group {group}; {nearest(group, names)}")
        return self._admin.describe([group]).get(group, Group(group, "Unknown"))

    def _logs(self, partitions: Iterable[Partition]) -> dict[Partition, Log]:
        wanted = set(partitions)
        logs = self._admin.logs(wanted)
        check_all(wanted, logs, "where it starts and ends")
        return logs

    def _since(self, partitions: set[Partition], timestamp_ms: int) -> dict[Partition, Position | None]:
        found = self._admin.first_since(partitions, timestamp_ms)
        check_all(partitions, found, "which record is the first since then")
        return found

    def _plan(
        self,
        described: Group,
        cluster: Cluster,
        moves: list[Move],
        commits: Mapping[Partition, Commit],
        notes: list[str],
    ) -> Plan:
        if described.members:
            named = core.named_members(described)
            notes = [*notes, f"{described.name} has members ({named}): nothing can be applied until they have stopped"]
        expected = {move.partition: commits.get(move.partition) for move in moves}
        return Plan(described.name, cluster.id, self._with_times(moves), expected, tuple(filter(None, notes)))

    def _with_times(self, moves: list[Move]) -> tuple[Move, ...]:
        places = {(move.partition, move.to) for move in moves if move.span}
        with Heads(self._config, "read_committed") as heads:
            found = heads.read(places, _HEADS_SECONDS_MAX)
        return tuple(replace(move, oldest=_time(found.get((move.partition, move.to)))) for move in moves)

    def _at_rest(self, group: str, expected: Mapping[Partition, Commit | None]) -> dict[Partition, Commit]:
        """The group's commits, when it has no members and they stay as they are for a while."""
        deadline = time.monotonic() + self._watch_seconds
        first = self._without_members(group)
        if faults := core.changes(expected, first):
            raise ReplayRefused(f"{group} has moved since the plan was made: {core.sentence(faults)}")
        while time.monotonic() < deadline:
            time.sleep(min(_WATCH_EVERY_SECONDS, self._watch_seconds))
            now = self._without_members(group)
            if now != first:
                faults = core.changes({**dict.fromkeys(now), **first}, now)
                raise ReplayRefused(f"someone commits for {group}, listed as a member or not: {core.sentence(faults)}")
        return first

    def _without_members(self, group: str) -> dict[Partition, Commit]:
        core.check_without_members(group, self._admin.describe([group]).get(group))
        return self._offsets.read(group)

    def _check_bounds(self, targets: Mapping[Partition, Position], undo: bool = False) -> None:
        core.check_known(targets, self._admin.cluster())
        logs = self._logs(targets)
        starts = {partition: max(to, logs[partition].start) if undo else to for partition, to in targets.items()}
        if faults := core.out_of_bounds(starts, logs):
            raise ReplayRefused(core.sentence(faults))

    def _verify(self, group: str, wanted: Mapping[Partition, Commit | None]) -> None:
        found = self._offsets.read(group)
        wrong = [str(one) for one, commit in wanted.items() if _said(found.get(one)) != _said(commit)]
        if wrong:
            raise StackError(f"the broker took the offsets of {group}, but reads others back of {core.sentence(wrong)}")


def undo_command(group: str) -> str:
    """What to type to take a replay back."""
    return f"streams replay undo {shlex.quote(group)}"


def check_all(partitions: set[Partition], answers: Mapping[Partition, object], what: str) -> None:
    """Raises ReplayRefused for a partition of which the broker did not answer."""
    if silent := sorted(partitions - answers.keys()):
        raise ReplayRefused(f"the broker does not say of {silent[0]} {what}")


def _positions(commits: Mapping[Partition, Commit | None]) -> dict[Partition, Position]:
    return {partition: commit.position for partition, commit in commits.items() if commit is not None}


def _said(commit: Commit | None) -> tuple[int, str] | None:
    """What every broker gives back; some drop leader epochs, and take no metadata for empty metadata."""
    return None if commit is None else (commit.position, commit.metadata or "")


def _time(head: Head | None) -> datetime | None:
    if head is None or head.timestamp_ms is None:
        return None
    return datetime.fromtimestamp(head.timestamp_ms / 1000, UTC)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the plan {path} cannot be read: {error}") from error
