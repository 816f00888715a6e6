"""`fakebroker top` as a process: in a terminal with keys and signals, without a terminal, and its errors."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from math import nan

import pytest

from fakebroker import FakeCluster
from fakebroker.control import Client
from fakebroker.control.server import ControlServer
from fakebroker.control.top import screen
from fakebroker.control.top.screen import watch
from fakebroker.errors import ConfigError, FakebrokerError
from tests.support.control.browser import rebalance_waiting_for_slow
from tests.support.control.fake_control_server import (
    NOW_MS,
    FakeControlServer,
    broker_row,
    fake_control_server,
    group_row,
    overview,
    raw_server,
)
from tests.support.control.serve_process import serve_process
from tests.support.control.terminal import TIMEOUT_S, Terminal
from tests.support.control.top_process import run_top, top_command

QUICK = ("--every", "0.1")


@pytest.fixture(name="server")
def _server() -> Iterator[FakeControlServer]:
    with fake_control_server() as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_screen_is_refreshed_and_restored_at_the_end(server: FakeControlServer, size: tuple[int, int]) -> None:
    server.groups[0] = group_row(1, state="PreparingRebalance", why="2 of 3 have joined")
    with Terminal(top_command(server.url, *QUICK), *size) as terminal:
        terminal.wait_for("3 of 3 brokers up", "JoinGroup", "2 of 3 have joined", "q quit")
        assert terminal.lines[-1].startswith("q quit   space pause (every 0.1 s)   s groups: unstable and busiest")
        assert terminal.lines[0].endswith("14:13:20 UTC")

        server.overview = overview(
            brokers=[broker_row(1), broker_row(2, up=False), broker_row(3)],
            clock={"now_ms": NOW_MS + 1000, "kind": "real"},
        )
        server.groups[1] = group_row(2, state="CompletingRebalance", since_ms=NOW_MS + 500, why="no SyncGroup yet")
        terminal.wait_for("2 of 3 brokers up", "14:13:21  broker 2 is down", "14:13:20  billing-2 CompletingRebalance")

        terminal.press("q")
        assert terminal.exit_code() == 0
        assert terminal.is_restored


@pytest.mark.slow
def test_the_output_follows_the_size_of_the_terminal(server: FakeControlServer) -> None:
    server.groups[0] = group_row(1, state="CompletingRebalance")
    with Terminal(top_command(server.url, *QUICK), 80, 24) as terminal:
        assert "REBALANCES" not in terminal.wait_for("Completing   ")
        terminal.resize(120, 40)
        terminal.wait_for("CompletingRebalance   ", "REBALANCES")
        terminal.resize(80, 24)
        terminal.wait_until("the narrow tables", lambda text: "REBALANCES" not in text and "q quit" in text)


@pytest.mark.slow
def test_keys_select_groups_and_pause(server: FakeControlServer) -> None:
    with Terminal(top_command(server.url, *QUICK), 80, 24) as terminal:
        terminal.wait_for("UNSTABLE GROUP", "BUSIEST GROUP", "s groups: unstable and busiest")
        terminal.press("s")
        assert "BUSIEST GROUP" not in terminal.wait_for_end("s groups: unstable")
        terminal.press("s")
        assert "UNSTABLE GROUP" not in terminal.wait_for_end("s groups: busiest")
        terminal.press("xs")
        terminal.wait_for("UNSTABLE GROUP", "BUSIEST GROUP")

        terminal.press(" ")
        terminal.wait_for("space resume (PAUSED)")
        requests = len(server.sorts)
        server.overview = overview(name="another name")
        terminal.press("s")
        assert "another name" not in terminal.wait_for_end("s groups: unstable")
        assert len(server.sorts) == requests
        terminal.press(" ")
        terminal.wait_for("another name", "space pause")


def test_a_signal_during_a_finalizer_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finalized:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with screen._signals() as received:
        finalized = Finalized()
        del finalized
        assert received == [signal.SIGINT]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_restore_the_terminal(server: FakeControlServer, number: signal.Signals, code: int) -> None:
    with Terminal(top_command(server.url), 80, 24) as terminal:
        terminal.wait_for("q quit")
        terminal.process.send_signal(number)
        assert terminal.exit_code() == code
        assert terminal.is_restored
        assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_a_server_that_stops_is_an_error_without_traceback() -> None:
    with fake_control_server() as server:
        terminal = Terminal(top_command(server.url, *QUICK), 80, 24)
        terminal.wait_for("q quit")
    with terminal:
        assert terminal.exit_code() == 1
        assert terminal.is_restored
        assert f"fakebroker: no response from {server.url}: " in terminal.text


@pytest.mark.slow
def test_without_a_terminal_one_snapshot_is_printed(server: FakeControlServer) -> None:
    result = run_top(server.url, COLUMNS="100")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("default  3 of 3 brokers up  2,302 requests/s")
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in result.stdout
    assert server.sorts == ["unstable", "busy"]


@pytest.mark.slow
def test_once_prints_one_snapshot_in_a_terminal(server: FakeControlServer) -> None:
    with Terminal(top_command(server.url, "--once"), 80, 24) as terminal:
        assert terminal.exit_code() == 0
        assert "UNSTABLE GROUP" in terminal.text
        assert "q quit" not in terminal.text


@pytest.mark.slow
def test_top_shows_groups_brokers_and_faults_of_a_running_cluster() -> None:
    with serve_process("--topic", "orders:4", "--control-token", "secret") as served:
        client = Client(served.control, "secret")
        with Terminal(top_command(served.control, "--every", "0.2", "--token", "secret"), 80, 24) as terminal:
            terminal.wait_for("3 of 3 brokers up", "0 groups", "no events")
            client.group("billing").seed(2, topics=["orders"])
            terminal.wait_for("1 group  1 Stable  2 members", "billing Stable, generation 1: loaded from the log")
            client.group("billing").rebalance()
            terminal.wait_for(
                "BLOCKED BY", "1 PreparingRebalance", "billing PreparingRebalance, generation 1: waiting for"
            )
            client.broker(2).stop()
            client.inject_fault("JoinGroup", error="COORDINATOR_NOT_AVAILABLE")
            terminal.wait_for("2 of 3 brokers up", "1 fault ", "broker 2 is down", "faults 1 active")
            client.broker(2).start()
            terminal.wait_for("3 of 3 brokers up", "broker 2 is up")
            terminal.press("q")
            assert terminal.exit_code() == 0


@pytest.mark.slow
def test_the_first_lines_name_the_one_of_four_consumers_that_does_not_rejoin() -> None:
    with (
        FakeCluster(3, {"orders": 8}) as cluster,
        ControlServer(cluster) as server,
        rebalance_waiting_for_slow(cluster, "billing", quick=2) as slow,
        Terminal(top_command(server.url, *QUICK), 80, 24) as terminal,
    ):
        terminal.wait_for("3 of 3 brokers up", "BLOCKED BY", "removed in ≤")
        assert terminal.lines[1].split() == ["BLOCKED", "BY", "GROUP", "MISSING", "FOR", "THEN"]
        assert terminal.lines[2].split()[:3] == ["slow", "billing", "JoinGroup"]
        slow.resume()
        terminal.wait_for("1 group  1 Stable  4 members")
        terminal.press("q")
        assert terminal.exit_code() == 0
        assert "BLOCKED BY" not in terminal.text


TOKEN = "expected the value of --control-token or the token printed by the server"


@pytest.mark.slow
def test_a_wrong_token_or_cluster_is_an_error(subtests: pytest.Subtests) -> None:
    with FakeCluster(1) as cluster, ControlServer(cluster, token="secret") as server:
        for arguments, status, message in (
            ((), 1, f"{server.url}: token required, {TOKEN}"),
            (("--token", "x"), 1, f"{server.url}: invalid token, {TOKEN}"),
            (("--token", "secret", "--cluster", "a/b"), 2, "no cluster 'a/b': expected one of default"),
        ):
            with subtests.test(arguments=arguments):
                result = run_top(server.url, *arguments)
                assert (result.returncode, result.stdout, result.stderr) == (status, "", f"fakebroker: {message}\n")
        assert run_top(server.url, FAKEBROKER_CONTROL_TOKEN="secret").returncode == 0


def test_a_wrong_url_is_an_error(subtests: pytest.Subtests) -> None:
    for url, message in {
        "http://127.0.0.1:1": "no response from http://127.0.0.1:1: Connection refused",
        "127.0.0.1:1": "no response from http://127.0.0.1:1: Connection refused",
        "ftp://127.0.0.1:1": "url='ftp://127.0.0.1:1': expected a URL such as 'http://127.0.0.1:9644'",
        "127.0.0.1:x": "url='http://127.0.0.1:x': expected a URL such as 'http://127.0.0.1:9644'",
        "http://": "url='http://': expected a URL such as 'http://127.0.0.1:9644'",
    }.items():
        with subtests.test(url=url):
            with pytest.raises(FakebrokerError) as caught:
                watch(url, "default", once=True)
            assert str(caught.value) == message


def test_responses_of_other_servers_are_an_error(subtests: pytest.Subtests) -> None:
    no_json = "{url} is not a control server: expected JSON over HTTP"
    for response, message in {
        b"HTTP/1.0 200 OK\r\n\r\n<html>": no_json,
        b"HTTP/1.0 404 Not Found\r\n\r\n<html>": no_json,
        b"SSH-2.0-x\r\n": no_json,
        b"HTTP/1.0 200 OK\r\ncontent-length: 9\r\n\r\n{": "no response from {url}: IncompleteRead(1 bytes read, 8 more",
        b"": "no response from {url}: Remote end closed connection without response",
    }.items():
        with subtests.test(response=response), raw_server(response) as url:
            with pytest.raises(FakebrokerError) as caught:
                watch(url, "default", once=True)
            assert str(caught.value).startswith(message.format(url=url))


def test_intervals_out_of_range_are_rejected() -> None:
    for every_s in (0.0, -1.0, 4000.0, nan):
        with pytest.raises(ConfigError, match=rf"^every={every_s:g}: expected 0\.1 to 3600 seconds$"):
            watch("http://127.0.0.1:1", "default", every_s=every_s)


@pytest.mark.slow
def test_an_error_is_printed_without_traceback() -> None:
    result = run_top("http://127.0.0.1:1")
    message = "fakebroker: no response from http://127.0.0.1:1: Connection refused\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", message)


@pytest.mark.slow
def test_a_missing_package_is_an_error_that_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['rich'] = None; sys.argv[1:] = ['top']; from fakebroker.cli.main import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    message = "fakebroker: top needs the extra 'control': pip install 'fakebroker[control]'\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", message)
