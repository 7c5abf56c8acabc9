"""The commands in infra/redpanda/README.md, and those of rpk in docs/operations.md.

rpk is not at hand to run them, so they are held to what it takes.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from streams.config import Settings
from streams.topics import FIXED, dead_letters

ROOT = Path(__file__).parents[2]
README = (ROOT / "infra/redpanda/README.md").read_text()
RUNBOOK = (ROOT / "docs/operations.md").read_text("utf-8")
SERVICES = yaml.safe_load((ROOT / "infra/redpanda/compose.yaml").read_text())["services"]
GROUPS = {name for name, service in SERVICES.items() if service.get("command", [None])[0] == "run"}
TOPICS = {topic.name for topic in (*FIXED, *map(dead_letters, GROUPS))}


@dataclass(frozen=True)
class Command:
    """What a command takes: its flags (short → long for those that have both) and how many arguments."""

    switches: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    arguments_min: int = 0
    arguments_max: int = 0


def takes(switches: str = "", valued: str = "", arguments: tuple[int, int] = (0, 0)) -> Command:
    return Command(frozenset(switches.split()), frozenset(valued.split()), *arguments)


# rpk v26.2.1. Flags: redpanda-data/docs, docs-data/rpk-v26.2.1.json, which is generated from rpk itself.
# Numbers of arguments: redpanda-data/redpanda, src/go/rpk/pkg/cli/{cluster,group,topic,registry}.
KNOWN = {
    "cluster health": takes("exit-when-healthy watch", "format"),
    "group list": takes("", "format states"),
    "group describe": takes(
        "instance-ID print-commits print-lag-per-topic print-summary regex", "format", arguments=(1, 99)
    ),
    "group seek": takes("allow-new-topics", "format to to-file to-group topics", arguments=(1, 1)),
    "topic list": takes("detailed internal regex", "format", arguments=(0, 99)),
    "topic describe": takes(
        "print-all print-configs print-partitions print-summary regex stable", "format", arguments=(1, 99)
    ),
    "topic consume": takes(
        "meta-only pretty-print print-control-records read-committed regex use-schema-registry",
        "balancer fetch-max-bytes fetch-max-partition-bytes fetch-max-wait format group num offset partitions rack",
        arguments=(1, 99),
    ),
    "registry schema list": takes("deleted", "", arguments=(0, 99)),
}
COMPOSE = {"up", "down", "ps", "run", "stop", "start", "restart", "exec", "cp"}


def shell_lines() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines() if line]


def recipes() -> list[list[str]]:
    """What stands after `rpk` in the blocks and in the text."""
    in_blocks = [line[line.index("rpk") + 1 :] for line in shell_lines() if "rpk" in line]
    in_text = [shlex.split(code) for code in re.findall(r"`rpk ([^`\n]+)`", README + RUNBOOK)]
    return in_blocks + in_text


def parse(words: list[str]) -> tuple[str, dict[str, str | None], list[str]]:
    """Command, flags and arguments, as rpk's own parser reads them. Raises AssertionError."""
    name = next((name for name in KNOWN if words[: len(name.split())] == name.split()), None)
    assert name is not None, f"rpk has no such command, or the table lacks it: {' '.join(words)}"
    known, flags, arguments = KNOWN[name], dict[str, str | None](), list[str]()
    rest = iter(words[len(name.split()) :])
    for word in rest:
        if not word.startswith("-"):
            arguments.append(word)
            continue
        flag, has_value, value = word.removeprefix("--").partition("=")
        assert word.startswith("--"), f"write the long form of {word}"
        assert flag in known.switches | known.valued, f"rpk {name} has no --{flag}"
        flags[flag] = value if has_value else next(rest, None) if flag in known.valued else None
        assert flag in known.switches or flags[flag] is not None, f"--{flag} needs a value"
    return name, flags, arguments


def test_there_are_recipes_for_lag_reset_and_inspection() -> None:
    names = {parse(words)[0] for words in recipes()}
    assert names >= {"group describe", "group seek", "group list", "topic describe", "topic consume"}


@pytest.mark.parametrize("words", recipes(), ids=" ".join)
def test_rpk_takes_it(words: list[str]) -> None:
    name, flags, arguments = parse(words)
    if not flags and not arguments:
        return  # the command's name alone, in a sentence
    known = KNOWN[name]
    assert known.arguments_min <= len(arguments) <= known.arguments_max
    if name.startswith("group"):
        assert set(arguments) <= GROUPS
    if name.startswith("topic"):
        assert set(arguments) <= TOPICS
    assert set((flags.get("topics") or "documents-saved").split(",")) <= TOPICS


@pytest.mark.parametrize("words", [words for words in recipes() if words[:2] == ["group", "seek"]], ids=" ".join)
def test_a_seek_is_one_that_rpk_carries_out(words: list[str]) -> None:
    _, flags, _ = parse(words)
    if not flags:
        return
    assert len(flags.keys() & {"to", "to-file", "to-group"}) == 1, "exactly one of --to, --to-file, --to-group"
    to = flags.get("to")
    assert to is None or to in ("start", "end") or (to.isdigit() and len(to) in (10, 13, 19))
    # Both widen what a mistyped name can do; see the traps.
    assert "topics" in flags
    assert "allow-new-topics" not in flags


def test_the_reset_stops_waits_seeks_reads_back_and_starts() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    reset = next(block for block in blocks if "--to start" in block).splitlines()
    steps = ("stop summarizer", "--print-summary", "--to start", "--print-commits", "start summarizer")
    assert [step in line for step, line in zip(steps, reset, strict=True)] == [True] * len(steps)


@pytest.mark.parametrize("words", [line for line in shell_lines() if line[0] == "docker"], ids=" ".join)
def test_compose_has_the_verb_and_the_service(words: list[str]) -> None:
    assert words[:2] == ["docker", "compose"]
    assert words[2] in COMPOSE
    named = [word.partition(":")[0] for word in words[3:] if not word.startswith("-")]
    if words[2] in ("stop", "start", "restart", "exec"):
        assert named[0] in SERVICES
    elif words[2] in ("run", "cp"):
        assert set(named) & set(SERVICES)


def test_the_exports_reach_the_published_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"STREAMS_{name.upper()}", raising=False)
    exports = [line[1].split("=", 1) for line in shell_lines() if line[0] == "export"]
    for name, value in exports:
        assert name.removeprefix("STREAMS_").lower() in Settings.model_fields
        monkeypatch.setenv(name, value)
    settings = Settings()
    reached = f"{settings.bootstrap_servers} {settings.registry_url} {settings.connect_url} {settings.api_url}"
    ports = {int(port) for port in re.findall(r":(\d+)", reached)} | {settings.db_port}
    published = [port.split(":") for each in SERVICES.values() for port in each.get("ports", [])]
    assert ports == {int(outside) for _, outside, inside in published if inside not in ("9644", "8080", "8001")}
    assert settings.db_host == "localhost"


def test_every_address_in_the_readme_is_published() -> None:
    published = {int(port.split(":")[1]) for each in SERVICES.values() for port in each.get("ports", [])}
    assert {int(port) for port in re.findall(r"localhost:(\d+)", README)} == published
