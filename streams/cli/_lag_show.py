"""Groups as a table, as lines and as JSON. Called by `streams lag`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from streams.cli._columns import columns
from streams.core.groups import Partition
from streams.core.sentences import rate, sentence
from streams.core.times import duration

if TYPE_CHECKING:
    from streams.core.flow import Flow
    from streams.core.lag import GroupLag, PartitionLag
    from streams.core.outlook import Outlook, Parked, PartitionOutlook

_HEADS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "AGE",
    "RATE-IN",
    "RATE-OUT",
    "PARKED",
    "OLDEST-PARKED",
    "SHAPE",
    "DRAINS-IN",
    "LOST",
    "HEALTH",
    "MEMBER",
    "STATE",
    "NOTE",
)
_LEFT = frozenset({"GROUP", "TOPIC", "SHAPE", "HEALTH", "MEMBER", "STATE", "NOTE"})
_BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 30


def table(groups: Sequence[Outlook]) -> str:
    """One row a partition; a column of which nothing is known is left out."""
    return columns(_HEADS, [line for group in groups for line in _rows(group)], _LEFT)


def sentences(groups: Sequence[Outlook]) -> str:
    """One sentence a group."""
    return "\n".join(map(sentence, groups)) or "The cluster has no consumer groups."


def sparked(groups: Sequence[Outlook]) -> str:
    """The same, each before the picture of its lag over the samples."""
    lines = [(sparkline([lag for _, lag in lags(group)[-SPARKS:]]), sentence(group)) for group in groups]
    return "\n".join(f"{picture:<{SPARKS}}  {said}" for picture, said in lines) or sentences(groups)


def lags(group: Outlook) -> list[tuple[float, int]]:
    """The lag in offsets at the time of each sample, in seconds since the epoch."""
    return [(sample.at, sum(place.lag for place in sample.places.values())) for sample in group.samples]


def sparkline(values: Sequence[float]) -> str:
    """Values as blocks, the highest of which is full; an idle line lies on the ground."""
    top = max(values, default=0) or 1
    return "".join(_BLOCKS[round(value / top * (len(_BLOCKS) - 1))] for value in values)


def as_json(groups: Iterable[Outlook]) -> list[dict[str, Any]]:
    """All fields, null for unknown; without the marks, words for people each of which follows from the figures."""
    return [_group(group) for group in groups]


def _group(group: Outlook) -> dict[str, Any]:
    rows = [
        _fields(row)
        | _judged(group.of(_key(row)), _drain_of(group.of(_key(row)).flow))
        | {"member": _member(group.lag, row) or None}
        for row in group.lag.partitions
    ]
    relay = {} if group.slot_bytes is None else {"slot_bytes": group.slot_bytes}
    judged = _judged(group, group.drain_seconds) | {"sentence": sentence(group)}
    return _fields(group.lag) | judged | relay | {"partitions": rows}


def _judged(seen: Outlook | PartitionOutlook, drain_seconds: float | None) -> dict[str, Any]:
    flow, parked = seen.flow, seen.parked
    return {
        "health": seen.health,
        "shape": flow.shape if flow else None,
        "rate_in_per_second": _rounded(flow.rate_in_per_second if flow else None),
        "rate_out_per_second": _rounded(flow.rate_out_per_second if flow else None),
        "backlog_records": _rounded(flow.backlog_records if flow else None),
        "drain_seconds": _rounded(drain_seconds),
        "parked_records": parked.records if parked else None,
        "oldest_parked_seconds": _rounded(parked.oldest_seconds if parked else None),
    }


def _fields(row: GroupLag | PartitionLag) -> dict[str, Any]:
    left_out = ("marks", "partitions", "owners")
    return {field.name: getattr(row, field.name) for field in fields(row) if field.name not in left_out}


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _rows(group: Outlook) -> list[tuple[str, ...]]:
    lag = group.lag
    if not lag.partitions:
        unknown = ("-", "-", "-", "-", "?", "?", "", "", "", "", "", "", "", "", "")
        return [(lag.group, *unknown, lag.state, "no commit and no assignment seen")]
    return [
        (lag.group, *_cells(row, group.of(_key(row))), _member(lag, row), lag.state, _note(group, row))
        for row in lag.partitions
    ]


def _cells(row: PartitionLag, seen: PartitionOutlook) -> tuple[str, ...]:
    return (
        row.topic,
        str(row.partition),
        "-" if row.committed is None else str(row.committed),
        _figure(row.log_end),
        _figure(row.lag_records),
        duration(row.age_seconds),
        *_rates(seen.flow),
        *_parked(seen.parked),
        "" if seen.flow is None else str(seen.flow.shape or "?"),
        _drains(seen.flow),
        str(row.lost_records or ""),
        str(seen.health or ""),
    )


def _rates(flow: Flow | None) -> tuple[str, str]:
    return (f"{rate(flow.rate_in_per_second)}/s", f"{rate(flow.rate_out_per_second)}/s") if flow else ("", "")


def _parked(parked: Parked | None) -> tuple[str, str]:
    if parked is None:
        return "", ""
    return str(parked.records), duration(parked.oldest_seconds) if parked.records else ""


def _drains(flow: Flow | None) -> str:
    drain = _drain_of(flow)
    if flow is None or drain == 0 or flow.shape is None:
        return ""
    return "never" if drain is None else duration(drain)


def _drain_of(flow: Flow | None) -> float | None:
    return flow.drain_seconds if flow else None


def _note(group: Outlook, row: PartitionLag) -> str:
    notes = [str(mark) for mark in row.marks]
    if group.slot_bytes is not None:
        notes.append(f"slot {group.slot_bytes:,} bytes behind")
    return ", ".join(notes)


def _member(lag: GroupLag, row: PartitionLag) -> str:
    return str(lag.owners.get(_key(row), ""))


def _key(row: PartitionLag) -> Partition:
    return Partition(row.topic, row.partition)


def _figure(number: int | None) -> str:
    return "?" if number is None else str(number)
