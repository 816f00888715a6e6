"""Processes that run clients of other languages, and answer calls in JSON; see `java/Driver.java` and `go/main.go`.

The programs are compiled when they are used for the first time, and again when their sources have changed.
"""

import atexit
import functools
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fakebroker.kafka.jars import Artifact, cached_folder, find_java, jars, version_of
from tests.support import programs
from tests.support.kafka_clients.client import Record

KAFKA = "4.4"
"""The release of the Java clients and of Kafka's tools, unless a test chooses another one."""

_RELEASE = ContextVar("release", default=KAFKA)

FOLDER = Path(__file__).parent
JAVA_OPTIONS = (
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)


class DriverError(Exception):
    """A client in another process has raised an error.

    Attributes:
        aborts: Whether a transaction may be aborted after it.
    """

    def __init__(self, message: str, aborts: bool) -> None:
        super().__init__(message)
        self.aborts = aborts


class Driver:
    """A running process. It answers one call at a time.

    Args:
        command: The program with its arguments.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lock = threading.Lock()

    def call(self, name: str, **arguments: Any) -> Any:
        """Return the answer to a call.

        Raises:
            DriverError: The client has raised an error.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            stdin.write(json.dumps({"call": name, **arguments}).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        assert line, f"the process has ended during {name}({arguments})"
        answer = json.loads(line)
        if "error" in answer:
            raise DriverError(answer["error"], answer.get("aborts", False))
        return answer["value"]

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def java_clients(release: str) -> Iterator[None]:
    """Let new Java clients in a block be those of a release, such as "4.4"."""
    before = _RELEASE.set(release)
    yield
    _RELEASE.reset(before)


def java(program: str = "java") -> str:
    """Return the path of Java, or of another program of its kit."""
    return str(find_java().path.with_name(program))


def client_jars(release: str) -> Path:
    """Return the folder with the jars of Kafka, its tools and its streams."""
    version = version_of(release)
    tools = Artifact("org.apache.kafka", "kafka-tools", version)
    # 70 MB, and unused by stores in memory.
    streams = Artifact("org.apache.kafka", "kafka-streams", version, without=("org.rocksdb:rocksdbjni",))
    return jars(release, (tools, streams))


def java_driver() -> Driver:
    """Return the process of the Java clients of a release, which all tests of this process share."""
    return _java_driver(_RELEASE.get())


@functools.cache
def _java_driver(release: str) -> Driver:
    programs.require("java", "javac", "mvn")
    kafka, text = client_jars(release), (FOLDER / "java" / "Driver.java").read_text()
    if release >= "4.4":
        text = text.replace("common.utils.Exit", "common.utils.internals.Exit")

    def compile_to(folder: Path) -> None:
        source = folder / "Driver.java"
        source.write_text(text)
        _build([java("javac"), "--release", "17", "-nowarn", "-cp", f"{kafka}/*", "-d", str(folder), str(source)])

    classes = cached_folder("java-clients", f"{kafka}\n{text}", compile_to)
    return _lasting([java(), *JAVA_OPTIONS, "-cp", f"{classes}:{kafka}/*", "Driver"])


@functools.cache
def go_driver() -> Driver:
    """Return the process of the Go clients, which all tests of this process share."""
    programs.require("go")
    sources = sorted([*(FOLDER / "go").glob("*.go"), *(FOLDER / "go").glob("go.*")])

    def build_to(folder: Path) -> None:
        # Without optimizations, the first build takes two thirds of the time.
        options = ("-ldflags=-w", "-gcflags=all=-N -l", "-buildvcs=false")
        _build(["go", "build", *options, "-o", str(folder / "clients"), "."], cwd=FOLDER / "go", CGO_ENABLED="0")

    folder = cached_folder("go-clients", "\n".join(each.read_text() for each in sources), build_to)
    return _lasting([str(folder / "clients")])


def _build(command: Sequence[str], cwd: Path | None = None, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"


def _lasting(command: Sequence[str]) -> Driver:
    """Start a process that ends with this one."""
    driver = Driver(command)
    atexit.register(driver.end)
    return driver


class Remote:
    """An object of a client in another process.

    Args:
        driver: The process.
        call: The call that makes the object.
        arguments: Arguments of that call.
    """

    def __init__(self, driver: Driver, call: str, **arguments: Any) -> None:
        self._driver = driver
        self.id: int = driver.call(call, **arguments)

    def call(self, name: str, **arguments: Any) -> Any:
        """Return the answer to a call of the object.

        Raises:
            DriverError: The client has raised an error.
        """
        return self._driver.call(name, on=self.id, **arguments)


def to_json(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return records as arguments of calls."""
    return [
        {
            "value": _hex(record.value),
            "key": _hex(record.key),
            "headers": [[name, value.hex()] for name, value in record.headers],
            "timestamp_ms": record.timestamp_ms,
            "partition": record.partition,
        }
        for record in records
    ]


def from_json(records: Sequence[dict[str, Any]]) -> list[Record]:
    """Return the records of an answer."""
    return [
        Record(
            value=_bytes(record["value"]),
            key=_bytes(record["key"]),
            headers=tuple((name, bytes.fromhex(value)) for name, value in record["headers"]),
            timestamp_ms=record["timestamp_ms"],
            partition=record["partition"],
        )
        for record in records
    ]


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)
