"""The local Kafka Connect worker with Debezium's Postgres connector in a plugin folder of its own.

Called by `streams.stack.local`; calls the worker's REST API as a probe.
"""

from __future__ import annotations

from pathlib import Path

from streams.config import Settings
from streams.stack.files import write_properties
from streams.stack.jars import Jars
from streams.stack.kafka import kafka_program
from streams.stack.part import HOST, Part, ask_http, port_of

MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"


def part(config: Settings, home: Path, jars: Jars) -> Part:
    """The worker below `home`; its state is in Kafka."""
    port, properties = port_of(config, "connect"), home / "run" / "worker.properties"
    worker = kafka_program("connect", MAIN, config, home, jars)
    own = {
        "bootstrap.servers": config.bootstrap_servers,
        "listeners": f"http://{HOST}:{port}",
        "rest.advertised.host.name": HOST,
        "rest.advertised.port": str(port),
        "plugin.path": str(jars.debezium),
    }
    return Part(
        name="connect",
        home=home,
        ports=(port,),
        prepare=lambda: write_properties(properties, ["worker.properties"], own),
        command=lambda: worker.command(str(properties)),
        probe=lambda: ask_http(f"{config.connect_url}/health"),
        env=_database(config),
        needs=("kafka",),
        java=worker,
    )


def _database(config: Settings) -> dict[str, str]:
    """What the connector's ${env:STREAMS_DB_…} stand for."""
    return {
        "STREAMS_DB_HOST": config.db_host,
        "STREAMS_DB_PORT": str(config.db_port),
        "STREAMS_DB_USER": config.db_user,
        "STREAMS_DB_PASSWORD": config.db_password,
        "STREAMS_DB_NAME": config.db_name,
    }
