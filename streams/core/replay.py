"""What a replay would do to a group's offsets, and why it may not. Pure: the time is an argument.

Called by `streams.ops.replay`, which asks the broker and writes. A target is resolved against the log's bounds and, for
a time, against the first record at or after it; record times are not in order, so a time is a start, not a filter.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from streams.core.groups import Cluster, Commit, Group, Log, Partition, nearest
from streams.core.offsets import Position
from streams.errors import ConfigError, ReplayRefused

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LENGTH = re.compile(r"(?:\d+[smhdw])+")
_NAMED_MAX = 5  # faults that one sentence names; the rest is counted

Commits = Mapping[Partition, Commit]


@dataclass(frozen=True, slots=True)
class Target:
    """Where to go: `value` is milliseconds since the epoch, an offset, or the offsets to shift by."""

    kind: Literal["earliest", "latest", "time", "offset", "shift"]
    value: int = 0
    note: str = ""


_ENDS = {"earliest": Target("earliest"), "latest": Target("latest")}
_FORMS = "earliest, latest, a length of time (2d, 90m), a time with its zone (2026-11-27T00:00Z), offset:N"


@dataclass(frozen=True, slots=True)
class Move:
    """One partition of a plan: from `before` (None without a commit) to `to`.

    `span` counts the offsets from `to` to the log's end, control records included; `taken` those that were asked for
    and that retention has removed; `oldest` is the time of the first record to be read, None if unknown or none.
    """

    partition: Partition
    before: Commit | None
    to: Position
    span: int
    taken: int = 0
    oldest: datetime | None = None

    @property
    def skipped(self) -> int:
        """Offsets that the group has not read and will not read."""
        return max(0, self.to - self.before.position) if self.before else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done to a group. `expected` is what its commits were when the plan was made, if that is known."""

    group: str
    cluster: str
    moves: tuple[Move, ...]
    expected: Mapping[Partition, Commit | None] | None
    notes: tuple[str, ...] = ()


def parse_target(text: str, now: datetime, option: str = "--to", *, has_commits: bool = True) -> Target:
    """Read `--to`, or another option of its form. Raises ConfigError that says what is understood.

    A shift is of commits, so it is not offered where there are none (and refused later: streams/core/bounded.py).
    """
    if text in _ENDS:
        return _ENDS[text]
    if match := re.fullmatch(r"offset:(\d+)", text):
        return Target("offset", int(match[1]))
    if match := re.fullmatch(r"shift:([+-]?\d+)", text):
        return Target("shift", int(match[1]))
    if _LENGTH.fullmatch(text):
        seconds = sum(int(count) * _UNITS[unit] for count, unit in re.findall(r"(\d+)([smhdw])", text))
        return _at(_milliseconds(now) - seconds * 1000)
    return _parse_time(text, now, f"{option} is {_FORMS}{' or shift:-N' if has_commits else ''}; not {text}")


def parse_topics(given: Iterable[str], cluster: Cluster) -> set[Partition]:
    """Read `--topic t` and `--topic t:0,1`. Raises ReplayRefused for what does not exist, ConfigError for the rest."""
    chosen: set[Partition] = set()
    for text in given:
        topic, colon, numbers = text.partition(":")
        if colon and not re.fullmatch(r"\d+(,\d+)*", numbers):
            raise ConfigError(f"--topic is a topic, or topic:0,1 for some of its partitions; not {text}")
        named = {Partition(topic, int(number)) for number in numbers.split(",")} if colon else None
        check_known(named or [Partition(topic, 0)], cluster)
        chosen |= named or set(cluster.partitions(topic))
    return chosen


def check_known(partitions: Iterable[Partition], cluster: Cluster) -> None:
    """Raises ReplayRefused for a topic or partition that the cluster does not have, with the nearest names."""
    for topic, number in sorted(partitions):
        count = cluster.topics.get(topic)
        if count is None:
            raise ReplayRefused(f"there is no topic {topic}; {nearest(topic, cluster.topics)}")
        if number >= count:
            raise ReplayRefused(f"topic {topic} has no partition {number}; its partitions are 0 to {count - 1}")


def resolve(
    target: Target,
    partitions: Iterable[Partition],
    commits: Commits,
    logs: Mapping[Partition, Log],
    since: Mapping[Partition, Position | None],
) -> list[Move]:
    """The moves to the target, in order; `since` is asked for a time only.

    Left out: partitions without a commit, when the target is a shift of it.
    """
    chosen = [one for one in sorted(partitions) if target.kind != "shift" or one in commits]
    wanted = {one: _wanted(target, one, commits, logs[one], since) for one in chosen}
    moves = exactly(wanted, commits, logs)
    return moves if target.kind == "offset" else [_from_the_start(move, logs[move.partition]) for move in moves]


