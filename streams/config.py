"""The settings, read once from the environment: the only reader of it.

Every setting is `STREAMS_<NAME>`. The defaults are the local stack's: all servers on 127.0.0.1, on the ports that
follow `STREAMS_PORT_BASE`, state below `STREAMS_HOME`. Called by every edge module; calls nothing.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import platformdirs
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from streams.errors import ConfigError

# One local stack uses the ports PORT_BASE … PORT_BASE + 9.
PORT_OFFSETS = {"postgres": 0, "kafka": 1, "controller": 2, "connect": 3, "registry": 4, "api": 5, "analytics": 6}


def _port(part: str) -> Any:
    return Field(default_factory=lambda seen: seen["port_base"] + PORT_OFFSETS[part], ge=1, le=65535)


def _local(part: str, scheme: str = "", path: str = "") -> Any:
    return Field(default_factory=lambda seen: f"{scheme}127.0.0.1:{seen['port_base'] + PORT_OFFSETS[part]}{path}")


class Settings(BaseSettings):
    """All settings of one process; frozen, so it can be shared by threads."""

    model_config = SettingsConfigDict(env_prefix="STREAMS_", frozen=True, extra="ignore")

    home: Path = Path(".streams")  # state of the local stack: data, logs, pid files
    cache: Path = Field(default_factory=lambda: platformdirs.user_cache_path("distributary"))  # downloaded jars
    port_base: int = Field(default=24100, ge=1024, le=65500)
    broker_profile: Literal["full", "parity"] = "full"  # parity: what Redpanda has, no more

    db_host: str = "127.0.0.1"
    db_port: int = _port("postgres")
    db_user: str = "streams"
    db_password: str = "streams"  # of the local stack, which listens on 127.0.0.1 only
    db_name: str = "streams"

    bootstrap_servers: str = _local("kafka")
    kafka_security_protocol: str = "PLAINTEXT"
    kafka_sasl_mechanism: str | None = None
    kafka_sasl_username: str | None = None
    kafka_sasl_password: str | None = None
    kafka_ssl_ca: Path | None = None
    replication_factor: int = Field(default=1, ge=1)

    connect_url: str = _local("connect", "http://")
    registry_url: str = _local("registry", "http://", "/apis/ccompat/v7")
    api_host: str = "127.0.0.1"
    api_port: int = _port("api")
    api_url: str = _local("api", "http://")
    analytics_host: str = "127.0.0.1"
    analytics_port: int = _port("analytics")

    metrics_host: str = "127.0.0.1"
    metrics_port: int = Field(default=0, ge=0, le=65535)  # of `streams run`; 0: no metrics
    group_protocol: Literal["classic", "consumer"] = "classic"  # consumer: KIP-848, assigned by the broker

    # Writes are refused while more of the write-ahead log than this waits for the relay; Postgres keeps 4 GB for it.
    outbox_backlog_bytes_max: int = Field(default=1024**3, ge=1)

    provider_url: str | None = None  # OpenAI-compatible base URL; unset: the summarizer works offline
    provider_key: str = "none"
    provider_model: str = "gpt-4o-mini"
    provider_timeout_seconds: float = Field(default=60.0, gt=0)  # of one answer, from first byte to last
    ranker_model: str = "wordllama"  # or the name of an entry point of the group streams.scorers

    @property
    def database_url(self) -> str:
        """libpq URL of the application's database."""
        user, password = quote(self.db_user, safe=""), quote(self.db_password, safe="")
        return f"postgresql://{user}:{password}@{self.db_host}:{self.db_port}/{quote(self.db_name, safe='')}"

    def kafka_client(self) -> dict[str, Any]:
        """What every Kafka client needs to reach the cluster: librdkafka's names."""
        options = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.kafka_security_protocol,
            "sasl.mechanism": self.kafka_sasl_mechanism,
            "sasl.username": self.kafka_sasl_username,
            "sasl.password": self.kafka_sasl_password,
            "ssl.ca.location": str(self.kafka_ssl_ca) if self.kafka_ssl_ca else None,
            "reconnect.backoff.max.ms": 1_000,  # by default one that was away may be found only 10 s after its return
        }
        return {name: value for name, value in options.items() if value is not None}


@cache
def settings() -> Settings:
    """The process's settings. Raises ConfigError that names the variable."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "STREAMS_" + "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigError(f"{name} is not valid: {first['msg']}") from error
