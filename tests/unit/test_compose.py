"""The compose stack, read as compose reads it but without Docker: its shape, its settings, its twin in infra/local."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from fastapi.routing import APIRoute

from streams.analytics.keeper import Keeper
from streams.analytics.web import Recovery, make_site
from streams.api import health
from streams.config import Settings
from streams.topics import FIXED, MESSAGE_BYTES_MAX, Topic, dead_letters

ROOT = Path(__file__).parents[2]
OUTER = ROOT / "compose.yaml"
INNER = ROOT / "infra/redpanda/compose.yaml"
DOCKERFILE = ROOT / "infra/redpanda/Dockerfile"
READERS = ("summarizer", "ranker", "indexer")
OURS = ("setup", "api", *READERS, "rescorer", "analytics")

# The names that Debezium's start script takes without CONNECT_, and the worker property that each becomes
# (debezium/container-images, connect-base/3.7/docker-entrypoint.sh).
UNPREFIXED = {
    "BOOTSTRAP_SERVERS": "bootstrap.servers",
    "GROUP_ID": "group.id",
    "CONFIG_STORAGE_TOPIC": "config.storage.topic",
    "OFFSET_STORAGE_TOPIC": "offset.storage.topic",
    "STATUS_STORAGE_TOPIC": "status.storage.topic",
    "KEY_CONVERTER": "key.converter",
    "VALUE_CONVERTER": "value.converter",
    "OFFSET_FLUSH_INTERVAL_MS": "offset.flush.interval.ms",
    "OFFSET_FLUSH_TIMEOUT_MS": "offset.flush.timeout.ms",
    "SHUTDOWN_TIMEOUT": "task.shutdown.graceful.timeout.ms",
    "ADVERTISED_HOST_NAME": "rest.advertised.host.name",
    "ADVERTISED_PORT": "rest.advertised.port",
    "REST_HOST_NAME": "rest.host.name",
    "REST_PORT": "rest.port",
}
HOSTS = {"bootstrap.servers", "rest.advertised.host.name"}


def interpolate(value: Any) -> Any:
    """What compose makes of ${NAME:-default} when no variable is set, and of $$."""
    if isinstance(value, dict):
        return {key: interpolate(each) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolate(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"(?<!\$)\$\{\w+:-([^}]*)\}", r"\1", value).replace("$$", "$")
    return value


RAW: dict[str, Any] = yaml.safe_load(INNER.read_text())
STACK: dict[str, Any] = interpolate(RAW)
SERVICES: dict[str, Any] = STACK["services"]


def environment(service: str) -> dict[str, str]:
    """The variables that have a value; one without is taken from the shell."""
    entries = SERVICES[service].get("environment", {})
    return {name: value for name, value in entries.items() if value is not None}


class NobodysWorker:
    """Enough of a worker to ask for its site."""

    keeper = Keeper(lambda _value: pytest.fail("no event"), lambda *_: pytest.fail("no row"))

    def recovery(self) -> Recovery:
        return Recovery(is_complete=True, remaining_records=0)


def flag(service: str, name: str) -> str:
    """The value of --name=value in the service's command."""
    return next(arg.partition("=")[2] for arg in SERVICES[service]["command"] if arg.startswith(f"--{name}="))


def listeners(name: str) -> dict[str, tuple[str, int]]:
    """Redpanda's listeners of one API: internal and external → host and port."""
    parts = (urlsplit(each) for each in flag("redpanda", name).split(","))
    return {part.scheme: (part.hostname or "", part.port or 0) for part in parts}


def published() -> dict[tuple[str, int], int]:
    """(service, container's port) → the port on this machine."""
    pairs = [(name, port.split(":")) for name, each in SERVICES.items() for port in each.get("ports", [])]
    return {(name, int(inside)): int(outside) for name, (_, outside, inside) in pairs}


# ------------------------------------------------------------------------------------------------------ the files


def test_both_files_follow_the_compose_specification() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, OUTER, INNER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_root_file_names_the_stack_and_includes_it() -> None:
    """Compose ignores the name of an included file."""
    assert yaml.safe_load(OUTER.read_text()) == {
        "name": "distributary",
        "include": [INNER.relative_to(ROOT).as_posix()],
    }
    assert "name" not in RAW


def test_services_are_those_of_the_design() -> None:
    assert set(SERVICES) == {"redpanda", "postgres", "connect", "console", *OURS}


def test_images_are_pinned_and_can_be_replaced() -> None:
    for name in set(SERVICES) - set(OURS):
        assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[^}]+\}", RAW["services"][name]["image"]), name
    tags = {name: each["image"].rpartition(":")[2] for name, each in SERVICES.items()}
    assert all(re.search(r"\d", tag) for name, tag in tags.items() if name not in OURS), tags
    assert "latest" not in tags.values()


