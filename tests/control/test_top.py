"""`fakebroker top` as a person has it: in a terminal, with keys; and without one, as text."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import nan
from urllib.request import Request, urlopen

import pytest

from fakebroker.control.top import screen
from fakebroker.control.top.screen import watch
from fakebroker.errors import ConfigError, FakebrokerError
from tests.support.control.fake_control_api import NOW_MS, StandIn, broker, group, overview, stand_in
from tests.support.control.serve_process import serving
from tests.support.control.terminal import PATIENCE_S, Terminal

QUICK = ("--every", "0.1")
SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)])


@pytest.fixture(name="server")
def _server() -> Iterator[StandIn]:
    with stand_in() as server:
        yield server


def command(url: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "fakebroker", "top", "--control", url, *arguments]


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """Something that takes one connection and gives one answer, whatever it is asked."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


class Control:
    """The default cluster of a real control API.

    Args:
        url: Where it is.
        token: What it wants to be shown.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = f"{url}/v1/clusters/default", token

    def post(self, path: str, body: object) -> None:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._token}"}
        urlopen(Request(self._url + path, json.dumps(body).encode(), headers), timeout=PATIENCE_S).close()


def run(url: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Without a terminal."""
    return subprocess.run(
        command(url, *arguments),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **environment},
    )


@SIZES
def test_a_cluster_is_watched(server: StandIn, size: tuple[int, int]) -> None:
    server.groups[0] = group(1, state="PreparingRebalance", why="2 of 3 have joined")
    with Terminal(command(server.url, *QUICK), *size) as terminal:
        terminal.see("3 of 3 brokers up", "JoinGroup", "2 of 3 have joined", "q quit")
        assert terminal.lines[-1].startswith("q quit   space pause (every 0.1 s)   s groups: unstable and busiest")
        assert terminal.lines[0].endswith("14:13:20 UTC")

        server.overview = overview(
            brokers=[broker(1), broker(2, up=False), broker(3)], clock={"now_ms": NOW_MS + 1000, "kind": "real"}
        )
        server.groups[1] = group(2, state="CompletingRebalance", since_ms=NOW_MS + 500, why="no SyncGroup yet")
        terminal.see("2 of 3 brokers up", "14:13:21  broker 2 is down", "14:13:20  billing-2 CompletingRebalance")

        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.is_as_before


def test_the_state_has_room_for_its_name_in_a_wide_terminal(server: StandIn) -> None:
    server.groups[0] = group(1, state="CompletingRebalance")
    with Terminal(command(server.url, *QUICK), 80, 24) as terminal:
        assert "REBALANCES" not in terminal.see("Completing   ")
        terminal.resize(120, 40)
        terminal.see("CompletingRebalance   ", "REBALANCES")
        terminal.resize(80, 24)
        terminal.wait_until("the narrow one", lambda text: "REBALANCES" not in text and "q quit" in text)


def test_keys(server: StandIn) -> None:
    with Terminal(command(server.url, *QUICK), 80, 24) as terminal:
        terminal.see("UNSTABLE GROUP", "BUSIEST GROUP", "s groups: unstable and busiest")
        terminal.press("s")
        assert "BUSIEST GROUP" not in terminal.see_at_the_end("s groups: unstable")
        terminal.press("s")
        assert "UNSTABLE GROUP" not in terminal.see_at_the_end("s groups: busiest")
        terminal.press("xs")
        terminal.see("UNSTABLE GROUP", "BUSIEST GROUP")

        terminal.press(" ")
        terminal.see("space go on (PAUSED)")
        asked = len(server.orders)
        server.overview = overview(name="another name")
        terminal.press("s")
        assert "another name" not in terminal.see_at_the_end("s groups: unstable")
        assert len(server.orders) == asked
        terminal.press(" ")
        terminal.see("another name", "space pause")


def test_a_signal_that_arrives_while_a_finalizer_runs_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finalized:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with screen._signals() as received:
        finalized = Finalized()
        del finalized
        assert received == [signal.SIGINT]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_leave_the_terminal_as_it_was(server: StandIn, number: signal.Signals, code: int) -> None:
    with Terminal(command(server.url), 80, 24) as terminal:
        terminal.see("q quit")
        terminal.process.send_signal(number)
        assert terminal.end() == code
        assert terminal.is_as_before
        assert "Traceback" not in terminal.text


def test_a_server_that_goes_away_is_one_sentence() -> None:
    with stand_in() as server:
        terminal = Terminal(command(server.url, *QUICK), 80, 24)
        terminal.see("q quit")
    with terminal:
        assert terminal.end() == 1
        assert terminal.is_as_before
        assert f"fakebroker: {server.url} does not answer: " in terminal.text


