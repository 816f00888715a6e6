"""Apache Kafka on this machine: clusters of one or more brokers, each a Java process."""

import base64
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from fakebroker.errors import ConfigError, check_integer, cut_line
from fakebroker.kafka import jars as kafka_jars
from fakebroker.kafka.jars import Java, KafkaError, Say, cached_folder, find_java, version_in, version_of, writing
from fakebroker.protocol.frames import FrameBuffer, read_response, request_frame
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse

_HOST = "127.0.0.1"
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_READY_S, _STOP_S, _ANSWER_S, _POLL_S = 90, 30, 20, 0.02
_PORTS = range(20_000, 30_000)
_METADATA_VERSION = 12
_MAIN_CLASS, _FORMATTER = "kafka.Kafka", "kafka.tools.StorageTool"
_JAVA_OPTIONS = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_FORMATTED_BY = re.compile(r"log\.dirs?|metadata\.log\.dir|process\.roles|node\.id|unstable\..*")
"""Settings with which a copy of a formatted folder would not do."""
_FORMATTED, _ARCHIVE = "formatted", "classes.jsa"
_META, _LOCK = "meta.properties", ".lock"

# Java ends when stdin of its shell ends, which happens when this process ends in any way. stderr is the broker's log.
_SUPERVISOR = '"$@" >&2 & pid=$!; echo $pid; cat >/dev/null; kill -9 $pid 2>/dev/null; wait'
# The brokers have inherited the other end of stdin, too. So the folder is removed after they have ended.
_JANITOR = 'cat >/dev/null; rm -rf -- "$1"'

_EXCEPTION = re.compile(
    r'(?:Caused by: |Exception in thread "\S+" |Error.*?: )?(?:[\w$]+\.)+(\w*(?:Exception|Error): .+)'
)
_SHOWN_LINES, _LONGEST_LINE, _LONGEST_OUTPUT = 3, 500, 20_000
_FULL_BYTES = 2**14


def free_ports(number: int) -> list[int]:
    """Return ports that no process listens on.

    They are below those that systems give to port 0. Brokers keep on connecting to a broker that was killed, and nobody
    else should get its port.
    """
    found: list[int] = []
    for port in Random().sample(_PORTS, len(_PORTS)):
        try:
            socket.create_server((_HOST, port)).close()
        except OSError:
            continue
        found.append(port)
        if len(found) == number:
            return found
    raise KafkaError(f"no {number} free ports from {_PORTS.start} to {_PORTS.stop - 1}")


def reason_in(output: str) -> str:
    """Return the lines of Kafka's output that tell why a process has ended: the last exceptions, or the last lines."""
    lines = output.strip().splitlines()
    exceptions = [found[1] for line in lines if (found := _EXCEPTION.match(line))]
    others = [line for line in lines if not line.startswith(("\t", "WARNING: "))]
    last = list(dict.fromkeys(reversed(exceptions or others)))[:_SHOWN_LINES]
    return "\n".join(f"  {cut_line(line.strip(), _LONGEST_LINE)}" for line in reversed(last))


