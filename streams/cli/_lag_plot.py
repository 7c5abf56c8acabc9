"""A chart of lag over time as a PNG, with marks of what was done. Called by `streams lag --plot`; calls matplotlib."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from streams.errors import ConfigError

if TYPE_CHECKING:
    from streams.ops.lag_history import Chart

_INCHES = (10, 5)


def require() -> None:
    """Raises ConfigError if matplotlib is not installed, before anything is measured for it."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ConfigError("a chart needs matplotlib: pip install matplotlib") from error


def plot(path: Path, chart: Chart) -> None:
    """Draw the curves, one colour a group, and the marks as vertical lines. Raises ConfigError."""
    require()
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots()
    for group, points in chart.curves.items():
        axes.plot([_time(at) for at, _ in points], [lag for _, lag in points], label=group)
    for mark in chart.marks:
        said = f"{mark.kind}: {mark.text}"
        axes.axvline(_time(mark.at), color="grey", linestyle=":")
        axes.annotate(said, (_time(mark.at), 1), xycoords=("data", "axes fraction"), rotation=90, va="top")
    locator = AutoDateLocator()
    axes.xaxis_date(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set(xlabel="UTC", ylabel="lag (offsets)", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _time(at: float) -> float:
    from matplotlib.dates import date2num

    return float(date2num(datetime.fromtimestamp(at, UTC)))
