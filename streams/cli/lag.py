"""`streams lag`: how far groups are behind, now or watched. Calls `streams.ops.lag`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli._columns import columns, duration
from streams.errors import Unavailable

if TYPE_CHECKING:
    from streams.core.lag import GroupLag, PartitionLag

_HEADS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "AGE", "LOST", "STATE", "NOTE")
_LEFT = frozenset({"GROUP", "TOPIC", "STATE", "NOTE"})
_WATCH_SECONDS = 2.0


class Reset(StrEnum):
    """Kafka's auto.offset.reset."""

    EARLIEST = "earliest"
    LATEST = "latest"


def lag(
    group: Annotated[list[str] | None, typer.Option("--group", help="Only this group; repeat for several.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Sample every 2 seconds until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; with --watch, one line a sample.")] = False,
    reset: Annotated[
        Reset, typer.Option("--reset", help="Where a group's readers start that have no commit.")
    ] = Reset.EARLIEST,
) -> None:
    """Show the lag of consumer groups: offsets behind the log's end, and the age of the oldest record that waits."""
    from streams.config import settings
    from streams.ops.lag import LagSampler

    with LagSampler(settings(), reset.value) as sampler:
        if not watch:
            groups = sampler.sample(group or ())
            typer.echo(json.dumps(_json(groups), indent=2) if as_json else f"{_table(groups)}\n\n{_totals(groups)}")
        elif as_json:
            _watch(lambda: typer.echo(json.dumps(_json(sampler.sample(group or ())))))
        else:
            _watch_table(lambda: sampler.sample(group or ()))


def _watch_table(sample: Callable[[], list[GroupLag]]) -> None:
    from rich.live import Live
    from rich.text import Text

    def show() -> None:
        groups = sample()
        text = f"{_totals(groups)}\n\n{_table(groups)}"  # what does not fit on the screen is cut at the bottom
        live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)

    with Live(auto_refresh=False) as live:
        _watch(show)


def _watch(show: Callable[[], None]) -> None:
    """Show again and again until Ctrl-C; a broker that is away for a while is said, and waited for."""
    try:
        while True:
            try:
                show()
            except Unavailable as error:
                typer.echo(f"error: {error}", err=True)
            time.sleep(_WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def _json(groups: list[GroupLag]) -> list[dict[str, Any]]:
    return [_fields(group) | {"partitions": [_fields(row) for row in group.partitions]} for group in groups]


def _fields(row: GroupLag | PartitionLag) -> dict[str, Any]:
    """All but the marks: words for people, each of which follows from the figures."""
    return {field.name: getattr(row, field.name) for field in fields(row) if field.name != "marks"}


def _table(groups: list[GroupLag]) -> str:
    return columns(_HEADS, [line for group in groups for line in _rows(group)], _LEFT)


def _totals(groups: list[GroupLag]) -> str:
    return "\n".join(f"{one.group}: {_total(one)}" for one in groups) or "The cluster has no consumer groups."


def _total(group: GroupLag) -> str:
    if group.lag_records == 0 and group.age_seconds == 0:
        return "caught up"
    return f"lag {_figure(group.lag_records)}, the oldest waits {duration(group.age_seconds)}"


def _rows(group: GroupLag) -> list[tuple[str, ...]]:
    if not group.partitions:
        note = "no commit and no assignment seen"
        return [(group.group, "-", "-", "-", "-", "?", "?", "", group.state, note)]
    return [(group.group, *_cells(row), group.state, ", ".join(row.marks)) for row in group.partitions]


def _cells(row: PartitionLag) -> tuple[str, ...]:
    return (
        row.topic,
        str(row.partition),
        "-" if row.committed is None else str(row.committed),
        _figure(row.log_end),
        _figure(row.lag_records),
        duration(row.age_seconds),
        str(row.lost_records or ""),
    )


def _figure(number: int | None) -> str:
    return "?" if number is None else str(number)
