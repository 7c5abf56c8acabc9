"""What `streams lag` shows: the lag of groups now, with all that is known of them, once or again and again.

Called by `streams lag`; asks the broker (`streams.ops.lag`) and, at the same time, our Postgres
(`streams.ops.lag_facts`). `look` takes the rates from the recorder's samples; `measure` takes samples of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from streams.config import Settings
from streams.core.lag import GroupLag, Reset
from streams.core.outlook import Outlook, outlook
from streams.core.series import Sample
from streams.errors import Unavailable
from streams.ops.lag import LagSampler
from streams.ops.lag_facts import RELAY, Aside, Asked, Facts
from streams.ops.lag_series import LagSeries

MEASURE_SAMPLES = 10  # of one measurement, evenly


class LagWatch:
    """Groups under watch, all if none are named; the relay too, unless others are. Use it in a `with`.

    `seconds_a_job` is what the caller knows of a job's time, for the advice. `fault` is why the last look lacks the
    relay, rates or parked records that Postgres should know of; None if it does not.
    """

    def __init__(
        self,
        config: Settings,
        groups: Sequence[str] = (),
        reset: Reset = "earliest",
        seconds_a_job: float | None = None,
    ) -> None:
        self._config = config
        self._groups = [group for group in groups if group != RELAY]
        self._relay_alone = bool(groups) and not self._groups
        self._seconds_a_job = seconds_a_job
        self._resources = ExitStack()
        self._sampler = self._resources.enter_context(LagSampler(config, reset))
        self._aside = self._resources.enter_context(Aside(config, groups, with_relay=not groups or RELAY in groups))
        self._series: LagSeries | None = None
        self.fault: str | None = None

    def __enter__(self) -> LagWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def look(self) -> list[Outlook]:
        """The groups now, with rates where a recorder is at work. Raises UnknownGroup and Unavailable."""
        asked = self._aside.ask()
        lags = self._sample()
        facts = self._known(asked)
        return [
            outlook(
                lag,
                facts.samples.get(lag.group, ()),
                facts.parked.get(lag.group),
                facts.capacities.get(lag.group),
                self._seconds_a_job,
            )
            for lag in lags
        ] + self._relay_outlook(facts, facts.samples.get(RELAY, ()))

    def measure(self) -> list[Outlook]:
        """The groups now, with a sample taken: rates come with the third. Raises UnknownGroup and Unavailable."""
        asked = self._aside.ask()
        at = time.time()
        lags = self._sample()
        facts = self._known(asked)
        if self._series is None:
            self._series = self._resources.enter_context(LagSeries(self._config))
            self._series.go_on_from(facts.samples, facts.capacities)
        self._series.add([*lags, *([facts.relay.lag] if facts.relay else [])], at)
        seen = [self._series.outlook(lag, facts.parked.get(lag.group), self._seconds_a_job) for lag in lags]
        return seen + self._relay_outlook(facts, self._series.samples(RELAY))

    def measure_for(self, seconds: float) -> list[Outlook]:
        """Take samples for so long, and give what they say at the end. Raises as `measure` does."""
        deadline = time.monotonic() + seconds
        seen = self.measure()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, seconds / MEASURE_SAMPLES))
            seen = self.measure()
        return seen

    def _sample(self) -> list[GroupLag]:
        return [] if self._relay_alone else self._sampler.sample(self._groups)

    def _known(self, asked: Asked) -> Facts:
        """What Postgres says. Raises Unavailable if nothing but the relay was asked for, and that is unknown."""
        facts = asked.facts()
        self.fault = facts.fault
        if self._relay_alone and facts.relay is None:
            raise Unavailable(facts.fault or f"the database {self._config.db_name} has no outbox, so there is no relay")
        return facts

    def _relay_outlook(self, facts: Facts, samples: Sequence[Sample]) -> list[Outlook]:
        if facts.relay is None:
            return []
        return [outlook(facts.relay.lag, samples, slot_bytes=facts.relay.slot_bytes)]
