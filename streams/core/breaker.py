"""The circuit breaker: tells an outage of what handlers depend on from a record that is at fault. Pure.

An outage is not poison: it must burn no attempts. The breaker opens when at least 80 % of the last 20 results, over at
least 10 lanes, ask to be tried later, and so do the last first attempts: some poisoned keys that fail again and again
may make up most of the results, but then what is new goes well. While it is open a probe a second goes through, each of
another lane, and the first success closes it. Called by the runtime's dispatch; times are in monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

RESULTS = 20
LANES_MIN = 10
# Sooner than the breaker can know, so that little is counted before it does; a key or two alone are poison, no sign.
RESULTS_SUSPECT = 5
LANES_SUSPECT = 3
FAILED_SHARE = 0.8
WINDOW_SECONDS = 10.0  # what is older says nothing of now
PROBE_SECONDS = 1.0


class _Result(NamedTuple):
    at: float
    lane: Hashable
    failed: bool


class _Window:
    """The last results."""

    def __init__(self) -> None:
        self._results: deque[_Result] = deque(maxlen=RESULTS)

    def add(self, result: _Result) -> None:
        self._results.append(result)

    def clear(self) -> None:
        self._results.clear()

    def recent(self, now: float) -> list[_Result]:
        while self._results and now - self._results[0].at > WINDOW_SECONDS:
            self._results.popleft()
        return list(self._results)


class Breaker:
    """One worker's view of its handlers' world."""

    def __init__(self) -> None:
        self._all, self._first = _Window(), _Window()
        self._probe_at = 0.0
        self.is_open = False
        self.opened_at = 0.0
        self.answered_at = float("-inf")  # the last sign that the world answers

    def note(self, lane: Hashable, failed: bool, is_first: bool, now: float) -> None:
        """Count a result: `failed` if retryable (what is permanent shows that the world answers), `is_first` if it is
        of a first attempt."""
        if not failed:
            self.answered_at = now
        if self.is_open and not failed:
            self.is_open = False
            self._all.clear()
            self._first.clear()
        result = _Result(now, lane, failed)
        self._all.add(result)
        if is_first:
            self._first.add(result)
        if not self.is_open and failed and self._looks_down(now, RESULTS, RESULTS, LANES_MIN):
            self.is_open = True
            self.opened_at = now
            self._probe_at = now + PROBE_SECONDS

    def note_successes(self, count: int, now: float) -> None:
        """Count so many first attempts that went well."""
        for _ in range(min(count, RESULTS)):  # the windows hold no more
            self.note(None, failed=False, is_first=True, now=now)

    def suspects(self, now: float) -> bool:
        """Whether it may yet turn out an outage: nearly all of the last results failed, of several lanes."""
        return self.is_open or self._looks_down(now, RESULTS_SUSPECT, LANES_SUSPECT, LANES_SUSPECT)

    def may_probe(self, now: float) -> bool:
        """Whether one record may be tried although it is open; asking takes the turn."""
        if not self.is_open or now < self._probe_at:
            return False
        self._probe_at = now + PROBE_SECONDS
        return True

    def _looks_down(self, now: float, results_max: int, results_min: int, lanes_min: int) -> bool:
        recent, first = self._all.recent(now)[-results_max:], self._first.recent(now)[-results_max:]
        if len(recent) < results_min or not (_mostly_failed(recent) and _mostly_failed(first)):
            return False
        return len({result.lane for result in recent if result.failed}) >= lanes_min


def _mostly_failed(results: list[_Result]) -> bool:
    return sum(result.failed for result in results) >= FAILED_SHARE * len(results)
