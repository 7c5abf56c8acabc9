"""Topics are made by a cluster that has a controller, however late it is found, and can be used once they are made."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from streams.config import settings
from streams.errors import Unavailable
from streams.kafka import topics_admin
from streams.kafka.topics_admin import TopicsAdmin
from streams.topics import Topic


class Cluster:
    """An admin client whose cluster has the given controllers, one look after the other; the last one stays.

    A new topic has the given leaders in the same way: None as long as the brokers do not know it.
    """

    def __init__(self, *controllers: int, leaders: tuple[int | None, ...] = (1,)) -> None:
        self.controllers = list(controllers)
        self.leaders = list(leaders)
        self.made: list[str] = []

    def list_topics(self, timeout: float) -> SimpleNamespace:
        found = self.controllers.pop(0) if len(self.controllers) > 1 else self.controllers[0]
        topics = {}
        if self.made:
            leader = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
            partitions = {} if leader is None else {0: SimpleNamespace(leader=leader)}
            topics = dict.fromkeys(self.made, SimpleNamespace(partitions=partitions))
        return SimpleNamespace(controller_id=found, topics=topics)

    def create_topics(self, new: list[Any], request_timeout: float) -> dict[str, Future[None]]:
        assert self.controllers == [1], "asked too early, the real client waits in vain"
        done: Future[None] = Future()
        done.set_result(None)
        self.made += [topic.topic for topic in new]
        return {topic.topic: done for topic in new}


def admin_of(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, seconds_max: float) -> TopicsAdmin:
    monkeypatch.setattr(topics_admin, "AdminClient", lambda options: cluster)
    return TopicsAdmin(settings(), seconds_max)


def test_a_broker_that_is_just_back_gets_the_topic_once_it_has_a_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(-1, -1, 1)
    admin_of(cluster, monkeypatch, 5).create(Topic("some", 3))
    assert cluster.made == ["some"]


def test_a_cluster_that_stays_without_a_controller_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="has no controller"):
        admin_of(Cluster(-1), monkeypatch, 0.3).create(Topic("some", 3))


def test_a_topic_is_made_once_a_broker_leads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(1, leaders=(None, -1, 1))
    admin_of(cluster, monkeypatch, 5).create(Topic("some", 1))
    assert cluster.leaders == [1]


def test_a_topic_that_nobody_leads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="has made some, but no broker leads it"):
        admin_of(Cluster(1, leaders=(-1,)), monkeypatch, 0.3).create(Topic("some", 1))
