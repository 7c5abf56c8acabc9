"""How each number of a group was come by, with the numbers that it was made from. Pure. Called by `streams lag`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from streams.core.flow import Flow, Shape
from streams.core.health import Health
from streams.core.outlook import Outlook
from streams.core.sentences import figure, rate
from streams.core.series import complete, recent
from streams.core.times import duration

_RULES = {
    Health.OK: "none of Burrow's rules finds fault: the lag was 0 at some time, or got smaller in between",
    Health.WARN: "Burrow's rule 5: the position moves, and the lag got smaller from no sample to the next",
    Health.STOP: "Burrow's rule 3: the last commit is longer ago than all commits before it in the samples took",
    Health.STALL: "Burrow's rule 4: the group has members, records wait, and the committed offset is always the same",
    Health.REWIND: "Burrow's rule 2: a committed offset went back",
}


def explanation(seen: Outlook) -> list[str]:
    """One line a number, in the columns' order."""
    parts = chain(_lag(seen), _rates(seen), _parked(seen), _shape(seen), _drain(seen), _health(seen), _size(seen))
    return [f"{name} {said}" for name, said in parts]


def _lag(seen: Outlook) -> Iterator[tuple[str, str]]:
    lag, count = seen.lag, len(seen.lag.partitions)
    if lag.lag_records is None:
        yield "LAG", "unknown: the position or the log of at least one partition is unknown"
    else:
        yield (
            "LAG",
            f"{lag.lag_records:,} offsets: from the commit to the end of the log, added over {count} partitions",
        )
    if lag.age_seconds is None:
        yield "AGE", "unknown: the record at a commit could not be read, or has no time"
    else:
        yield "AGE", f"{duration(lag.age_seconds)}: now less the time of the oldest record at a commit"


def _rates(seen: Outlook) -> Iterator[tuple[str, str]]:
    flow = seen.flow
    if flow is None:
        yield (
            "RATE-IN, RATE-OUT",
            "unknown: fewer than three samples; --measure 10 takes some, and `streams api` records",
        )
        return
    moved = _moved(seen)
    over = f"by the median slope of all pairs of {flow.samples} samples over {duration(flow.seconds)}"
    yield "RATE-IN", f"{rate(flow.rate_in_per_second)} jobs/s, {over}; the ends of the logs moved {moved[0]}"
    yield "RATE-OUT", f"{rate(flow.rate_out_per_second)} jobs/s, likewise; the commits moved {moved[1]}"


def _moved(seen: Outlook) -> tuple[str, str]:
    """By how many offsets and records the ends and the positions moved over the samples."""
    known = complete(recent(seen.samples))
    pairs = [(known[0].places[one], place) for one, place in known[-1].places.items()]
    ends = sum(now.end - then.end for then, now in pairs)
    positions = sum(now.position - then.position for then, now in pairs)
    arrived = sum(now.arrived - then.arrived for then, now in pairs)
    done = sum(now.done - then.done for then, now in pairs)
    return _of_offsets(ends, arrived), _of_offsets(positions, done)


def _of_offsets(offsets: int, records: float) -> str:
    share = f", of which {figure(records / offsets)} are records by what was read of them" if offsets else ""
    return f"{offsets:,} offsets in all samples{share}"


def _parked(seen: Outlook) -> Iterator[tuple[str, str]]:
    if seen.parked is not None:
        yield "PARKED", f"{seen.parked.records:,} rows of readers.parked: they failed and wait, outside of the log"


def _shape(seen: Outlook) -> Iterator[tuple[str, str]]:
    flow = seen.flow
    if flow is None:
        return
    net = flow.rate_in_per_second - flow.rate_out_per_second
    change = f"{_signed(net)} jobs/s make {_signed(net * flow.seconds)} records over {duration(flow.seconds)}"
    if flow.shape is None:
        yield "SHAPE", "not known yet: the last sample stands far above the line of those before"
    elif flow.keeps_up:
        yield "SHAPE", f"flat: what waits, {_records(flow)}, is no more than is done in two seconds"
    elif flow.shape is Shape.FLAT:
        yield "SHAPE", f"flat: {change}, which chance explains"
    else:
        since = "since the peak of the lag, " if flow.shape is Shape.SPIKE_DECAY else ""
        yield "SHAPE", f"{flow.shape}: {since}{change}, which chance does not explain"


def _drain(seen: Outlook) -> Iterator[tuple[str, str]]:
    flow = seen.flow
    if flow is None:
        return
    if seen.drain_seconds is None:
        yield "DRAINS-IN", "never at these rates: in one partition at least, no more is done than comes"
    elif seen.drain_seconds == 0:
        yield "DRAINS-IN", "nothing to drain: it keeps up"
    else:
        rates = f"({rate(flow.rate_out_per_second)} - {rate(flow.rate_in_per_second)})"
        yield (
            "DRAINS-IN",
            f"{duration(seen.drain_seconds)}: {_records(flow)} / {rates} a second, of the slowest partition",
        )


def _health(seen: Outlook) -> Iterator[tuple[str, str]]:
    if seen.health is not None:
        yield "HEALTH", f"{seen.health}, of the worst partition: {_RULES[seen.health]}"


def _size(seen: Outlook) -> Iterator[tuple[str, str]]:
    advice = seen.advice
    if advice is None or not advice.more_workers or advice.seconds_per_job is None:
        return
    short, a_job = rate(advice.shortfall_per_second), figure(advice.seconds_per_job)
    yield "WORKERS", f"{advice.more_workers:,} more: {short} jobs/s short * {a_job} s a job (Little's law)"


def _records(flow: Flow) -> str:
    return f"{round(flow.backlog_records):,} records"


def _signed(number: float) -> str:
    return f"{'-' if number < 0 else '+'}{rate(abs(number))}"