def exactly(targets: Mapping[Partition, int], commits: Commits, logs: Mapping[Partition, Log]) -> list[Move]:
    """The moves to given positions, as a file or an undo names them."""
    return [
        Move(partition, commits.get(partition), Position(to), _span(to, logs[partition]), _taken(to, logs[partition]))
        for partition, to in sorted(targets.items())
    ]


def out_of_bounds(targets: Mapping[Partition, Position], logs: Mapping[Partition, Log]) -> list[str]:
    """Why these positions may not be committed: a reader would find no record there, and jump elsewhere."""
    faults = []
    for partition, to in sorted(targets.items()):
        log = logs[partition]
        if to > log.high:
            faults.append(f"{partition} has no offset {to}: its log ends at {log.high}")
        elif to < log.start:
            faults.append(f"{partition} has no offset {to} any more: its log starts at {log.start}")
    return faults


def changes(expected: Mapping[Partition, Commit | None], current: Commits) -> list[str]:
    """Where the committed offsets differ from what was expected."""
    return [
        f"{partition} was at {_said(commit)} and is at {_said(current.get(partition))}"
        for partition, commit in sorted(expected.items())
        if _said(commit) != _said(current.get(partition))
    ]


def sentence(faults: list[str]) -> str:
    """Faults in one sentence, the first few by name."""
    rest = len(faults) - _NAMED_MAX
    return "; ".join(faults[:_NAMED_MAX]) + (f"; and {rest} more" if rest > 0 else "")


def check_without_members(name: str, group: Group | None, hint: str = "") -> None:
    """Raises ReplayRefused if a group has members, with their names and the hint, or if the broker does not say."""
    if group is None:
        raise ReplayRefused(f"the broker does not say whether {name} has members")
    if group.members:
        raise ReplayRefused(f"{name} has members ({named_members(group)}): stop them first{hint}")


def named_members(group: Group) -> str:
    """Who is in the group, in one sentence."""
    return sentence(sorted(map(str, group.members)))


def to_csv(moves: Iterable[Move]) -> str:
    """The plan as Kafka's own tool exports one group's: topic,partition,offset without a head."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([*move.partition, move.to] for move in moves)
    return out.getvalue()


def from_csv(text: str, group: str) -> dict[Partition, Position]:
    """Read a plan of three columns, or of four with the group first (Kafka's export of several groups).

    Rows of other groups are left out. Raises ConfigError that names the line.
    """
    found: dict[Partition, Position] = {}
    for line, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row or (len(row) == 4 and row[0] != group):
            continue
        partition, position = _parse_row(row[-3:], line)
        if partition in found:
            raise ConfigError(f"line {line} of the plan names {partition} a second time")
        found[partition] = position
    if not found:
        raise ConfigError(f"the plan has no row for {group}")
    return found


def _parse_row(row: list[str], line: int) -> tuple[Partition, Position]:
    if len(row) != 3 or not all(number.isascii() and number.isdecimal() for number in row[1:]):
        raise ConfigError(f"line {line} of the plan is not topic,partition,offset: {','.join(row)}")
    return Partition(row[0], int(row[1])), Position(int(row[2]))


def _parse_time(text: str, now: datetime, refusal: str) -> Target:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(refusal) from error
    if time.tzinfo is None:
        raise ConfigError(f"{text} has no time zone: write {text}Z for UTC, or add an offset such as +01:00")
    if time > now:
        return Target("latest", note=f"{text} is in the future, so the target is the end of the log")
    return _at(_milliseconds(time))


def _at(milliseconds: int) -> Target:
    # The broker reads a negative time as a name for an end of the log.
    return Target("time", milliseconds) if milliseconds > 0 else Target("earliest")


def _milliseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _wanted(
    target: Target,
    partition: Partition,
    commits: Commits,
    log: Log,
    since: Mapping[Partition, Position | None],
) -> int:
    """The position that was asked for, which the log may not have any more. All from the start means from offset 0."""
    if target.kind == "latest":
        return log.end
    if target.kind == "offset":
        return target.value
    if target.kind == "shift":
        return max(0, commits[partition].position + target.value)
    first = since[partition] if target.kind == "time" else log.start
    if first is None:
        return log.end
    # At the log's start, retention may have taken more of what was asked for.
    return 0 if first == log.start else first


def _from_the_start(move: Move, log: Log) -> Move:
    """Of what was asked for, the part that the log still has."""
    return replace(move, to=max(move.to, log.start))


def _span(to: int, log: Log) -> int:
    return max(0, log.end - max(to, log.start))


def _taken(to: int, log: Log) -> int:
    return max(0, log.start - to)


def _said(commit: Commit | None) -> str:
    return "no commit" if commit is None else str(commit.position)
