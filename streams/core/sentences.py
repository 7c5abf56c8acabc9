"""One plain sentence about a group. Pure. Called by `streams lag` and whoever else shows an outlook."""

from __future__ import annotations

from streams.core.flow import Flow, Shape
from streams.core.health import Health
from streams.core.outlook import Outlook
from streams.core.sizing import Advice, workers_for
from streams.core.times import duration


def sentence(seen: Outlook) -> str:
    """What a person should know of the group, and do; without rates no more than how far it is behind."""
    return f"{seen.lag.group}: {_said(seen)}{_parked(seen)}"


def size_sentence(rate_per_second: float, seconds_a_job: float, workers_max: int | None = None) -> str:
    """Little's law with its numbers, and the limit that partitions set."""
    wanted = workers_for(rate_per_second, seconds_a_job)
    said = f"{rate(rate_per_second)} jobs/s at {figure(seconds_a_job)} s a job keep {_workers(wanted)} busy"
    if workers_max is not None and wanted > workers_max:
        said += f", but {_partitions(workers_max)} let only {workers_max} work at once: more partitions are needed"
    return said


def rate(per_second: float) -> str:
    """A rate as people say it: whole above ten, else two figures."""
    return f"{per_second:,.0f}" if per_second >= 10 else figure(per_second)


def figure(number: float) -> str:
    """Two significant figures, without an exponent or idle zeros; a whole number as it is."""
    if number == int(number):
        return f"{int(number):,}"
    text = f"{number:,.1f}" if number >= 1 else f"{number:.{_decimals(number)}f}"
    return text.rstrip("0").rstrip(".")


def _decimals(number: float) -> int:
    """How many decimals show two significant figures of a number below one; six at most."""
    return next((n + 1 for n in range(1, 6) if number >= 10.0**-n), 6)


def _said(seen: Outlook) -> str:
    if seen.health in (Health.STOP, Health.STALL):
        return f"{seen.health}, {_standing_still(seen)}"
    if seen.flow is None:
        return _behind(seen)
    said = _by_shape(seen, seen.flow)
    return f"{Health.REWIND}, it was set back; {said}" if seen.health is Health.REWIND else said


def _behind(seen: Outlook) -> str:
    lag = seen.lag
    if lag.lag_records == 0 and lag.age_seconds == 0:
        return "caught up"
    return f"lag {'?' if lag.lag_records is None else lag.lag_records}, the oldest waits {duration(lag.age_seconds)}"


def _standing_still(seen: Outlook) -> str:
    """A group of which at least one partition does not go on."""
    ill = [one for one, each in seen.partitions.items() if each.health is seen.health]
    where = "" if len(ill) == len(seen.partitions) else f" in {ill[0]}" + (" and others" if len(ill) > 1 else "")
    if seen.health is Health.STALL:
        why = f"{_have(seen.lag.members)} and nothing gets done{where}"
    else:
        why = f"nobody reads{where}" if seen.lag.members == 0 else f"nothing is committed any more{where}"
    if seen.flow is None:
        return f"{why}; {_behind(seen)}"
    coming = f"{rate(seen.flow.rate_in_per_second)} jobs/s come" if seen.flow.rate_in_per_second else "nothing comes"
    return f"{why}; {_jobs(seen.flow.backlog_records)} and {coming}"


def _by_shape(seen: Outlook, flow: Flow) -> str:
    if flow.shape is Shape.RAMP:
        return f"ramp, falls {rate(flow.shortfall_per_second)} jobs/s short{_advised(seen.advice)}"
    if flow.shape is Shape.SPIKE_DECAY:
        return f"spike-decay, {_jobs(flow.backlog_records)}, {_draining(seen, flow)}"
    if flow.shape is Shape.FLAT:
        return f"flat, {_steady(seen, flow)}"
    return f"{_jobs(flow.backlog_records)}, it is too early to say how it goes on"


def _draining(seen: Outlook, flow: Flow) -> str:
    rates = f"{rate(flow.rate_out_per_second)} jobs/s are done and {rate(flow.rate_in_per_second)} come"
    return f"done in {duration(seen.drain_seconds)}: {rates}"


def _steady(seen: Outlook, flow: Flow) -> str:
    if not flow.keeps_up:
        return f"{_jobs(flow.backlog_records)} and are not getting fewer: {rate(flow.rate_in_per_second)} jobs/s come"
    if flow.rate_in_per_second == 0:
        return "caught up, nothing comes"
    return f"keeps up with {rate(flow.rate_in_per_second)} jobs/s{_lagging_partition(seen)}"


def _lagging_partition(seen: Outlook) -> str:
    """That one partition never gets through, whatever the sum over all says."""
    for partition, each in seen.partitions.items() if seen.drain_seconds is None else ():
        if each.flow is not None and each.flow.shape is Shape.RAMP:
            return f", but {partition} falls {rate(each.flow.shortfall_per_second)} jobs/s short{_advised(seen.advice)}"
    return ""


def _advised(advice: Advice | None) -> str:
    """What would help, after what falls short."""
    if advice is None:
        return ""
    if advice.hot is not None:
        hot = advice.hot
        return (
            f"; {hot.partition} alone gets {rate(hot.rate_in_per_second)} jobs/s and a worker does "
            f"{rate(hot.worker_per_second)}: more workers cannot help, a key of it is too hot"
        )
    if advice.shared is not None:
        few, many = advice.shared, advice.shared
        return (
            f"; {_workers(few.few)} did {rate(few.few_per_second)} jobs/s and {many.many} do "
            f"{rate(many.many_per_second)}: more workers cannot help, what they write to is the limit"
        )
    if not advice.more_workers or advice.seconds_per_job is None:
        return ""
    more = f"{advice.more_workers:,} more worker{'s' * (advice.more_workers != 1)}"
    return f"; {more} at {figure(advice.seconds_per_job)} s a job{_capped(advice)}"


def _capped(advice: Advice) -> str:
    room = advice.workers_max - (advice.workers or 0)
    if advice.more_workers is None or advice.more_workers <= room:
        return ""
    more = f"only {room} more" if room > 0 else "no more"
    return f", but {_partitions(advice.workers_max)} let {more} work: more partitions are needed"


def _parked(seen: Outlook) -> str:
    if not seen.parked or not seen.parked.records:
        return ""
    return f"; {seen.parked.records:,} parked, the oldest for {duration(seen.parked.oldest_seconds)}"


def _jobs(count: float) -> str:
    number = round(count)
    return "1 job waits" if number == 1 else f"{number:,} jobs wait"


def _have(members: int | None) -> str:
    return "it has members" if not members else f"it has {_workers(members)}"


def _workers(count: int) -> str:
    return f"{count:,} worker{'s' * (count != 1)}"


def _partitions(count: int) -> str:
    return f"{count:,} partition{'s' * (count != 1)}"
