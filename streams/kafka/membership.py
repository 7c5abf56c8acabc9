"""Membership in a group, when the worker that had it was killed.

Kafka hands a partition over in two rounds: its owner gives it up and joins again; only then somebody gets it. An owner
that is killed in between comes back under its name without a round, as static members do, and what it gave up would
belong to nobody, for as long as no member comes or goes. Called by streams/ops/worker.py before it joins and after, and
by streams/lab/chaos.py when all are dead.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from streams.config import Settings
from streams.core.groups import Partition
from streams.errors import StackError, Unavailable
from streams.kafka.admin import GroupsAdmin

log = logging.getLogger(__name__)

_STABLE = "Stable"  # in every other state the next join is of a round
# New partitions are picked up within the first, and what is given up slowly is handed on.
LOOK_SECONDS = 30.0
_LOOKS = 2


def take_over(config: Settings, topic: str, group: str, instance: str) -> None:
    """Let the name's next join begin a round if the group leaves partitions to nobody; nobody else may hold the name.

    Raises Unavailable.
    """
    if config.group_protocol == "consumer":  # there the broker itself assigns
        return
    left = _unowned(GroupsAdmin(config), topic, group)
    if not left:
        return
    log.warning("%s: %s partitions are assigned to nobody: %s joins anew", group, len(left), instance)
    try:
        _leave(config, group, [("", instance)])
    except StackError as error:  # an old broker: the next member that comes or goes mends it
        log.warning("%s: %s", group, error)


def leaves_some_to_nobody(config: Settings, topic: str, group: str) -> bool:
    """Whether some of the partitions that there are now stay with nobody, for as long as a member looks at them.

    Asked by one that has just joined: a round that was going on when it took over may have ended before it joined.
    """
    if config.group_protocol == "consumer":
        return False
    admin = GroupsAdmin(config)
    looks, left = 0, _partitions(admin, topic)
    while left and looks < _LOOKS:
        time.sleep(LOOK_SECONDS)
        with suppress(Unavailable):
            unowned = _unowned(admin, topic, group)
            if unowned is not None:
                looks, left = looks + 1, left & unowned
    return bool(left)


def _unowned(admin: GroupsAdmin, topic: str, group: str) -> set[Partition] | None:
    """The topic's partitions that nobody reads; None while the group is about to hand them out. Raises Unavailable."""
    described = admin.describe([group]).get(group)
    if described is None or described.state != _STABLE:
        return None
    return _partitions(admin, topic) - described.owners.keys()


def _partitions(admin: GroupsAdmin, topic: str) -> set[Partition]:
    """Those that there are. Raises Unavailable."""
    return set(admin.cluster().partitions(topic))


def dismiss(config: Settings, admin: GroupsAdmin, group: str) -> None:
    """Take all members out of a group: they are dead, and the broker would wait a session for each.

    Raises StackError if the broker does not know the request, Unavailable.
    """
    described = admin.describe([group]).get(group)
    if described and described.members:
        _leave(config, group, [(member.id, None) for member in described.members])


def _leave(config: Settings, group: str, members: list[tuple[str, str | None]]) -> None:
    """For each, the id that the broker gave it, or its stable name."""
    # Imported when it is needed, which is seldom.
    from streams.kafka import coordinator
    from streams.kafka.group_requests import LeaveGroup

    coordinator.ask(config, group, LeaveGroup(group, members))
