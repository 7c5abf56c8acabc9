"""What our Postgres knows of groups beside the log, asked for aside of the questions to the broker.

Called by `streams lag`. A Postgres that is absent or not ours costs no time, one that hangs SECONDS_MAX; what it would
have said is unknown then, and why. `streams.ops.lag_postgres`, which asks, is loaded on that thread as well: that takes
as long as asking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from streams.config import Settings
from streams.core.groups import Partition
from streams.core.lag import GroupLag
from streams.core.outlook import Parked
from streams.core.series import Sample

if TYPE_CHECKING:
    from streams.ops.relay_lag import RelayLag

RELAY = "relay"  # the name of the relay's row; `streams lag --group relay`
OUTBOX = "app.outbox"  # which is its topic
SECONDS_MAX = 5.0  # as long as a connection may take


class RelayState(NamedTuple):
    """How far the relay is behind: in rows and their age, and in bytes of the write-ahead log."""

    lag: GroupLag
    slot_bytes: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """`parked` has every reader of ours, the others have none; `samples` are of the last minute, oldest first.

    `fault` is why something of it is missing that Postgres should know.
    """

    parked: Mapping[str, Mapping[Partition, Parked]] = field(default_factory=dict)
    samples: Mapping[str, list[Sample]] = field(default_factory=dict)
    capacities: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    relay: RelayState | None = None
    fault: str | None = None


class Aside:
    """Asks for the facts of some groups, all if none are named, again and again. Use it in a `with`."""

    def __init__(self, config: Settings, groups: Sequence[str], with_relay: bool) -> None:
        self._config = config
        self._groups = groups
        self._with_relay = with_relay
        self._relay: RelayLag | None = None
        self._resources = ExitStack()

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def ask(self) -> Asked:
        """A question that is on its way from now on."""
        return Asked(self)

    def facts(self) -> Facts:
        """The facts, however long it takes."""
        from streams.ops.lag_postgres import ask

        if self._with_relay and self._relay is None:
            from streams.ops.relay_lag import RelayLag

            self._relay = self._resources.enter_context(RelayLag(self._config))
        return ask(self._config, self._groups, self._relay)


class Asked:
    """A question to Postgres that is on its way."""

    def __init__(self, aside: Aside) -> None:
        self._said: SimpleQueue[Facts] = SimpleQueue()
        # A daemon: a server that does not answer must not hold up the end of the command.
        Thread(target=lambda: self._said.put(aside.facts()), name="facts", daemon=True).start()

    def facts(self, seconds_max: float = SECONDS_MAX) -> Facts:
        """The answer; without one in time, that nothing is known."""
        try:
            return self._said.get(timeout=seconds_max)
        except Empty:
            return Facts(fault=f"Postgres and the log did not say within {seconds_max:g} s what they know")
