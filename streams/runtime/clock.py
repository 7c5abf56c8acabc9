"""Time and chance, as one argument: so that the tests' time is theirs. Made by streams/ops/worker.py."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime


class Clock:
    """The system's."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def now(self) -> datetime:
        """The time of day in UTC, for what is stored and shown."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Let the handlers' threads work."""
        time.sleep(seconds)

    def chance(self) -> float:
        """Uniform in [0, 1)."""
        return random.random()
