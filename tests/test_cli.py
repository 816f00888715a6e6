"""The process: its first line, its signals, its errors."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.wire_client import TIMEOUT_S, WireClient, find_coordinator


def fakebroker(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fakebroker", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve(number: signal.Signals) -> None:
    with fakebroker("serve", "--port", "0", "--brokers", "3", "--topic", "orders:6") as process:
        line = first_line(process)
        name, _, servers = line.strip().partition("=")
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
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        assert out == ""
        assert "Traceback" not in err


def test_an_unknown_proposal_is_one_sentence() -> None:
    with fakebroker("serve", "--port", "0", "--proposal", "batch-join", "--proposal", "x") as process:
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 1
        assert err == "fakebroker: proposals[1]='x': expected one of batch-join\n"


def test_serve_does_what_comes_on_stdin() -> None:
    with fakebroker("serve", "--port", "0", "--brokers", "2", "--as-version", "2.8", "--events") as process:
        servers = first_line(process).partition("=")[2].strip().split(",")
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write('{"do": "stop_broker"}\n{"do": "stop_broker", "node_id": 2}\n')
        process.stdin.close()
        while "event done" not in process.stderr.readline():
            assert process.poll() is None
        with WireClient(BrokerView(1, "127.0.0.1", int(servers[0].rpartition(":")[2]), True)) as wire:
            metadata = wire.ask(MetadataRequest(topics=None), MetadataResponse, version=9)
            assert [broker.node_id for broker in metadata.brokers] == [1]
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)
        assert process.returncode == 0


def test_an_event_that_no_method_can_make_sense_of_keeps_nothing_from_the_next_one() -> None:
    events = '{"do": "fail", "api": "Heartbeat", "delay_s": ["a", "b"]}\n{"do": "clear_faults"}\n'
    with fakebroker("serve", "--port", "0", "--events", "--until-stdin-ends") as process:
        _, told = process.communicate(events, timeout=TIMEOUT_S)
    assert '"delay_s": ["a", "b"]}: 2 errors' in told
    assert 'event done: {"do": "clear_faults"}' in told


def test_serve_ends_with_who_started_it() -> None:
    with fakebroker("serve", "--port", "0", "--until-stdin-ends") as process:
        assert first_line(process)
        assert process.stdin is not None
        process.stdin.write('{"do": "stop_broker", "node_id": 1}\n')  # No --events: nothing is done.
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert "event" not in process.stderr.read()


def test_serve_at_ports_in_a_row() -> None:
    for first in range(30000 + os.getpid() % 1000 * 3, 60000, 3):
        with fakebroker("serve", "--port", str(first), "--brokers", "3") as process:
            line = first_line(process)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=TIMEOUT_S)
        if line:
            expected = ",".join(f"127.0.0.1:{first + step}" for step in range(3))
            assert line == f"bootstrap.servers={expected}\n"
            return
        assert "the port is in use" in err


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with fakebroker("serve", "--port", str(port)) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert out == ""
    assert err == f"fakebroker: cannot listen on 127.0.0.1:{port}: the port is in use\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--topic", "orders"], "--topic='orders': expected NAME:PARTITIONS, such as orders:6"),
        (
            ["--topic", f"orders:{'9' * 5000}"],
            f"--topic='orders:{'9' * 189}...: expected NAME:PARTITIONS, such as orders:6",
        ),
        (["--control", f"h:{'9' * 5000}"], f"--control='h:{'9' * 194}...: expected HOST:PORT, such as 127.0.0.1:9644"),
        (["--config", "x"], "--config='x': expected KEY=VALUE, such as group.max.size=100"),
        (["--config", "group.max.size=0"], "group.max.size=0: expected an integer from 1 to 2147483647"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], sentence: str) -> None:
    with fakebroker("serve", "--port", "0", *arguments) as process:
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert err == f"fakebroker: {sentence}\n"


def test_version() -> None:
    with fakebroker("--version") as process:
        out, _ = process.communicate(timeout=TIMEOUT_S)
    assert out.startswith("fakebroker 0.")
