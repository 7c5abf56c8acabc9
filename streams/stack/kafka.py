"""The local Kafka: one KRaft node, broker and controller in one process.

Called by `streams.stack.local`; calls Kafka's own format tool and, for the probe, `streams.kafka`.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from streams.config import PORT_OFFSETS, Settings
from streams.errors import StackError, Unavailable
from streams.stack.jars import Jars, infra_folder
from streams.stack.java import Java
from streams.stack.part import Part

# What Redpanda lacks is left out of the log's features when it is formatted.
HEAP_MB = 512
PARITY_FEATURES = ("--feature", "transaction.version=1", "--feature", "share.version=0")


def part(config: Settings, home: Path, jars: Jars) -> Part:
    """The broker below `home`."""
    properties = home / "run" / "broker.properties"
    broker = kafka_program("kafka", "kafka.Kafka", config, home, jars)
    return Part(
        name="kafka",
        home=home,
        port=config.port_base + PORT_OFFSETS["kafka"],
        prepare=lambda: _prepare(config, home, jars),
        command=lambda: broker.command(str(properties)),
        probe=lambda: _probe(config),
        java=broker,
    )


def kafka_program(name: str, main: str, config: Settings, home: Path, jars: Jars) -> Java:
    """A program of Kafka's: the broker, Connect, the format tool."""
    log_config = {"log4j2.configurationFile": (infra_folder() / "log4j2.properties").as_uri()}
    return Java(name, home, config.cache.resolve(), jars.kafka, main, HEAP_MB, log_config)


def _prepare(config: Settings, home: Path, jars: Jars) -> None:
    data = home / "kafka"
    if not data.exists():
        _format(config, home, jars, data)
    _write_properties(config, home / "run" / "broker.properties", data)


def _write_properties(config: Settings, path: Path, data: Path) -> None:
    host, ports = "127.0.0.1", {name: config.port_base + offset for name, offset in PORT_OFFSETS.items()}
    broker, controller = f"PLAINTEXT://{host}:{ports['kafka']}", f"{host}:{ports['controller']}"
    own = {
        "listeners": f"{broker},CONTROLLER://{controller}",
        "advertised.listeners": broker,
        "controller.quorum.voters": f"1@{controller}",
        "log.dirs": str(data),
    }
    write_properties(path, ["broker.properties", *_profile_files(config)], own)


def _profile_files(config: Settings) -> list[str]:
    return ["parity.properties"] if config.broker_profile == "parity" else []


def write_properties(path: Path, shipped: list[str], own: dict[str, str]) -> None:
    """Join files of infra/local and what only this stack knows into one properties file."""
    texts = [(infra_folder() / name).read_text("utf-8") for name in shipped]
    lines = [f"{name}={value}" for name, value in own.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*texts, *lines, ""]), "utf-8")


def _format(config: Settings, home: Path, jars: Jars, data: Path) -> None:
    """Format the log under another name first, so that a killed first start leaves nothing half made."""
    new, properties = data.with_name("kafka.new"), home / "run" / "format.properties"
    shutil.rmtree(new, ignore_errors=True)
    _write_properties(config, properties, new)
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    features = PARITY_FEATURES if config.broker_profile == "parity" else ()
    words = ["format", "--cluster-id", cluster, "--config", str(properties), *features]
    tool = kafka_program("format", "kafka.tools.StorageTool", config, home, jars)
    done = subprocess.run(tool.command(*words), check=False, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise StackError(
            f"Kafka could not format its data folder {new}: {said[-1] if said else 'no reason'}"
        )
    new.replace(data)


def _probe(config: Settings) -> None:
    try:
        socket.create_connection(("127.0.0.1", config.port_base + PORT_OFFSETS["kafka"]), timeout=1).close()
    except OSError as error:  # asked first: the client would only try again after a pause of its own
        raise Unavailable(f"Kafka at {config.bootstrap_servers} does not listen.") from error
    from streams.kafka.probe import ask_broker  # while the servers start, not before

    ask_broker(config.kafka_client())
