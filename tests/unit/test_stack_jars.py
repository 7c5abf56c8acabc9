"""The cache of jars: fetched from a real HTTP server, checked, healed; each fault is one sentence."""

from __future__ import annotations

import errno
import hashlib
import io
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import jgo.maven._core as jgo_core
import pytest
from rich.console import Console

from streams.errors import StackError
from streams.stack import files, jars
from streams.stack.jars import Artifact

JAR = "org.example:some-lib:1.2"
TARS = ("io.debezium:connector:3:plugin:tar.gz", "io.registry:app:3:all:tar.gz")


class Quiet(SimpleHTTPRequestHandler):
    faults: ClassVar[list[str]] = []  # taken one by one, each spoils one answer

    def do_GET(self) -> None:
        if not self.faults:
            super().do_GET()
        elif self.faults.pop() == "busy":
            self.send_error(503)
        else:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"cut short")
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class World:
    """A Maven repository on this machine, the lists of infra/local that name what is in it, and a cache."""

    def __init__(self, folder: Path, url: str) -> None:
        self.repository, self.infra, self.cache = folder / "repository", folder / "infra", folder / "the cache"
        self.url = url
        self.infra.mkdir()
        self.publish("kafka-jars.txt", {JAR: b"a jar"})
        self.publish(
            "archives.txt", {name: archive({"lib/a.jar": b"class", "app-runner.jar": b"main"}) for name in TARS}
        )

    def publish(self, list_name: str, contents: dict[str, bytes]) -> None:
        lines = ["# a comment"]
        for coordinate, content in contents.items():
            artifact = Artifact(coordinate, hashlib.sha256(content).hexdigest(), len(content))
            path = self.published(artifact)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            lines.append(f"{coordinate} {artifact.sha256} {artifact.bytes}")
        (self.infra / list_name).write_text("\n".join(lines))

    def published(self, artifact: Artifact) -> Path:
        return self.repository / artifact.path(Path()).relative_to("maven")

    def ensure(self) -> jars.Jars:
        return jars.ensure(self.cache, Console(file=io.StringIO()))

    @property
    def jar(self) -> Path:
        return Artifact(JAR, "", 0).path(self.cache)


def archive(contents: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "repository"))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setitem(jgo_core.DEFAULT_REMOTE_REPOS, "central", url)
        made = World(tmp_path, url)
        monkeypatch.setattr(jars, "infra_folder", lambda: made.infra)
        yield made
        server.shutdown()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens where the repository should be; undone with the test."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        port = server.server_port
    monkeypatch.setitem(jgo_core.DEFAULT_REMOTE_REPOS, "central", f"http://127.0.0.1:{port}")


def test_fetches_checks_and_unpacks_all(world: World) -> None:
    got = world.ensure()
    assert [path.read_bytes() for path in got.kafka] == [b"a jar"]
    assert (got.debezium / "lib" / "a.jar").read_bytes() == b"class"
    assert (got.registry / "app-runner.jar").read_bytes() == b"main"
    assert {path.name for path in world.cache.iterdir()} == {"maven", "unpacked", "checked.json", "lock"}


def test_a_repository_that_stumbles_is_asked_again(world: World) -> None:
    Quiet.faults[:] = ["busy", "cut"]
    assert world.ensure().kafka[0].read_bytes() == b"a jar"
    assert Quiet.faults == []


def test_a_warm_start_needs_no_network(world: World, request: pytest.FixtureRequest) -> None:
    before = world.ensure()
    request.getfixturevalue("offline")
    assert world.ensure() == before


def test_an_offline_first_start_says_so_and_names_the_jar(world: World, offline: None) -> None:
    with pytest.raises(StackError, match=rf"^{JAR} could not be fetched: no Maven repository answers.*first start"):
        world.ensure()


@pytest.mark.parametrize("damage", [b"", b"a ja", b"b jar", b"a jar and more"])
def test_a_broken_jar_is_fetched_again(world: World, damage: bytes) -> None:
    world.ensure()
    world.jar.write_bytes(damage)
    assert world.ensure().kafka[0].read_bytes() == b"a jar"


def test_a_missing_jar_is_fetched_again(world: World) -> None:
    world.ensure()
    world.jar.unlink()
    assert world.ensure().kafka[0].read_bytes() == b"a jar"


def test_a_jar_that_is_not_the_listed_one_is_named_and_not_kept(world: World) -> None:
    world.published(Artifact(JAR, "", 0)).write_bytes(b"b jar")
    with pytest.raises(StackError, match=rf"^{JAR} was fetched, but its sha256"):
        world.ensure()
    assert not world.jar.exists()


def test_a_jar_that_no_repository_has_is_named(world: World) -> None:
    world.published(Artifact(JAR, "", 0)).unlink()
    with pytest.raises(StackError, match=rf"^{JAR} could not be fetched: no Maven repository has it"):
        world.ensure()


def test_a_damaged_folder_is_unpacked_again(world: World) -> None:
    folder = world.ensure().registry
    (folder / "lib" / "a.jar").unlink()
    (folder / "app-runner.jar").write_bytes(b"ma")
    assert (world.ensure().registry / "lib" / "a.jar").read_bytes() == b"class"
    assert (folder / "app-runner.jar").read_bytes() == b"main"


def test_a_killed_unpacking_leaves_nothing_half_made(world: World) -> None:
    folder = world.ensure().registry
    half = folder.with_name(folder.name + ".new")
    half.mkdir()
    (half / "rubbish").touch()
    (folder / "files.json").unlink()
    assert not (world.ensure().registry / "rubbish").exists()


def test_a_full_disk_is_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(jars, "_unpacked", full)
    with pytest.raises(StackError, match=r"^There is no disk space left in .*the cache\.$"):
        world.ensure()


def test_a_cache_that_cannot_be_made_is_one_sentence(world: World) -> None:
    world.cache.write_text("a file")
    with pytest.raises(StackError, match=r"the cache cannot be used: File exists\.$"):
        world.ensure()


def test_every_listed_artifact_is_whole() -> None:
    """Of the real lists: a coordinate, 64 hex digits, a size; nothing twice."""
    artifacts = [artifact for name in jars.LISTS for artifact in jars.listed(name)]
    assert all(len(bytes.fromhex(each.sha256)) == 32 and each.bytes > 0 for each in artifacts)
    assert len({each.path(Path()) for each in artifacts}) == len(artifacts) > 90
    assert {"org.apache.kafka:kafka-clients:4.3.1", "org.apache.kafka:connect-runtime:4.3.1"} <= {
        each.coordinate for each in artifacts
    }


def test_infra_folder_has_what_the_servers_read() -> None:
    names = {path.name for path in files.infra_folder().iterdir()}
    assert names >= {"broker.properties", "parity.properties", "worker.properties", "registry.properties", *jars.LISTS}