def test_every_file_that_is_mounted_exists() -> None:
    mounts = [volume.split(":") for each in SERVICES.values() for volume in each.get("volumes", [])]
    binds = [source for source, *_ in mounts if source.startswith(".")]
    assert len(binds) == 1 + len(READERS) + 1  # the console, the readers and the rescorer
    assert all((INNER.parent / source).exists() for source in binds), binds
    named = {source for source, *_ in mounts if not source.startswith(".")}
    assert named == set(STACK["volumes"])


# ------------------------------------------------------------------------------------------------------- settings


def test_every_setting_exists() -> None:
    used = set(re.findall(r"\bSTREAMS_[A-Z_]+\b", INNER.read_text())) - {"STREAMS_DB_"}
    known = {f"STREAMS_{name.upper()}" for name in Settings.model_fields}
    assert used <= known, used - known


@pytest.mark.parametrize("service", OURS)
def test_our_processes_find_every_server(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"STREAMS_{name.upper()}", raising=False)
    for name, value in environment(service).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    database = environment("postgres")
    assert settings.database_url == (
        f"postgresql://{database['POSTGRES_USER']}:{database['POSTGRES_PASSWORD']}"
        f"@postgres:5432/{database['POSTGRES_DB']}"
    )
    assert settings.bootstrap_servers == "{}:{}".format(*listeners("advertise-kafka-addr")["internal"])
    registry = urlsplit(settings.registry_url)
    assert (registry.hostname, registry.port) == ("redpanda", listeners("schema-registry-addr")["internal"][1])
    assert settings.connect_url == "http://connect:8083"
    assert settings.api_url == "http://api:8000"


def test_the_api_listens_where_the_others_look_for_it() -> None:
    port = int(environment("api")["STREAMS_API_PORT"])
    assert environment("api")["STREAMS_API_HOST"] == "0.0.0.0"
    assert urlsplit(environment("summarizer")["STREAMS_API_URL"]).port == port
    assert published()["api", port] == port
    probe = re.search(r"http://127.0.0.1:(\d+)(/\w+)'", SERVICES["api"]["healthcheck"]["test"][-1])
    assert probe
    assert int(probe[1]) == port
    assert probe[2] in {route.path for route in health.router.routes if isinstance(route, APIRoute)}


def test_analytics_shows_itself_where_it_is_published_and_probed() -> None:
    port = int(environment("analytics")["STREAMS_ANALYTICS_PORT"])
    assert environment("analytics")["STREAMS_ANALYTICS_HOST"] == "0.0.0.0"
    assert published()["analytics", port] == port
    probe = re.search(r"http://127.0.0.1:(\d+)(/\w+)'", SERVICES["analytics"]["healthcheck"]["test"][-1])
    assert probe
    assert int(probe[1]) == port
    site = make_site(NobodysWorker())
    assert probe[2] in {route.resource.canonical for route in site.router.routes() if route.resource}


def test_ports_are_published_on_this_machine_alone() -> None:
    ports = [port for each in SERVICES.values() for port in each.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports), ports
    assert len(set(published().values())) == len(ports)


# ------------------------------------------------------------------------------------------------ order and health

HEALTHY, COMPLETED = "service_healthy", "service_completed_successfully"
AFTER_SETUP = {"setup": COMPLETED}
DEPENDS_ON = {
    "redpanda": {},
    "postgres": {},
    "connect": {"redpanda": HEALTHY, "postgres": HEALTHY},
    "console": {"redpanda": HEALTHY},
    "setup": {"redpanda": HEALTHY, "postgres": HEALTHY, "connect": HEALTHY},
    "api": AFTER_SETUP,
    "summarizer": AFTER_SETUP,
    "ranker": AFTER_SETUP,
    "indexer": AFTER_SETUP,
    "rescorer": AFTER_SETUP,
    "analytics": AFTER_SETUP,
}


def test_each_service_waits_for_what_it_needs() -> None:
    found = {
        name: {other: how["condition"] for other, how in each.get("depends_on", {}).items()}
        for name, each in SERVICES.items()
    }
    assert found == DEPENDS_ON


def test_what_is_waited_for_tells_its_health() -> None:
    waited = {name for wants in DEPENDS_ON.values() for name, how in wants.items() if how == HEALTHY}
    for name in {*waited, "api", "analytics"}:
        check = SERVICES[name]["healthcheck"]
        assert check["test"][0] in ("CMD", "CMD-SHELL"), name
        assert {"interval", "timeout", "retries"} <= set(check), name


def test_setup_ends_and_the_rest_comes_back() -> None:
    policies = {name: each["restart"] for name, each in SERVICES.items()}
    assert policies.pop("setup").startswith("on-failure")
    assert set(policies.values()) == {"unless-stopped"}