def test_without_a_terminal_there_is_one_look(server: StandIn) -> None:
    found = run(server.url, COLUMNS="100")
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    assert lines[0].startswith("default  3 of 3 brokers up  2,302 requests/s")
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in found.stdout
    assert server.orders == ["unstable", "busy"]


def test_a_terminal_may_want_one_look_as_well(server: StandIn) -> None:
    with Terminal(command(server.url, "--once"), 80, 24) as terminal:
        assert terminal.end() == 0
        assert "UNSTABLE GROUP" in terminal.text
        assert "q quit" not in terminal.text


def test_a_real_cluster_is_watched() -> None:
    with serving("--topic", "orders:4", "--control-token", "secret") as served:
        control = Control(served.control, "secret")
        with Terminal(command(served.control, "--every", "0.2", "--token", "secret"), 80, 24) as terminal:
            terminal.see("3 of 3 brokers up", "0 groups", "nothing yet")
            control.post("/groups/billing/seed", {"members": 2, "topics": ["orders"]})
            terminal.see("1 group  1 Stable  2 members", "billing Stable, generation 1: loaded from the log")
            control.post("/groups/billing/force_rebalance", {})
            terminal.see("1 PreparingRebalance", "billing PreparingRebalance, generation 1: a rebalance was forced")
            control.post("/brokers/2/stop", {})
            control.post("/faults", {"api": "JoinGroup", "error": "COORDINATOR_NOT_AVAILABLE"})
            terminal.see("2 of 3 brokers up", "1 fault ", "broker 2 is down", "faults 1 in force")
            control.post("/brokers/2/start", {})
            terminal.see("3 of 3 brokers up", "broker 2 is up")
            terminal.press("q")
            assert terminal.end() == 0


def test_a_token_and_a_cluster_are_asked_for_in_one_sentence() -> None:
    with serving("--control-token", "secret") as served:
        for arguments, sentence in {
            (): f"{served.control} wants a token: the one that it was started with, or has printed",
            ("--token", "x"): f"{served.control} wants another token: the one that it was started with, or has printed",
            ("--token", "secret", "--cluster", "a/b"): "no cluster 'a/b': expected one of default",
        }.items():
            found = run(served.control, *arguments)
            assert (found.returncode, found.stdout, found.stderr) == (1, "", f"fakebroker: {sentence}\n")
        assert run(served.control, FAKEBROKER_CONTROL_TOKEN="secret").returncode == 0


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1 does not answer: Connection refused"),
        ("127.0.0.1:1", "http://127.0.0.1:1 does not answer: Connection refused"),
        ("ftp://127.0.0.1:1", "url='ftp://127.0.0.1:1': expected an address such as 'http://127.0.0.1:9644'"),
        ("127.0.0.1:x", "url='http://127.0.0.1:x': expected an address such as 'http://127.0.0.1:9644'"),
        ("http://", "url='http://': expected an address such as 'http://127.0.0.1:9644'"),
    ],
)
def test_without_a_server_there_is_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(FakebrokerError) as caught:
        watch(url, "default", once=True)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", "is no control server: its answer is not JSON over HTTP"),
        (b"HTTP/1.0 404 Not Found\r\n\r\n<html>", "is no control server: its answer is not JSON over HTTP"),
        (b"SSH-2.0-x\r\n", "is no control server: its answer is not JSON over HTTP"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 9\r\n\r\n{", "does not answer: IncompleteRead(1 bytes read, 8 more"),
        (b"", "does not answer: Remote end closed connection without response"),
    ],
)
def test_whatever_else_listens_there_is_told_from_a_control_server(answer: bytes, sentence: str) -> None:
    with listening(answer) as url, pytest.raises(FakebrokerError) as caught:
        watch(url, "default", once=True)
    assert str(caught.value).startswith(f"{url} {sentence}")


@pytest.mark.parametrize("every_s", [0.0, -1.0, 4000.0, nan])
def test_impossible_pauses_are_refused(every_s: float) -> None:
    with pytest.raises(ConfigError, match=rf"^every={every_s:g}: expected 0\.1 to 3600 seconds$"):
        watch("http://127.0.0.1:1", "default", every_s=every_s)


def test_what_cannot_be_is_one_sentence() -> None:
    found = run("http://127.0.0.1:1")
    sentence = "fakebroker: http://127.0.0.1:1 does not answer: Connection refused\n"
    assert (found.returncode, found.stdout, found.stderr) == (1, "", sentence)


def test_a_missing_extra_is_one_sentence() -> None:
    code = (
        "import sys; sys.modules['rich'] = None; sys.argv[1:] = ['top']; from fakebroker.cli.main import main; main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    sentence = "fakebroker: top needs the extra 'control': pip install 'fakebroker[control]'\n"
    assert (found.returncode, found.stdout, found.stderr) == (1, "", sentence)
