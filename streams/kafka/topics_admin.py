"""Topics on the broker: what is there, making what is missing, mending what differs.

Called by setup, the doctor and the relay's bench; calls the broker through the admin client. Broker errors are
`Unavailable`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
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
        try:
            topics = self._admin.list_topics(timeout=self._seconds_max).topics
        except KafkaException as error:
            raise self._unavailable(error) from error
        return {name: len(topic.partitions) for name, topic in topics.items()}

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
        """Make the topic; one that is there already stays. A setting that the broker refuses is left out, and said."""
        try:
            self._create(topic, topic.config)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_CONFIG:
                raise self._unavailable(error) from error
            self._create(topic, {})
            self.alter(topic.name, topic.config)

    def grow(self, name: str, partitions: int) -> None:
        """Raise the number of partitions; keys land elsewhere from now on."""
        new = [NewPartitions(name, partitions)]
        self._done(self._admin.create_partitions(new, request_timeout=self._seconds_max)[name])

    def alter(self, name: str, changes: Mapping[str, str]) -> None:
        """Change settings one by one; one that the broker refuses is left out, and said."""
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
        self._done(self._admin.delete_topics([name], request_timeout=self._seconds_max)[name])

    def _create(self, topic: Topic, config: Mapping[str, str]) -> None:
        new = NewTopic(topic.name, topic.partitions, self._config.replication_factor, config=dict(config))
        try:
            self._admin.create_topics([new], request_timeout=self._seconds_max)[topic.name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _done(self, answer: Any) -> Any:
        try:
            return answer.result()
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: KafkaException) -> Unavailable:
        return Unavailable(f"Kafka at {self._config.bootstrap_servers} cannot be used: {error.args[0].str()}")
