"""Requests that are not answered: their callers disconnect, do not send or read, or the server ends before."""

import json
import socket
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
import trio.testing
from hypercorn.typing import ASGIReceiveEvent, ASGISendEvent, HTTPScope

from fakebroker import FakebrokerError, FakeCluster
from fakebroker.control import server as server_module
from fakebroker.control.app import App
from fakebroker.control.auth import Guard
from fakebroker.control.routes.dispatch import Dispatcher, Reply, Request
from fakebroker.control.server import ControlServer
from tests.support.control.control_server import BASE, TIMEOUT_S, Asking, asking, next_event
from tests.support.trio_runner import in_trio, in_trio_with_sockets

END: ASGIReceiveEvent = {"type": "http.request", "body": b"", "more_body": False}
GONE: ASGIReceiveEvent = {"type": "http.disconnect"}


class Waiting(Dispatcher):
    """Handles requests that wait for ever, or whose bodies have no end."""

    def __init__(self) -> None:
        self.is_asked, self.has_ended = trio.Event(), trio.Event()

    def is_brief(self, request: Request) -> bool:
        return False

    async def answer(self, request: Request) -> Reply:
        if request.path == "/stream":
            return Reply(200, "text/plain", self._pieces())
        self.is_asked.set()
        try:
            await trio.sleep_forever()
        finally:
            self.has_ended.set()
        raise AssertionError

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"piece"
            self.is_asked.set()
            await trio.sleep_forever()
        finally:
            self.has_ended.set()