class KafkaBroker:
    """One broker, which may be a controller, too. Its data survive `kill` and `start`.

    Args:
        node_id: Its node id, from 1.
        port: The port of its listener for clients.
        folder: Has its settings, output and data.
        command: Runs Java with the jars of Kafka; the class and its arguments follow.
        inherited: A file descriptor that its processes keep open.

    Attributes:
        host, port: The address of its listener for clients.
        pid: The process id of Java; None while it is stopped.
    """

    def __init__(
        self, node_id: int, port: int, folder: Path, command: Sequence[str], inherited: int | None = None
    ) -> None:
        self.node_id, self.host, self.port = node_id, _HOST, port
        self.pid: int | None = None
        self._folder, self._command = folder, command
        self._inherited = () if inherited is None else (inherited,)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def properties(self) -> Path:
        """The file with the broker's settings."""
        return self._folder / "server.properties"

    @property
    def _log(self) -> Path:
        return self._folder / "output"

    def start(self) -> None:
        """Start the process; does not wait until it is ready."""
        with writing(self._folder), self._log.open("ab") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", _SUPERVISOR, "sh", *self._command, _MAIN_CLASS, str(self.properties)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                pass_fds=self._inherited,
                start_new_session=True,  # Ctrl+C in a terminal goes to this process, which ends the broker.
            )
        assert self._process.stdout is not None
        self.pid = int(self._process.stdout.readline())

    def is_running(self) -> bool:
        """Return whether the process runs."""
        if self.pid is None:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def is_ready(self, node_ids: Iterable[int]) -> bool:
        """Return whether the broker answers clients, and knows exactly these brokers."""
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        buffer, frames = FrameBuffer(), list[bytes]()
        try:
            with socket.create_connection((self.host, self.port), timeout=_ANSWER_S) as connection:
                connection.sendall(request_frame(request, _METADATA_VERSION, 1, "fakebroker"))
                while not frames:
                    data = connection.recv(2**16)
                    if not data:
                        return False
                    frames = buffer.feed(data)
        except OSError:
            return False
        _, response = read_response(MetadataResponse, _METADATA_VERSION, frames[0])
        return {each.node_id for each in response.brokers} == set(node_ids)

    def request_stop(self) -> None:
        """Let the broker begin to stop; does not wait."""
        if self.pid is not None and self.is_running():
            os.kill(self.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Stop the broker as its operator does: it hands over its partitions, then its process ends."""
        self.request_stop()
        deadline = time.monotonic() + _STOP_S
        while self.is_running() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self.kill()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.communicate()  # Closes stdin.
            self._process = self.pid = None

    def reason(self) -> str:
        """Return the lines of its output that tell why it has ended."""
        output = self._log.read_text(errors="replace")[-_LONGEST_OUTPUT:] if self._log.exists() else ""
        if shutil.disk_usage(self._folder).free < _FULL_BYTES:  # There may be no output then.
            return f"  No space left on device: {self._folder}"
        return reason_in(output) or "  it has logged nothing"


class ApacheKafka:
    """A cluster of Apache Kafka on the loopback address. A context manager that starts it, and ends it.

    Args:
        release: A key of `RELEASES`, such as "4.2", or a full version; by default the version of the jars in `jars`,
            else the newest release.
        brokers: The number of brokers.
        controllers: How many of them, from the first one, are controllers, too; all by default.
        racks: The rack of each broker; empty for no racks.
        config: Settings of all brokers, by Kafka's names. They override the defaults here; None removes one.
        port: The port of the first broker; the others use the ports that follow. 0 selects free ports.
        data_dir: Keep the data in this folder, and continue with them at the next start. Without it, they are in a
            temporary folder, which is removed at the end.
        jars: A folder with the jars of Kafka; by default `FAKEBROKER_KAFKA_JARS`, else they are downloaded.
        mirror: URL of the Maven repository for the jars; by default `FAKEBROKER_KAFKA_MIRROR`, else Maven Central.
        say: Gets lines about downloads and other work that is done only once.

    Attributes:
        release: The full version, after the start.
        brokers: The brokers, by node id.
        folder: Has settings, output and data of the brokers.

    Raises:
        ConfigError: An argument is invalid.
        KafkaError: On entering: a broker is not ready in time, has ended or cannot be started.
    """

    def __init__(
        self,
        release: str | None = None,
        brokers: int = 1,
        config: Mapping[str, object] | None = None,
        controllers: int | None = None,
        racks: Sequence[str] = (),
        *,
        port: int = 0,
        data_dir: Path | None = None,
        jars: Path | None = None,
        mirror: str | None = None,
        say: Say = kafka_jars.silent,
    ) -> None:
        check_integer("brokers", brokers, least=1)
        check_integer("port", port, least=0, most=65_535 - brokers + 1)
        if jars is None and os.environ.get(kafka_jars.JARS):
            jars = Path(os.environ[kafka_jars.JARS])
        if jars is not None:
            self.release = version_in(jars, release)
        else:
            self.release = version_of(release or [*kafka_jars.RELEASES][-1])
        self._number, self._config, self._racks = brokers, dict(config or {}), racks
        self._controllers = brokers if controllers is None else controllers
        self._port, self._data_dir, self._jars, self._mirror, self._say = port, data_dir, jars, mirror, say
        self._ended = ExitStack()
        self.brokers: dict[int, KafkaBroker] = {}
        self.folder = Path()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{each.host}:{each.port}" for each in self.brokers.values())

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # First what costs nothing, because the jars may have to be downloaded.
            self._check_ports()
            if self._data_dir is not None:
                self._lock_data_dir(self._data_dir.resolve(), stack)
            java = find_java()
            if self._jars is None:
                jars = kafka_jars.jars(self.release, mirror=self._mirror, say=self._say)
            else:
                jars = self._jars.resolve()
            command, prepared = self._prepare(java, jars)
            janitor = self._temporary_folder(stack) if self._data_dir is None else None
            with writing(self.folder):
                self._write_files(command, janitor)
                stack.callback(self._end)
                self._format(command, prepared)
            for broker in self.brokers.values():
                broker.start()
            self.wait_until_ready()
            self._ended = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.close()

    def _end(self) -> None:
        """End the brokers: at once, unless their data are kept."""
        if self._data_dir is None:
            for broker in self.brokers.values():
                broker.kill()
            return
        # At the next start, the controller would reject a broker that was killed, until its session has expired.
        for broker in self.brokers.values():
            broker.request_stop()
        for broker in self.brokers.values():
            broker.stop()

    def _prepare(self, java: Java, jars: Path) -> tuple[list[str], Path | None]:
        """Do once what makes later starts faster: format a folder, and archive the classes that a broker loads.

        Returns:
            The command that runs a class of Kafka, and the folder to copy; None if there is none.
        """
        files = sorted((each.name, each.stat().st_size) for each in jars.glob("*.jar"))
        options = [str(java.path), *_JAVA_OPTIONS]
        class_path = ["-cp", f"{jars}/*"]

        def fill(folder: Path) -> None:
            begun_s = time.monotonic()
            classes = folder / "classes"
            first = _FirstKafka(self.release, jars=jars)
            first.command = [*options, f"-XX:DumpLoadedClassList={classes}", *class_path]
            first.formatted = folder / _FORMATTED
            with first:
                pass
            # Without an archive, Java is slower. Another vendor's Java may not write one.
            archiving = [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={folder / _ARCHIVE}"]
            subprocess.run([*options, "-Xshare:dump", *archiving, *class_path], capture_output=True, check=False)
            classes.unlink(missing_ok=True)
            self._say(f"prepared faster starts in {time.monotonic() - begun_s:.0f} s")

        prepared = cached_folder(
            f"kafka-{self.release}-start",
            repr((str(java.path.resolve()), java.version, str(jars), files)),
            fill,
            waits=lambda: self._say(f"waiting for another process, which prepares Kafka {self.release}"),
            begins=lambda folder: self._say(f"preparing faster starts of Kafka {self.release}, Java {java.version}"),
        )
        archive = prepared / _ARCHIVE
        if archive.exists():
            options.append(f"-XX:SharedArchiveFile={archive}")
        is_usual = not any(_FORMATTED_BY.fullmatch(key) for key in self._config)
        return [*options, *class_path], prepared / _FORMATTED if is_usual else None

    def _check_ports(self) -> None:
        """Check that the given ports are free.

        Raises:
            KafkaError: A port is in use.
        """
        for port in range(self._port, self._port + self._number) if self._port else ():
            try:
                socket.create_server((_HOST, port)).close()
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno else error
                raise KafkaError(f"cannot listen on {_HOST}:{port}: {reason}") from None

    def _temporary_folder(self, stack: ExitStack) -> int:
        """Create the folder. Return the file descriptor after whose end it is removed."""
        with writing(Path(tempfile.gettempdir())):
            self.folder = Path(tempfile.mkdtemp(prefix="fakebroker-kafka-"))
        janitor = subprocess.Popen(
            ["sh", "-c", _JANITOR, "sh", str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        stack.callback(janitor.communicate)  # Closes stdin.
        assert janitor.stdin is not None
        return janitor.stdin.fileno()

    def _lock_data_dir(self, folder: Path, stack: ExitStack) -> None:
        """Use a folder whose data are kept.

        Raises:
            ConfigError: It has other files, or the data of another number of brokers.
            KafkaError: It is in use, or cannot be written.
        """
        self.folder = folder
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            names = {each.name for each in folder.iterdir()} - {_LOCK}
            if names and names != {f"broker-{n}" for n in range(1, self._number + 1)}:
                number = sum(name.startswith("broker-") for name in names)
                what = f"the data of {number} broker(s)" if number == len(names) else "other files"
                expected = f"an empty folder or the data of {self._number} broker(s); it has {what}"
                raise ConfigError.of("data_dir", str(folder), expected)
            lock = stack.enter_context((folder / _LOCK).open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KafkaError(f"data_dir={str(folder)!r}: another process uses it") from None

    def _write_files(self, command: Sequence[str], inherited: int | None) -> None:
        free = free_ports(3 * self._number)
        given = range(self._port, self._port + self._number)
        clients = list(given) if self._port else free[: self._number]
        others = [each for each in free if each not in clients][: self._number]
        controllers = others[: self._controllers]
        for node_id, (port, controller) in enumerate(zip(clients, others, strict=True), 1):
            is_controller = node_id <= self._controllers
            folder = self.folder / f"broker-{node_id}"
            folder.mkdir(exist_ok=True)
            broker = self.brokers[node_id] = KafkaBroker(node_id, port, folder, command, inherited)
            replicas = min(3, self._number)
            settings: dict[str, object] = {
                "process.roles": "broker,controller" if is_controller else "broker",
                "node.id": node_id,
                "controller.quorum.voters": ",".join(f"{n}@{_HOST}:{each}" for n, each in enumerate(controllers, 1)),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{_HOST}:{port}"
                + (f",CONTROLLER://{_HOST}:{controller}" if is_controller else ""),
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

    def _format(self, command: Sequence[str], formatted: Path | None) -> None:
        """Format the data folders that are new."""
        if formatted is None:
            self._run_formatter(command)
            return
        for node_id in self.brokers:
            data, copy = (self.folder / f"broker-{node_id}" / name for name in ("data", "copy"))
            if data.exists():
                continue
            shutil.rmtree(copy, ignore_errors=True)
            if node_id <= self._controllers:
                shutil.copytree(formatted, copy)
            else:
                copy.mkdir()
            # An id of Kafka does not begin with a hyphen.
            directory_id = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
            (copy / _META).write_text(
                f"version=1\ncluster.id={_CLUSTER_ID}\nnode.id={node_id}\ndirectory.id={directory_id}\n"
            )
            copy.rename(data)

    def _run_formatter(self, command: Sequence[str]) -> None:
        """Let Kafka format the data folders, at the same time."""
        options = ["--ignore-formatted", "-t", _CLUSTER_ID, "-c"]
        running = [
            subprocess.Popen(
                [*command, _FORMATTER, "format", *options, str(broker.properties)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for broker in self.brokers.values()
        ]
        outputs = [each.communicate()[0] for each in running]
        for process, output in zip(running, outputs, strict=True):
            if process.returncode:
                raise KafkaError(f"Kafka {self.release} cannot format its data folder:\n{reason_in(output)}")

    def check(self, node_ids: Iterable[int] = ()) -> None:
        """Check that brokers have not ended; by default all brokers.

        Raises:
            KafkaError: A broker has ended. The message has the reason.
        """
        for broker in [self.brokers[node_id] for node_id in node_ids or self.brokers]:
            if not broker.is_running():
                raise KafkaError(f"broker {broker.node_id} of Kafka {self.release} has ended:\n{broker.reason()}")

    def wait_until_ready(self, node_ids: Iterable[int] = ()) -> None:
        """Wait until brokers answer clients, and know each other; by default all brokers.

        Raises:
            KafkaError: A broker has ended, or is not ready in time.
        """
        node_ids = list(node_ids or self.brokers)
        deadline = time.monotonic() + _READY_S
        for broker in [self.brokers[node_id] for node_id in node_ids]:
            while not broker.is_ready(each.node_id for each in self.brokers.values() if each.is_running()):
                self.check(node_ids)
                if time.monotonic() > deadline:
                    raise KafkaError(f"broker {broker.node_id} is not ready after {_READY_S} s:\n{broker.reason()}")
                time.sleep(_POLL_S)
        self.check(node_ids)


class _FirstKafka(ApacheKafka):
    """A cluster that is started once to prepare later ones.

    Attributes:
        command: Runs a class of Kafka.
        formatted: Gets a copy of the formatted folder, without the file that differs between brokers.
    """

    command: list[str]
    formatted: Path

    def _prepare(self, java: Java, jars: Path) -> tuple[list[str], Path | None]:
        return self.command, None

    def _format(self, command: Sequence[str], formatted: Path | None) -> None:
        super()._format(command, formatted)
        data = self.folder / "broker-1" / "data"
        shutil.copytree(data, self.formatted, ignore=shutil.ignore_patterns(_META))
