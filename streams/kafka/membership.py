"""A worker's name in its group, when the worker that had it before was killed.

Kafka hands a partition over in two rounds: its owner gives it up and joins again; only then somebody gets it. An owner
that is killed in between comes back under its name without a round, as static members do, and what it gave up would
belong to nobody, for as long as no member comes or goes. Called by streams/ops/worker.py before it joins.
"""

from __future__ import annotations

import logging

from streams.config import Settings
from streams.errors import StackError
from streams.kafka.admin import GroupsAdmin

log = logging.getLogger(__name__)

_STABLE = "Stable"  # in every other state the next join is of a round


def take_over(config: Settings, topic: str, group: str, instance: str) -> None:
    """Let the name's next join begin a round if the group leaves partitions to nobody; nobody else may hold the name.

    Raises Unavailable.
    """
    if config.group_protocol == "consumer":  # there the broker itself assigns
        return
    admin = GroupsAdmin(config)
    described = admin.describe([group]).get(group)
    if described is None or described.state != _STABLE:
        return
    left = set(admin.cluster().partitions(topic)) - described.owners.keys()
    if not left:
        return
    # Imported when it is needed, which is seldom.
    from streams.kafka import coordinator
    from streams.kafka.group_requests import LeaveGroup

    log.warning("%s: %s partitions are assigned to nobody: %s joins anew", group, len(left), instance)
    try:
        coordinator.ask(config, group, LeaveGroup(group, [("", instance)]))
    except StackError as error:  # an old broker: the next member that comes or goes mends it
        log.warning("%s: %s", group, error)