class Caller:
    """One request to an application.

    Attributes:
        sent: What the application has sent.
    """

    def __init__(self, app: App, nursery: trio.Nursery, path: str = "/", *events: ASGIReceiveEvent) -> None:
        self.sent: list[Any] = []
        self.is_over = trio.Event()
        self._sender, self._receiver = trio.open_memory_channel[ASGIReceiveEvent](9)
        for event in events or (END,):
            self.send(event)
        self._scope: Any = {
            "type": "http", "method": "GET", "raw_path": path.encode(), "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }  # fmt: skip
        nursery.start_soon(self._run, app)

    def send(self, event: ASGIReceiveEvent) -> None:
        self._sender.send_nowait(event)

    async def _run(self, app: App) -> None:
        scope: HTTPScope = self._scope
        await app(scope, self._receiver.receive, self._take)
        self.is_over.set()

    async def _take(self, event: ASGISendEvent) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(event)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status


@pytest.mark.parametrize("path", ["/", "/stream"])
@in_trio
async def test_nothing_goes_on_for_a_caller_who_has_disconnected(path: str) -> None:
    dispatcher = Waiting()
    async with trio.open_nursery() as nursery:
        caller = Caller(App(dispatcher, Guard("localhost")), nursery, path)
        await dispatcher.is_asked.wait()
        caller.send(GONE)
        await dispatcher.has_ended.wait()
        await caller.is_over.wait()


class Finishing(Waiting):
    """Handles requests at once, but not as brief ones."""

    async def answer(self, request: Request) -> Reply:
        return Reply(200, "text/plain", b"done")


@in_trio
async def test_a_disconnection_that_is_reported_by_the_last_send_does_not_cancel_it() -> None:
    events, received = trio.open_memory_channel[ASGIReceiveEvent](9)
    events.send_nowait(END)
    completed = []

    async def send(event: ASGISendEvent) -> None:
        if event["type"] == "http.response.body" and not event["more_body"]:
            events.send_nowait(GONE)
            await trio.testing.wait_all_tasks_blocked()
        completed.append(event["type"])

    scope: Any = {
        "type": "http", "method": "GET", "raw_path": b"/", "query_string": b"", "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    await App(Finishing(), Guard("localhost"))(scope, received.receive, send)
    assert completed == ["http.response.start", "http.response.body"]


@in_trio
async def test_at_the_end_requests_are_refused_also_those_that_wait() -> None:
    dispatcher = Waiting()
    async with trio.open_nursery() as nursery:
        app = App(dispatcher, Guard("localhost"))
        waiting = Caller(app, nursery)
        await dispatcher.is_asked.wait()
        app.end()
        late = Caller(app, nursery)
        for caller in (waiting, late):
            await caller.is_over.wait()
            assert caller.status == 503
            assert json.loads(caller.sent[1]["body"])["detail"] == "control over HTTP has ended"


@in_trio
async def test_a_body_has_to_come_in_time() -> None:
    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        first: ASGIReceiveEvent = {"type": "http.request", "body": b"{", "more_body": True}
        caller = Caller(App(Waiting(), Guard("localhost")), nursery, "/", first)
        await caller.is_over.wait()
    assert caller.status == 408
    assert trio.current_time() - started == pytest.approx(30)


@in_trio
async def test_who_disconnects_within_the_body_is_not_answered() -> None:
    async with trio.open_nursery() as nursery:
        first: ASGIReceiveEvent = {"type": "http.request", "body": b"{", "more_body": True}
        caller = Caller(App(Waiting(), Guard("localhost")), nursery, "/", first, GONE)
        await caller.is_over.wait()
    assert caller.sent == []


# The end of the server


def wait_until(condition: Callable[[], bool], control: Asking) -> None:
    while not control.cluster.call(condition):
        pass


def test_the_end_of_the_server_is_that_of_waits_and_streams_and_not_of_the_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FakeCluster(1) as cluster:
        with ControlServer(cluster) as server:
            control = Asking(cluster, server)
            watchers = cluster.call(lambda: len(cluster._server.reactor.watchers))
            found: list[Any] = []
            body = {"group_id": "g", "state": "Stable", "timeout_s": 60}
            waiter = threading.Thread(target=lambda: found.append(control.ask("POST", f"{BASE}/wait/state", body)))
            waiter.start()
            wait_until(lambda: len(cluster._server.reactor.watchers) > watchers, control)
            stream = control.listen("/stream")
            events = stream.__enter__()
            next_event(events, "overview")
        assert b": " not in events.read()[-2:]
        stream.__exit__(None, None, None)
        waiter.join(TIMEOUT_S)
        assert found[0].status == 503
        with pytest.raises(OSError, match="refused"):
            control.ask("GET", "/healthz")
        with ControlServer(cluster, port=urlsplit(server.url).port or 0) as again:
            assert Asking(cluster, again).ask("GET", "/healthz").status == 200
    assert caplog.records == []


REQUEST = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"


def connected(control: Asking) -> socket.socket:
    address = urlsplit(control.server.url)
    return socket.create_connection((address.hostname or "", address.port or 0), TIMEOUT_S)


@pytest.mark.parametrize("ends_first", ["control", "cluster"])
def test_a_caller_who_does_not_read_does_not_hold_up_the_end(ends_first: str) -> None:
    with FakeCluster(1) as cluster:
        server = ControlServer(cluster).__enter__()
        caller = connected(Asking(cluster, server))
        caller.setblocking(False)
        with suppress(BlockingIOError):
            while True:  # Until the server does not read any more, because it cannot send.
                caller.sendall(REQUEST * 100)
        if ends_first == "control":
            server.__exit__(None, None, None)
    server.__exit__(None, None, None)
    caller.close()


def test_a_caller_who_pauses_gets_everything() -> None:
    with asking(1) as control, connected(control) as caller:
        whole = control.ask("GET", "/openapi.json").body
        requests = 50  # Their responses are more than the sockets' buffers take.
        caller.sendall(REQUEST * requests)
        for _ in range(50):
            assert control.ask("GET", "/healthz").status == 200
        with caller.makefile("rb") as answers:
            for _ in range(requests):
                while answers.readline() not in (b"\r\n", b""):
                    pass
                assert answers.read(len(whole)) == whole


@pytest.mark.parametrize("path", ["/healthz", "/metrics", f"{BASE}/journal.jsonl", f"{BASE}/groups", f"{BASE}/clock"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_connection_is_closed_after_the_response_if_it_should_be(path: str, version: str) -> None:
    with asking(1) as control, connected(control) as caller:
        caller.sendall(f"GET {path} HTTP/{version}\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        with caller.makefile("rb") as answer:
            assert answer.read().startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/healthz", f"{BASE}/journal.jsonl", f"{BASE}/clock"])
def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(server_module, "_IDLE_S", 0.01)
    with asking(1) as control, connected(control) as caller:
        caller.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        with caller.makefile("rb") as answer:
            assert answer.read().startswith(b"HTTP/1.1 200 ")


@in_trio_with_sockets
async def test_it_is_left_in_the_loop_of_its_cluster() -> None:
    async with FakeCluster(1) as cluster:
        with ControlServer(cluster) as server:
            control = Asking(cluster, server)
            assert (await trio.to_thread.run_sync(control.ask, "GET", "/healthz")).status == 200
    with pytest.raises(OSError, match="refused"):
        control.ask("GET", "/healthz")


def test_the_cluster_has_to_run() -> None:
    cluster = FakeCluster(1)
    server = ControlServer(cluster)
    with pytest.raises(FakebrokerError, match=r"^the cluster is not running: expected "):
        server.__enter__()
    with pytest.raises(OSError, match="refused"):
        Asking(cluster, server).ask("GET", "/healthz")


def test_an_error_in_the_server_is_not_one_of_the_brokers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(server_module, "serve", fail)
    with asking(1) as control:
        control.cluster.seed_group("g", 1)
    assert [record.getMessage() for record in caplog.records] == ["control over HTTP failed"]
