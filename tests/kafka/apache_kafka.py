"""Apache Kafka on this machine: its jars, and clusters of one or more brokers, each a Java process.

Needs Java 17 or newer. The jars come from Maven, which has to be there when a release is used for the first time.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from fakebroker.errors import FakebrokerError
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.cached_folder import cached_folder
from tests.support.wire_client import WireClient

RELEASES = {"4.0": "4.0.2", "4.1": "4.1.2", "4.2": "4.2.2", "4.3": "4.3.1", "4.4": "4.4.0"}
"""The newest patch of each release."""

_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_READY_S = 90
_PORTS = range(20_000, 30_000)
_MAIN_CLASS, _FORMATTER = "kafka.Kafka", "kafka.tools.StorageTool"
_JAVA_OPTIONS = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fakebroker</groupId><artifactId>apache-kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{0}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{0}</version></dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{0}</version>
      <!-- 70 MB, and unused by stores in memory. -->
      <exclusions><exclusion><groupId>org.rocksdb</groupId><artifactId>rocksdbjni</artifactId></exclusion></exclusions>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
# The shell ends Java when its own stdin ends, which happens when this process ends in any way.
_SUPERVISOR = '"$@" & pid=$!; echo $pid >"$PID_FILE"; cat >/dev/null; kill -9 $pid 2>/dev/null'


class KafkaError(FakebrokerError):
    """Apache Kafka cannot be installed or started; the message has the end of its output."""


def jars(release: str) -> Path:
    """Return the folder with the jars of a release, which Maven fills when the release is used for the first time.

    The folder is below `XDG_CACHE_HOME`, and survives runs.

    Args:
        release: A key of `RELEASES`, such as "4.2", or a full version.

    Raises:
        KafkaError: Maven has failed.
    """
    version = RELEASES.get(release, release)
    pom = _POM.format(version)

    def fill(folder: Path) -> None:
        (folder / "pom.xml").write_text(pom)
        maven = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        done = subprocess.run([*maven, "-DoutputDirectory=."], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KafkaError(f"Maven could not resolve Apache Kafka {version}:\n{done.stdout[-2_000:]}")

    return cached_folder(f"apache-kafka-{version}", pom, fill)


def free_ports(number: int) -> list[int]:
    """Return ports that no process listens on.

    They are below those that systems give to port 0. Brokers keep on connecting to a broker that was killed, and nobody
    else should get its port.
    """
    found: list[int] = []
    for port in Random().sample(_PORTS, len(_PORTS)):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        found.append(port)
        if len(found) == number:
            return found
    raise KafkaError(f"no {number} free ports from {_PORTS.start} to {_PORTS.stop - 1}")


def java(program: str = "java") -> str:
    """Return the path of Java, or of another program of its kit: that of `JAVA_HOME`, or the first one in `PATH`."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / program) if home else program


class KafkaBroker:
    """One broker, which may be a controller, too. Its data survive `kill` and `start`.

    Attributes:
        node_id: Its node id, from 1.
        host, port: The address of its listener for clients.
        pid: The process id of Java; None while it is stopped.
    """

    def __init__(self, node_id: int, port: int, folder: Path, class_path: str) -> None:
        self.node_id, self.host, self.port = node_id, "127.0.0.1", port
        self.pid: int | None = None
        self._folder, self._class_path = folder, class_path
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def properties(self) -> Path:
        """The file with the broker's settings."""
        return self._folder / "server.properties"

    def java(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command that runs a class of Kafka."""
        return [java(), *_JAVA_OPTIONS, "-cp", self._class_path, main_class, *arguments]

    def start(self) -> None:
        """Start the process; does not wait until it is ready."""
        pid_file = self._folder / "pid"
        pid_file.unlink(missing_ok=True)
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", _SUPERVISOR, "sh", *self.java(_MAIN_CLASS, str(self.properties))],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, "PID_FILE": str(pid_file)},
                start_new_session=True,  # Ctrl+C in a terminal goes to the tests, which end the broker.
            )
        deadline = time.monotonic() + _READY_S
        while not (pid_file.exists() and (text := pid_file.read_text()).endswith("\n")):
            if time.monotonic() > deadline:
                raise KafkaError(f"broker {self.node_id} was not started in {_READY_S} s")
            time.sleep(0.01)
        self.pid = int(text)

    def is_running(self) -> bool:
        """Return whether the process runs."""
        if self.pid is None:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def stop(self) -> None:
        """Stop the broker as its operator does: it hands over its partitions, then its process ends."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self.pid is None:
            return
        if self.is_running():
            os.kill(self.pid, how)
        deadline = time.monotonic() + _READY_S
        while self.is_running():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.02)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._process = self.pid = None

    def output(self) -> str:
        """Return the end of what the broker has logged."""
        path = self._folder / "output"
        return path.read_text(errors="replace")[-3_000:] if path.exists() else ""


