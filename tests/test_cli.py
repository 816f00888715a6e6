"""The command line: the process of `fakebroker serve`, its output and signals; errors of all commands on one line."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fakebroker.cli.main import main
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.security.certificates import client_context
from tests.support.wire_client import TIMEOUT_S, WireClient, find_coordinator

V6 = "HOST:PORT with an IPv6 address in brackets, such as [::1]:9092"
Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a command in this process, and returns its exit status, stdout and stderr."""

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["fakebroker", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        return exit_.value.code, *capsys.readouterr()

    return run


def start_serve(*arguments: str) -> "subprocess.Popen[str]":
    """Start `fakebroker serve` in a new process."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "fakebroker", "serve", *arguments]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def first_broker(process: "subprocess.Popen[str]") -> BrokerView:
    port = first_line(process).partition(",")[0].strip().rpartition(":")[2]
    return BrokerView(1, "127.0.0.1", int(port), True)


# The process


def test_serve_prints_the_ports_of_its_brokers_and_stops_at_sigint() -> None:
    with start_serve("--port", "0", "--brokers", "3", "--topic", "orders:6") as process:
        name, _, servers = first_line(process).strip().partition("=")
        assert name == "bootstrap.servers"
        ports = [int(server.removeprefix("127.0.0.1:")) for server in servers.split(",")]
        assert len(ports) == 3
        with WireClient(BrokerView(1, "127.0.0.1", ports[0], True)) as wire:
            metadata = wire.ask(MetadataRequest(topics=None), MetadataResponse)
            assert [(broker.node_id, broker.port) for broker in metadata.brokers] == list(enumerate(ports, 1))
            topics = {topic.name: len(topic.partitions) for topic in metadata.topics}
            assert topics == {"orders": 6}
            assert wire.ask(find_coordinator("g"), FindCoordinatorResponse).coordinators[0].port in ports
            metadata = wire.ask(MetadataRequest(topics=None), MetadataResponse)
            topics = {topic.name: len(topic.partitions) for topic in metadata.topics}
            assert topics == {"__consumer_offsets": 50, "orders": 6}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        assert out == ""
        assert "Traceback" not in err


EVENTS = [
    '{"do": "broker.stop"}',
    '{"do": "inject_fault", "api": "Heartbeat", "delay_s": ["a", "b"]}',
    '{"do": "topic.create", "topic": "orders"}',
    '{"do": "topic.produce", "topic": "orders", "values": ["a", {"base64": "/w=="}]}',
    '{"do": "broker.stop", "node_id": 2}',
]


def test_serve_runs_the_events_on_stdin_and_stops_at_sigterm() -> None:
    with start_serve("--port", "0", "--brokers", "2", "--as-version", "2.8", "--events") as process:
        broker = first_broker(process)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("\n".join(EVENTS))
        process.stdin.close()
        log = ""
        while 'event done: {"do": "broker.stop"' not in log:
            assert process.poll() is None
            log += process.stderr.readline()
        assert 'event failed: {"do": "broker.stop"}: node_id is missing' in log
        assert '"delay_s": ["a", "b"]}: 2 errors' in log
        assert 'event done: {"do": "topic.produce"' in log
        assert 'event done: {"do": "broker.stop", "node_id": 2}' in log
        with WireClient(broker) as wire:
            metadata = wire.ask(MetadataRequest(topics=None), MetadataResponse, version=9)
            assert [broker.node_id for broker in metadata.brokers] == [1]
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)
        assert process.returncode == 0


def test_serve_has_the_given_node_ids_and_racks() -> None:
    options = ("--port", "0", "--first-node-id", "0", "--rack", "a", "--rack", "b", "--until-stdin-ends")
    with start_serve(*options) as process, WireClient(first_broker(process)) as wire:
        metadata = wire.ask(MetadataRequest(topics=None), MetadataResponse)
        assert [(broker.node_id, broker.rack) for broker in metadata.brokers] == [(0, "a"), (1, "b"), (2, "a")]
        assert metadata.controller_id == 0
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0


def test_serve_can_be_as_slow_as_kafka_at_its_first_use() -> None:
    options = ("--port", "0", "--brokers", "1", "--first-use", "kafka", "--clock", "manual", "--until-stdin-ends")
    with start_serve(*options) as process, WireClient(first_broker(process)) as wire:
        (found,) = wire.ask(find_coordinator("g"), FindCoordinatorResponse).coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0


def test_events_on_stdin_advance_a_manual_clock() -> None:
    options = ("--clock", "manual", "--port", "0", "--brokers", "1", "--topic", "orders:1", "--events")
    with start_serve(*options) as process:
        broker = first_broker(process)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write('{"do": "group.seed", "group_id": "g", "members": 1, "topics": ["orders"]}\n')
        process.stdin.write('{"do": "advance", "seconds": 45}\n')
        process.stdin.flush()
        done = 0
        while done < 2:
            line = process.stderr.readline()
            assert line, "the process has ended"
            assert "event failed" not in line
            done += "event done" in line
        with WireClient(broker) as wire:
            (group,) = wire.ask(ListGroupsRequest(), ListGroupsResponse).groups
            assert (group.group_id, group.group_state) == ("g", "Empty")
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


@pytest.mark.slow
def test_serve_stops_at_the_end_of_stdin() -> None:
    with start_serve("--port", "0", "--until-stdin-ends") as process:
        assert first_line(process)
        assert process.stdin is not None
        process.stdin.write('{"do": "broker.stop", "node_id": 1}\n')  # Ignored without --events.
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert "event" not in process.stderr.read()


@pytest.mark.slow
def test_serve_ends_without_an_error_if_a_fault_was_applied_to_no_request() -> None:
    with start_serve("--port", "0", "--events", "--until-stdin-ends") as process:
        assert first_line(process)
        out, err = process.communicate('{"do": "inject_fault", "api": "Heartbeat", "drop": true}\n', TIMEOUT_S)
        assert (process.returncode, "event done" in out + err, "no request" in err) == (0, True, False)


@pytest.mark.slow
def test_serve_has_users_and_listeners_and_shows_no_password(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text('alice = "horse-battery"\n')
    listeners = ("--listener", "IN:PLAINTEXT", "--listener", "OUT:SASL_PLAINTEXT")
    with start_serve("--port", "0", "--brokers", "1", "--users", str(users), *listeners) as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("bootstrap.servers=127.0.0.1:")
        assert second.startswith("bootstrap.servers.OUT=127.0.0.1:")
        with WireClient(BrokerView(1, "127.0.0.1", int(second.rpartition(":")[2]), True)) as wire:
            assert not wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse).error_code
            token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0horse-battery")
            assert not wire.ask(token, SaslAuthenticateResponse).error_code
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert "battery" not in f"{process.args!r} {first} {second} {out} {err}"


@pytest.mark.slow
def test_serve_makes_certificates_and_says_where_they_are() -> None:
    with start_serve("--port", "0", "--brokers", "1", "--tls") as process:
        address = first_broker(process)
        name, _, ca_file = first_line(process).strip().partition("=")
        assert name == "ssl.truststore.location"
        with WireClient(address, tls=client_context(ca_file)) as wire:
            assert wire.ask(MetadataRequest(topics=[]), MetadataResponse).brokers
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert not Path(ca_file).exists()


@pytest.mark.parametrize("text", ["alice = 724193", "alice 724193", "[alice]\nx = 724193"])
def test_invalid_users_are_an_error_without_their_passwords(run: Run, tmp_path: Path, text: str) -> None:
    users = tmp_path / "users.toml"
    users.write_text(text)
    status, out, err = run("serve", "--port", "0", "--users", str(users))
    assert status
    assert "users" in err
    assert "724" not in out + err


def test_an_unknown_protocol_of_a_listener_is_an_error(run: Run) -> None:
    _, _, err = run("serve", "--port", "0", "--listener", "OUT:TLS")
    expected = "NAME:PROTOCOL with PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL"
    assert f"--listener='OUT:TLS': expected {expected}" in err


def test_a_listener_with_tls_needs_certificates(run: Run) -> None:
    _, _, err = run("serve", "--port", "0", "--listener", "OUT:SSL")
    assert "ssl.keystore.location is missing: expected a PEM file" in err
    assert "--tls" in err


@pytest.mark.slow
def test_serve_uses_consecutive_ports() -> None:
    for first in range(30000 + os.getpid() % 1000 * 3, 60000, 3):
        with start_serve("--port", str(first), "--brokers", "3") as process:
            line = first_line(process)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=TIMEOUT_S)
        if line:
            expected = ",".join(f"127.0.0.1:{first + step}" for step in range(3))
            assert line == f"bootstrap.servers={expected}\n"
            return
        assert "the port is in use" in err


@pytest.mark.slow
def test_a_port_in_use_is_an_error_on_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with start_serve("--port", str(port)) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert out == ""
    assert err == f"fakebroker: cannot listen on 127.0.0.1:{port}: the port is in use\n"


# Errors and output of the command, without a process


def test_invalid_options_are_errors_on_one_line(run: Run, subtests: pytest.Subtests) -> None:
    digits = "9" * 5000
    cases = [
        (["--topic", "orders"], "--topic='orders': expected NAME:PARTITIONS, such as orders:6"),
        (
            ["--topic", f"orders:{digits}"],
            f"--topic='orders:{digits[:189]}...: expected NAME:PARTITIONS, such as orders:6",
        ),
        (
            ["--topic", "orders:6", "--topic", "news:1", "--topic", "news:1", "--topic", "orders:3"],
            "--topic='orders:3': expected orders once: --topic='orders:6' is given, too",
        ),
        (
            ["--topic", "a.b:1", "--topic", "a_b:1"],
            "topic='a_b': expected a name that differs from topic 'a.b' in more than '.' and '_', "
            "which are equal in metrics",
        ),
        (
            ["--config", "group.max.size=1", "--config", "group.max.size=2"],
            "--config='group.max.size=2': expected group.max.size once: --config='group.max.size=1' is given, too",
        ),
        (["--control", f"h:{digits}"], f"--control='h:{digits[:194]}...: expected HOST:PORT, such as 127.0.0.1:9644"),
        (["--control", "::1:9644"], f"--control='::1:9644': expected {V6}"),
        (["--config", "x"], "--config='x': expected KEY=VALUE, such as group.max.size=100"),
        (["--config", "group.max.size=0"], "group.max.size=0: expected an integer from 1 to 2147483647"),
        (["--clock", "manual", "--speed", "2"], "--speed=2.0: expected 1 with --clock manual"),
        (["--proposal", "batch-join", "--proposal", "x"], "proposals[1]='x': expected one of batch-join, rewrite"),
    ]
    for options, error in cases:
        with subtests.test(error=error):
            assert run("serve", "--port", "0", *options) == (2, "", f"fakebroker: {error}\n")


def test_unknown_options_are_usage_errors(run: Run) -> None:
    status, out, err = run("serve", "--port", "many")
    assert (status, out) == (2, "")
    assert "Invalid value for '--port': 'many' is not a valid integer" in err


def test_the_version_is_printed(run: Run) -> None:
    status, out, err = run("--version")
    assert out.startswith("fakebroker 0.")
    assert not status
    assert not err
