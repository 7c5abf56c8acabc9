"""Topics on the broker: what is there, making what is missing, mending what differs.

Called by setup, the doctor and the relay's bench; calls the broker through the admin client. Broker errors are
`Unavailable`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from streams.config import Settings
from streams.errors import Unavailable
from streams.topics import Topic

log = logging.getLogger(__name__)
_SECONDS_MAX = 30.0  # for one answer, with patience: setup waits for it, not a request
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the broker has it; `config` holds every setting that this broker knows, defaults too."""

    partitions: int
    config: Mapping[str, str]

    def differs(self, wanted: Topic) -> dict[str, str]:
        """The settings that are not as wanted, with the wanted values; what this broker does not know is left out."""
        return {
            name: value for name, value in wanted.config.items() if name in self.config and self.config[name] != value
        }


class TopicsAdmin:
    """One admin connection; safe for threads."""

    def __init__(self, config: Settings, seconds_max: float = _SECONDS_MAX) -> None:
        self._config = config
        self._seconds_max = seconds_max
        self._admin = AdminClient({**config.kafka_client(), "log_level": 0})

    def partitions(self) -> dict[str, int]:
        """All topics with their partition counts."""
        return {name: len(topic.partitions) for name, topic in self._metadata().topics.items()}

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        """Those of the topics that exist."""
        counts = self.partitions()
        present = [name for name in names if name in counts]
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in present]
        if not resources:
            return {}
        answers = self._admin.describe_configs(resources, request_timeout=self._seconds_max)
        return {
            resource.name: TopicState(
                counts[resource.name], {name: entry.value for name, entry in self._done(answer).items()}
            )
            for resource, answer in answers.items()
        }

    def create(self, topic: Topic) -> None:
        """Make the topic, and wait until it can be used; one that is there already stays.

        A setting that the broker refuses is left out, and said.
        """
        try:
            self._create(topic, topic.config)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_CONFIG:
                raise self._unavailable(error) from error
            self._create(topic, {})
            self.alter(topic.name, topic.config)
        self._await_leaders(topic.name, 1)

    def grow(self, name: str, partitions: int) -> None:
        """Raise the number of partitions; keys land elsewhere from now on."""
        self._await_controller()
        new = [NewPartitions(name, partitions)]
        self._done(self._admin.create_partitions(new, request_timeout=self._seconds_max)[name])
        self._await_leaders(name, partitions)

    def alter(self, name: str, changes: Mapping[str, str]) -> None:
        """Change settings one by one; one that the broker refuses is left out, and said."""
        self._await_controller()
        for setting, value in changes.items():
            entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
            try:
                self._admin.incremental_alter_configs([resource], request_timeout=self._seconds_max)[resource].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_CONFIG:
                    raise self._unavailable(error) from error
                log.warning("topic %s goes without %s: the broker does not take it", name, setting)

    def delete(self, name: str) -> None:
        """Remove a topic with all its records."""
        self._await_controller()
        self._done(self._admin.delete_topics([name], request_timeout=self._seconds_max)[name])

    def _create(self, topic: Topic, config: Mapping[str, str]) -> None:
        self._await_controller()
        new = NewTopic(topic.name, topic.partitions, self._config.replication_factor, config=dict(config))
        try:
            self._admin.create_topics([new], request_timeout=self._seconds_max)[topic.name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _await_controller(self) -> None:
        """The client itself looks only once in minutes: one that met a broker just back from a pause would time out."""
        self._await(lambda: self._metadata().controller_id >= 0, "has no controller")

    def _await_leaders(self, name: str, partitions: int) -> None:
        """The controller has made what the brokers, one that is just back from a pause above all, know only later."""

        def led() -> bool:
            topic = self._metadata().topics.get(name)
            return topic is not None and sum(one.leader >= 0 for one in topic.partitions.values()) >= partitions

        self._await(led, f"has made {name}, but no broker leads it")

    def _await(self, reached: Callable[[], bool], why_not: str) -> None:
        deadline = time.monotonic() + self._seconds_max
        while not reached():
            if time.monotonic() > deadline:
                raise Unavailable(f"Kafka at {self._config.bootstrap_servers} {why_not}.")
            time.sleep(_LOOK_SECONDS)

    def _metadata(self) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=self._seconds_max)
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _done(self, answer: Any) -> Any:
        try:
            return answer.result()
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: KafkaException) -> Unavailable:
        return Unavailable(f"Kafka at {self._config.bootstrap_servers} cannot be used: {error.args[0].str()}")