class ApacheKafka:
    """A cluster of Apache Kafka on the loopback address. A context manager that starts it, and ends it.

    Args:
        release: A key of `RELEASES`, such as "4.2", or a full version.
        brokers: The number of brokers.
        controllers: How many of them, from the first one, are controllers, too; all by default.
        racks: The racks of the brokers, if they have some.
        config: Settings of all brokers, by Kafka's names. They override the defaults here; None removes one.

    Attributes:
        brokers: The brokers, by node id.
        folder: Has settings, output and data of the brokers; removed at the end.

    Raises:
        KafkaError: On entering: Maven or Kafka has failed, or a broker is not ready in time.
    """

    def __init__(
        self,
        release: str,
        brokers: int = 1,
        config: Mapping[str, object] | None = None,
        controllers: int | None = None,
        racks: Sequence[str] = (),
    ) -> None:
        self.release = release
        self._number, self._config, self._racks = brokers, dict(config or {}), racks
        self._controllers = brokers if controllers is None else controllers
        self.brokers: dict[int, KafkaBroker] = {}
        self.folder = Path()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in self.brokers.values())

    def __enter__(self) -> Self:
        class_path = f"{jars(self.release)}/*"
        self.folder = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        try:
            self._write_files(class_path)
            self._format()
            for broker in self.brokers.values():
                broker.start()
            self.wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_files(self, class_path: str) -> None:
        ports = free_ports(2 * self._number)
        clients, controllers = ports[: self._number], ports[self._number :][: self._controllers]
        for node_id, (port, controller) in enumerate(zip(clients, ports[self._number :], strict=True), 1):
            is_controller = node_id <= self._controllers
            folder = self.folder / f"broker-{node_id}"
            folder.mkdir()
            broker = self.brokers[node_id] = KafkaBroker(node_id, port, folder, class_path)
            replicas = min(3, self._number)
            settings: dict[str, object] = {
                "process.roles": "broker,controller" if is_controller else "broker",
                "node.id": node_id,
                "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{each}" for n, each in enumerate(controllers, 1)),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}"
                + (f",CONTROLLER://127.0.0.1:{controller}" if is_controller else ""),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": folder / "data",
                "broker.rack": self._racks[node_id - 1] if self._racks else None,
                "default.replication.factor": replicas,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": 1,
                "share.coordinator.state.topic.replication.factor": replicas,
                "share.coordinator.state.topic.min.isr": 1,
                # Threads and files for a machine that runs several brokers and their clients.
                "num.network.threads": 2,
                "num.io.threads": 4,
                "log.cleaner.dedupe.buffer.size": 2**22,
                "log.segment.bytes": 2**24,
                "log.index.size.max.bytes": 2**16,
                **self._config,
            }
            lines = (f"{key}={value}\n" for key, value in settings.items() if value is not None)
            broker.properties.write_text("".join(lines))

    def _format(self) -> None:
        """Format the data directories, at the same time."""
        running = [
            subprocess.Popen(
                broker.java(_FORMATTER, "format", "-t", _CLUSTER_ID, "-c", str(broker.properties)),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for broker in self.brokers.values()
        ]
        outputs = [each.communicate()[0] for each in running]
        for process, output in zip(running, outputs, strict=True):
            if process.returncode:
                raise KafkaError(f"Apache Kafka {self.release} could not format its data directory:\n{output}")

    def wait_until_ready(self, node_ids: Iterable[int] = ()) -> None:
        """Wait until brokers answer clients, and know each other; by default all brokers."""
        deadline = time.monotonic() + _READY_S
        for node_id in node_ids or self.brokers:
            broker = self.brokers[node_id]
            while not self._is_ready(broker):
                if not broker.is_running():
                    raise KafkaError(f"broker {node_id} of Apache Kafka {self.release} has ended:\n{broker.output()}")
                if time.monotonic() > deadline:
                    raise KafkaError(f"broker {node_id} is not ready after {_READY_S} s:\n{broker.output()}")
                time.sleep(0.05)

    def _is_ready(self, broker: KafkaBroker) -> bool:
        """Return whether a broker answers, and knows all brokers that run."""
        try:
            with WireClient(broker) as client:
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                known = client.ask(request, MetadataResponse).brokers
        except OSError:
            return False
        return {each.node_id for each in known} == {each.node_id for each in self.brokers.values() if each.is_running()}
