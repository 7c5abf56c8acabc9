"""`streams lag`: how far groups are behind, where that goes, and what would help; now, measured, or watched.

Calls `streams.ops.lag_watch`, which asks; `streams.core` judges; `streams.cli._lag_show` and `_lag_plot` show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli._numbers import finite
from streams.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from streams.config import Settings
    from streams.core.outlook import Outlook
    from streams.ops.lag_watch import LagWatch

_WATCH_SECONDS = 2.0
_MEASURE_SECONDS = 10.0
_SIZE_MAX = 1e9


class Reset(StrEnum):
    """Kafka's auto.offset.reset."""

    EARLIEST = "earliest"
    LATEST = "latest"


def lag(
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only this group; repeat for several. The relay is one too.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Sample every 2 seconds until Ctrl-C.")] = False,
    measure: Annotated[
        float | None,
        typer.Option(
            "--measure",
            metavar="SECONDS",
            min=1,
            callback=finite,
            help="Sample for so long first, so that rates are known.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; with --watch, one line a sample.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Only the sentences, one a group.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say how each number was come by.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the lag over time.")] = None,
    since: Annotated[str, typer.Option("--since", help="How far back the chart goes: 1h, 2d.")] = "1h",
    size: Annotated[bool, typer.Option("--size", help="Say how many workers a rate needs.")] = False,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", metavar="JOBS", min=0, max=_SIZE_MAX, callback=finite, help="Jobs per second, for --size."
        ),
    ] = None,
    seconds_per_job: Annotated[
        float | None,
        typer.Option(
            "--seconds-per-job",
            metavar="SECONDS",
            min=0,
            max=_SIZE_MAX,
            callback=finite,
            help="How long a job takes one worker.",
        ),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Write samples to Postgres until Ctrl-C, as `streams api` does.")
    ] = False,
    reset: Annotated[
        Reset, typer.Option("--reset", help="Where a group's readers start that have no commit.")
    ] = Reset.EARLIEST,
) -> None:
    """Show the lag of consumer groups: how far behind, how long, what comes and goes, and what would help."""
    from streams.config import settings

    groups = group or []
    if size and rate is not None and seconds_per_job is not None and not groups:
        _size(rate, seconds_per_job, None, as_json)
    elif record:
        _record(settings(), groups)
    else:
        from streams.ops.lag_watch import LagWatch

        with LagWatch(settings(), groups, reset.value, seconds_per_job) as watched:
            if size:
                _size_of(_seen(watched, measure, rates=rate is None or seconds_per_job is None), rate, as_json)
            elif plot is not None:
                if plot.suffix != ".png":
                    raise ConfigError(f"--plot draws a PNG: give it a name that ends in .png, not {plot.name}")
                _plot(settings(), groups, watched, plot, since, measure)
            elif watch:
                _watch_json(watched) if as_json else _watch_table(watched)
            else:
                _print(_seen(watched, measure, rates=explain), as_json, summary, explain)


def _seen(watched: LagWatch, seconds: float | None, rates: bool) -> list[Outlook]:
    """Measured for so long; without a length as it is now, and measured if `rates` are needed that nobody recorded."""
    seen = watched.look() if seconds is None else []
    if seconds is not None or (rates and not all(one.flow for one in seen)):
        seen = watched.measure_for(seconds or _MEASURE_SECONDS)
    _warn(watched)
    return seen


def _warn(watched: LagWatch) -> None:
    """Beside what is shown, that something is missing there."""
    if watched.fault is not None:
        typer.echo(_missing(watched.fault), err=True)


def _missing(fault: str) -> str:
    return f"warning: relay, rates and parked records may be missing: {fault}"


def _print(groups: list[Outlook], as_json: bool, summary: bool, explain: bool) -> None:
    from streams.cli import _lag_show as show
    from streams.core.explain import explanation

    if as_json:
        typer.echo(json.dumps(show.as_json(groups), indent=2))
        return
    typer.echo(show.sentences(groups) if summary else f"{show.table(groups)}\n\n{show.sentences(groups)}")
    for group in groups if explain else ():
        typer.echo("\n".join([f"\n{group.lag.group}", *(f"  {line}" for line in explanation(group))]))


# --------------------------------------------------------------------------------------------------- watched


def _watch_json(watched: LagWatch) -> None:
    from streams.cli._lag_show import as_json

    def print_line() -> None:
        typer.echo(json.dumps(as_json(watched.measure())))
        _warn(watched)

    _watch(print_line)


def _watch_table(watched: LagWatch) -> None:
    from rich.live import Live
    from rich.text import Text

    from streams.cli import _lag_show as show

    def draw() -> None:
        groups = watched.measure()
        missing = [_missing(watched.fault)] if watched.fault else []
        # What does not fit on the screen is cut at the bottom.
        text = "\n\n".join([*missing, show.sparked(groups), show.table(groups)])
        live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)

    with Live(auto_refresh=False) as live:
        _watch(draw)


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


# ----------------------------------------------------------------------------------------------------- sizing


def _size(rate: float, seconds_per_job: float, workers_max: int | None, as_json: bool) -> None:
    from streams.core.sentences import size_sentence
    from streams.core.sizing import workers_for

    said = size_sentence(rate, seconds_per_job, workers_max)
    found = {
        "rate_per_second": rate,
        "seconds_per_job": seconds_per_job,
        "workers": workers_for(rate, seconds_per_job),
        "workers_max": workers_max,
        "sentence": said,
    }
    typer.echo(json.dumps(found, indent=2) if as_json else said)


def _size_of(groups: list[Outlook], rate: float | None, as_json: bool) -> None:
    """The size of one group, of what was given and, where it was not, measured. Raises ConfigError."""
    if len(groups) != 1:
        raise ConfigError("--size needs --rate and --seconds-per-job, or one --group to measure them of")
    (seen,) = groups
    rate = seen.flow.rate_in_per_second if rate is None and seen.flow else rate
    a_job = seen.advice.seconds_per_job if seen.advice else None
    if rate is None:
        raise ConfigError(f"the rate of {seen.lag.group} could not be measured: give --rate")
    if a_job is None:
        raise ConfigError(
            f"how long a job takes {seen.lag.group} is known only while work waits for its workers all the time: "
            "give --seconds-per-job"
        )
    _size(rate, a_job, len(seen.lag.partitions), as_json)


# --------------------------------------------------------------------------------------------- over a long time


def _record(config: Settings, groups: list[str]) -> None:
    from threading import Event

    from streams.ops.lag_recorder import record

    try:
        record(config, Event(), groups)
    except KeyboardInterrupt:
        return


def _plot(
    config: Settings, groups: list[str], watched: LagWatch, path: Path, since: str, measure: float | None
) -> None:
    """Draw what was recorded; where nothing was, or a measurement is asked for, what is measured."""
    from streams.cli import _lag_plot
    from streams.cli._lag_show import lags
    from streams.core.times import parse_length
    from streams.ops.lag_history import Chart, chart

    _lag_plot.require()
    charted = Chart({}) if measure else chart(config, groups, parse_length(since).total_seconds())
    if not charted.curves:
        charted = Chart({one.lag.group: lags(one) for one in watched.measure_for(measure or _MEASURE_SECONDS)})
    _lag_plot.plot(path, charted)
    typer.echo(f"drew the lag of {', '.join(charted.curves)} into {path}")
