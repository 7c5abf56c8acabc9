"""The local schema registry: Apicurio, asked by its Confluent API, with its schemas in the stack's Postgres.

Called by `streams.stack.local`; calls the registry's API as a probe.
"""

from __future__ import annotations

from pathlib import Path

from streams.config import Settings
from streams.stack.files import infra_folder
from streams.stack.jars import Jars
from streams.stack.java import Java
from streams.stack.part import Part, ask_http, port_of
from streams.stack.postgres import REGISTRY_DATABASE

MAIN = "io.quarkus.runner.GeneratedMain"
HEAP_MB = 192


def part(config: Settings, home: Path, jars: Jars) -> Part:
    """The registry; ids of schemas survive a restart, since they are rows of Postgres."""
    port, runner = port_of(config, "registry"), next(jars.registry.glob("*-runner.jar"))
    server = Java("registry", home, config.cache.resolve(), [runner], MAIN, HEAP_MB, _properties(home))
    return Part(
        name="registry",
        home=home,
        ports=(port,),
        prepare=lambda: None,
        command=server.command,
        probe=lambda: ask_http(f"{config.registry_url}/subjects"),
        env=_environment(config, port),
        needs=("postgres",),
        java=server,
    )


def _properties(home: Path) -> dict[str, str]:
    temporary = str(home / "tmp")
    return {
        "smallrye.config.locations": (infra_folder() / "registry.properties").as_uri(),
        "apicurio.import.work-dir": temporary,
        "apicurio.storage.snapshot.location": temporary,
    }


def _environment(config: Settings, port: int) -> dict[str, str]:
    """Not in the command line, which every user of the machine can read."""
    return {
        "QUARKUS_HTTP_PORT": str(port),
        "APICURIO_DATASOURCE_URL": f"jdbc:postgresql://{config.db_host}:{config.db_port}/{REGISTRY_DATABASE}",
        "APICURIO_DATASOURCE_USERNAME": config.db_user,
        "APICURIO_DATASOURCE_PASSWORD": config.db_password,
    }