def test_postgres_is_healthy_only_over_tcp() -> None:
    """The server that runs during initialisation listens on a socket alone, and must not pass."""
    assert "pg_isready -h 127.0.0.1 " in SERVICES["postgres"]["healthcheck"]["test"][1]


# -------------------------------------------------------------------------------------------------------- servers


def test_redpanda_makes_no_topic_by_itself() -> None:
    """rpk takes --set only as an argument of its own, followed by another: `--set=…` is dropped without a word."""
    command = SERVICES["redpanda"]["command"]
    after = [command[at + 1] for at, arg in enumerate(command) if arg == "--set"]
    assert "redpanda.auto_create_topics_enabled=false" in after
    assert not [arg for arg in command if arg.startswith(("--set=", "--set "))]
    assert flag("redpanda", "mode") == "dev-container"


@pytest.mark.parametrize(("bound", "advertised"), [("kafka-addr", "advertise-kafka-addr")])
def test_redpanda_advertises_what_can_be_reached(bound: str, advertised: str) -> None:
    inside, outside = listeners(bound), listeners(advertised)
    assert outside["internal"] == ("redpanda", inside["internal"][1])
    host, port = outside["external"]
    assert host == "localhost"
    assert published()["redpanda", inside["external"][1]] == port


def test_postgres_can_feed_the_relay_and_keeps_its_data() -> None:
    postgres = SERVICES["postgres"]
    options = [option for option in postgres["command"] if "=" in option]
    assert "wal_level=logical" in options
    assert any(option.startswith("max_slot_wal_keep_size=") for option in options)
    # Version 18 refuses to start with a volume at …/data.
    assert [volume.split(":")[1] for volume in postgres["volumes"]] == ["/var/lib/postgresql"]


def test_console_is_configured_as_version_3_wants_it() -> None:
    """schemaRegistry below kafka, as in version 2, is a fatal error."""
    config = yaml.safe_load((INNER.parent / "console.yaml").read_text())
    assert set(config) == {"kafka", "schemaRegistry", "redpanda", "kafkaConnect"}
    assert set(config["kafka"]) == {"brokers"}
    urls = [*config["schemaRegistry"]["urls"], *config["redpanda"]["adminApi"]["urls"]]
    urls += [cluster["url"] for cluster in config["kafkaConnect"]["clusters"]]
    hosts = {urlsplit(url).netloc for url in urls} | set(config["kafka"]["brokers"])
    assert hosts == {"redpanda:9092", "redpanda:8081", "redpanda:9644", "connect:8083"}
    target = environment("console")["CONFIG_FILEPATH"]
    assert f"./console.yaml:{target}:ro" in SERVICES["console"]["volumes"]


