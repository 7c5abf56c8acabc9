"""Membership in a group, when the worker that had it was killed.

Kafka hands a partition over in two rounds: its owner gives it up and joins again; only then somebody gets it. An owner
that is killed in between comes back under its name without a round, as static members do, and what it gave up would
belong to nobody, for as long as no member comes or goes. Called by streams/ops/worker.py around a member's life, and by
streams/lab/chaos.py when all are dead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from streams.config import Settings
from streams.core.groups import Partition
from streams.errors import StackError, Unavailable
from streams.kafka.admin import GroupsAdmin

log = logging.getLogger(__name__)

_STABLE = "Stable"  # in every other state the next join is of a round
# Longer than a session, after which a name of the dead is forgotten, and than a member takes to drain what it gives up.
LOOK_SECONDS = 15.0


@contextmanager
def kept(config: Settings, topic: str, group: str, instance: str) -> Iterator[None]:
    """Join within this: it sees to it that the name's former holder leaves partitions to nobody.

    Nobody else may hold the name. Raises Unavailable.
    """
    if config.group_protocol == "consumer":  # there the broker itself assigns
        yield
        return
    if left := _unowned(config, topic, group):
        _begin_round(config, group, instance, left)
    ended = Event()
    # A round that was going on when we asked may have ended before we joined: so once more, while we are a member.
    Thread(target=_look_again, args=(config, topic, group, instance, ended), name="membership", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _look_again(config: Settings, topic: str, group: str, instance: str, ended: Event) -> None:
    """Until the group is at rest and complete, or this has begun a round.

    Who gives partitions up slowly has the time between two looks for it.
    """
    before: set[Partition] = set()
    while not ended.wait(LOOK_SECONDS):
        try:
            left = _unowned(config, topic, group)
        except Unavailable:
            continue
        if left is None:
            continue
        if not left:
            return
        if left & before:
            _begin_round(config, group, instance, left)
            return
        before = left


def _unowned(config: Settings, topic: str, group: str) -> set[Partition] | None:
    """The topic's partitions that nobody reads; None while the group is about to hand them out. Raises Unavailable."""
    admin = GroupsAdmin(config)
    described = admin.describe([group]).get(group)
    if described is None or described.state != _STABLE:
        return None
    return set(admin.cluster().partitions(topic)) - described.owners.keys()


def _begin_round(config: Settings, group: str, instance: str, left: set[Partition]) -> None:
    log.warning("%s: %s partitions are assigned to nobody: %s joins anew", group, len(left), instance)
    try:
        _leave(config, group, [("", instance)])
    except StackError as error:  # an old broker, say: the next member that comes or goes mends it
        log.warning("%s: %s", group, error)


def dismiss(config: Settings, group: str) -> None:
    """Take all members out of a group: they are dead, and the broker would wait a session for each.

    Raises StackError if the broker does not know the request, Unavailable.
    """
    described = GroupsAdmin(config).describe([group]).get(group)
    if described and described.members:
        _leave(config, group, [(member.id, None) for member in described.members])


def _leave(config: Settings, group: str, members: list[tuple[str, str | None]]) -> None:
    """For each, the id that the broker gave it, or its stable name."""
    # Imported when it is needed, which is seldom.
    from streams.kafka import coordinator
    from streams.kafka.group_requests import LeaveGroup

    coordinator.ask(config, group, LeaveGroup(group, members))
