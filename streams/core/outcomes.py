"""What can become of a record, and the decision after a failed attempt. Pure: clock and chance are arguments.

Called by the runtime, read by the sink.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.contract import Effect, Retry


@dataclass(frozen=True, slots=True)
class Done:
    """The handler's effects, to be applied."""

    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Expired:
    """The event was older than the reader's max_age_seconds; the handler was not called."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as text: it is stored, and an exception object would keep its frames alive."""

    error_class: str
    message: str
    traceback: str
    permanent: bool = False
    after_seconds: float | None = None  # the least wait that the handler asked for


@dataclass(frozen=True, slots=True)
class Retrying:
    """The record is parked at the head of its lane and is tried again. `attempts` counts the failed ones."""

    failure: Failure
    attempts: int
    next_attempt_at: datetime


@dataclass(frozen=True, slots=True)
class Behind:
    """The record is parked behind another of its lane; the handler was not called."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """The record waited while a later version of its document was applied; the handler was not called."""


@dataclass(frozen=True, slots=True)
class Dead:
    """The record is given up: a dead letter."""

    failure: Failure
    attempts: int
    first_failed_at: datetime


Outcome = Done | Expired | Retrying | Behind | Superseded | Dead


def backoff_seconds(policy: Retry, attempts: int, failure: Failure, chance: float) -> float:
    """The wait after the n-th failed attempt: exponential with full jitter, `chance` uniform in [0, 1).

    The handler's own wish (a Retry-After) is the least wait. Source: AWS Architecture Blog,
    "Exponential Backoff And Jitter", the "full jitter" form.
    """
    # 2 ** 64 is past every maximum; beyond it the float would overflow.
    ceiling = min(policy.backoff_seconds_max, policy.backoff_seconds * 2.0 ** min(attempts - 1, 64))
    return max(failure.after_seconds or 0.0, ceiling * chance)


def is_used_up(policy: Retry, attempts: int) -> bool:
    """Whether so many failed attempts are all that a record gets."""
    return attempts >= policy.attempts_max


def after_failure(
    policy: Retry, failure: Failure, attempts: int, first_failed_at: datetime, now: datetime, chance: float
) -> Retrying | Dead:
    """Try again or give up, after the n-th failed attempt (`attempts` includes it)."""
    if failure.permanent or is_used_up(policy, attempts):
        return Dead(failure, attempts, first_failed_at)
    wait = backoff_seconds(policy, attempts, failure, chance)
    return Retrying(failure, attempts, now + timedelta(seconds=wait))