@pytest.mark.parametrize("topic", [*FIXED, dead_letters("ranker")], ids=lambda topic: topic.name)
def test_redpanda_takes_the_configuration_of_our_topics(topic: Topic) -> None:
    """Names and ranges: docs.redpanda.com, topic properties of v26.2 (the timestamp limits came with v25.3)."""
    milliseconds_max = (2**63 - 1) // 10**6  # Redpanda keeps durations in nanoseconds
    ranges = {
        "max.message.bytes": range(1, 104_857_600 + 1),
        "message.timestamp.after.max.ms": range(milliseconds_max + 1),
        "retention.ms": range(-1, milliseconds_max + 1),
        "retention.bytes": range(-1, 2**63),
        "segment.ms": range(600_000, 31_536_000_000 + 1),
        "segment.bytes": range(1_048_576, 2**63),
    }
    words = {
        "cleanup.policy": ("delete", "compact", "compact,delete"),
        "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    }
    numbers = {name: int(value) for name, value in topic.config.items() if name not in words}
    assert set(numbers) <= set(ranges)
    assert [name for name, value in numbers.items() if value not in ranges[name]] == []
    assert [name for name in words if name in topic.config and topic.config[name] not in words[name]] == []


# ------------------------------------------------------------------------------------------------------- connect


def worker_properties() -> dict[str, str]:
    lines = (ROOT / "infra/local/worker.properties").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def connect_properties() -> dict[str, str]:
    """The worker properties that Debezium's start script makes of the environment."""
    found = {}
    for name, value in environment("connect").items():
        if name.startswith("CONNECT_"):
            found[name.removeprefix("CONNECT_").lower().replace("_", ".")] = value
        elif name in UNPREFIXED:
            found[UNPREFIXED[name]] = value
    return found


def test_connect_is_the_same_worker_as_the_local_one() -> None:
    containers = {name: value for name, value in connect_properties().items() if name not in HOSTS}
    local = {name: value for name, value in worker_properties().items() if name not in HOSTS}
    assert containers == local
    assert int(local["producer.max.request.size"]) == MESSAGE_BYTES_MAX


def test_connect_is_given_no_name_that_its_start_script_overwrites() -> None:
    twins = {f"CONNECT_{property.replace('.', '_').upper()}" for property in UNPREFIXED.values()}
    assert not twins & set(environment("connect"))
    unknown = set(environment("connect")) - set(UNPREFIXED) - {"HEAP_OPTS"}
    assert all(name.startswith(("CONNECT_", "STREAMS_DB_")) for name in unknown), unknown


def test_connect_logs_no_secret() -> None:
    """Its start script prints every CONNECT_* and cuts the values at '@'."""
    names = [name for name in environment("connect") if name.startswith("CONNECT_")]
    assert not [name for name in names if re.search("PASSWORD|SECRET|TOKEN|KEY$|USER", name)]
    password = environment("postgres")["POSTGRES_PASSWORD"]
    assert not [name for name in names if password in environment("connect")[name].split()]
    assert not [value for value in environment("connect").values() if "@" in value]


def test_connect_can_read_what_the_connector_asks_for() -> None:
    asked = set(re.findall(r"\$\{env:(\w+)\}", (ROOT / "connectors/documents-outbox.json").read_text()))
    allowed = re.compile(connect_properties()["config.providers.env.param.allowlist.pattern"])
    assert asked
    assert asked == {name for name in environment("connect") if allowed.match(name)}


# ------------------------------------------------------------------------------------------- our image, our services


def instructions() -> list[list[str]]:
    lines = re.sub(r"\\\n", " ", DOCKERFILE.read_text()).splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


def sent_to_the_build(path: str) -> bool:
    """Whether .dockerignore lets the path through: the last rule that names it or a folder above it decides."""
    sent = True
    above = [path, *(parent.as_posix() for parent in Path(path).parents if parent != Path())]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and any(fnmatch.fnmatch(each, pattern) for each in above):
            sent = line.startswith("!")
    return sent


def test_every_file_that_is_copied_exists_and_is_sent() -> None:
    sources = [source for line in instructions() if line[0] == "COPY" for source in line[1:-1]]
    assert {"pyproject.toml", "constraints.txt", "streams", "schemas", "connectors"} <= set(sources)
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [source for source in sources if not sent_to_the_build(source)] == []
    assert not sent_to_the_build(".streams/secret")
    assert not sent_to_the_build(".venv")


def test_the_image_has_the_files_that_the_wheel_takes_along() -> None:
    wheel = re.search(r"force-include\]\n(.*?)\n\n", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert wheel
    copied = {line[1] for line in instructions() if line[0] == "COPY"}
    assert set(re.findall(r'^"([^"]+)" =', wheel[1], re.MULTILINE)) <= copied


def test_the_image_is_pinned_and_runs_as_a_plain_user() -> None:
    base = next(line[1] for line in instructions() if line[0] == "FROM")
    assert re.search(r":\d+\.\d+", base), base
    assert [line[1] for line in instructions() if line[0] == "USER"][-1] not in ("root", "0")
    install = next(" ".join(line) for line in instructions() if "pip install" in " ".join(line))
    assert "--constraint constraints.txt" in install
    assert "://" not in DOCKERFILE.read_text()
    assert "index" not in install


def test_what_undo_needs_outlives_the_container() -> None:
    """A volume takes its owner from the image's folder, so the image must make it for the user."""
    home = environment("api")["STREAMS_HOME"]
    assert SERVICES["api"]["volumes"] == [f"state:{home}"]
    user = next(line[1] for line in instructions() if line[0] == "USER")
    assert f"install --directory --owner={user} {home}" in DOCKERFILE.read_text()


def test_all_our_services_run_one_image() -> None:
    for name in OURS:
        build = SERVICES[name]["build"]
        assert (INNER.parent / build["context"]).resolve() == ROOT, name
        assert ROOT / build["dockerfile"] == DOCKERFILE, name
        assert SERVICES[name]["image"] == SERVICES["setup"]["image"], name


def test_our_services_run_commands_that_exist() -> None:
    from streams.cli.main import app

    verbs = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert next(line for line in instructions() if line[0] == "ENTRYPOINT") == ["ENTRYPOINT", '["streams"]']
    assert {SERVICES[name]["command"][0] for name in OURS} <= verbs


@pytest.mark.parametrize("reader", READERS)
def test_each_reader_is_a_service_that_can_be_stopped_alone(reader: str) -> None:
    service = SERVICES[reader]
    assert service["command"] == ["run", reader]
    assert (ROOT / f"streams/readers/{reader}.py").exists()
    # A stable name: its place in the consumer group outlives the container.
    assert service["hostname"] == reader
    workdir = next(line[1] for line in instructions() if line[0] == "WORKDIR")
    assert service["volumes"] == [f"../../streams/readers:{workdir}/streams/readers:ro"]
