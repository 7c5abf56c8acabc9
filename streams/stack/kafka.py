"""The local Kafka: one KRaft node, broker and controller in one process.

Called by `streams.stack.local`; calls Kafka's own format tool and, for the probe, `streams.kafka`.
"""

from __future__ import annotations

import re
import shutil
import socket
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from streams.config import Settings
from streams.errors import StackError, Unavailable
from streams.stack.files import infra_folder, write_properties
from streams.stack.jars import Jars
from streams.stack.java import Java
from streams.stack.part import HOST, Part, port_of
from streams.stack.process import TOOL, LocalProcess

HEAP_MB = 512
FORMAT_SECONDS_MAX = 180
# The log's features that Redpanda lacks are left out when it is formatted.
PARITY_FEATURES = ("--feature", "transaction.version=1", "--feature", "share.version=0")


def part(config: Settings, home: Path, jars: Jars) -> Part:
    """The broker below `home`."""
    properties = home / "run" / "broker.properties"
    broker = kafka_program("kafka", "kafka.Kafka", config, home, jars)
    return Part(
        name="kafka",
        home=home,
        ports=(port_of(config, "kafka"), port_of(config, "controller")),
        prepare=lambda: _prepare(config, home, jars, properties),
        command=lambda: broker.command(str(properties)),
        probe=lambda: _probe(config),
        java=broker,
    )


def kafka_program(name: str, main: str, config: Settings, home: Path, jars: Jars) -> Java:
    """A program of Kafka's: the broker, Connect, the format tool."""
    log_config = {"log4j2.configurationFile": (infra_folder() / "log4j2.properties").as_uri()}
    return Java(name, home, config.cache.resolve(), jars.kafka, main, HEAP_MB, log_config)


def _prepare(config: Settings, home: Path, jars: Jars, properties: Path) -> None:
    data = home / "kafka"
    if not data.exists():
        _format(config, home, jars, data)
    _write_properties(config, properties, data)


def _write_properties(config: Settings, path: Path, data: Path) -> None:
    broker, controller = (f"{HOST}:{port_of(config, name)}" for name in ("kafka", "controller"))
    shipped = ["broker.properties", *(["parity.properties"] if config.broker_profile == "parity" else [])]
    own = {
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{broker}",
        "controller.quorum.voters": f"1@{controller}",
        "log.dirs": str(data),
    }
    write_properties(path, shipped, own)


def _format(config: Settings, home: Path, jars: Jars, data: Path) -> None:
    """Format the log under another name first, so that a killed first start leaves nothing half made."""
    new, properties = data.with_name("kafka.new"), home / "run" / "format.properties"
    shutil.rmtree(new, ignore_errors=True)
    _write_properties(config, properties, new)
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    features = PARITY_FEATURES if config.broker_profile == "parity" else ()
    tool = kafka_program("kafka", "kafka.tools.StorageTool", config, home, jars)
    command = tool.command("format", f"--cluster-id={cluster}", f"--config={properties}", *features)
    formatted, said = LocalProcess(f"{TOOL}kafka-format", home).run(command, FORMAT_SECONDS_MAX)
    if not formatted:
        errors = re.findall(r"^(?!\s|INFO)\S.*(?:Exception|Error|error).*", said, re.MULTILINE)
        raise StackError(f"Kafka could not format its log: {errors[0] if errors else said.strip()}")
    new.replace(data)


def _probe(config: Settings) -> None:
    from streams.kafka.probe import ask_broker  # while the servers start, not before

    try:
        socket.create_connection((HOST, port_of(config, "kafka")), timeout=1).close()
    except OSError as error:  # asked first: the client would only try again after a pause of its own
        raise Unavailable(f"Kafka at {config.bootstrap_servers} does not listen.") from error
    ask_broker(config.kafka_client())
