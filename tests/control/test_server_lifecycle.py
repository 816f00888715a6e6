"""Requests without a normal end: clients that disconnect, send nothing or read nothing, and servers that stop.

`in_trio` uses a clock that jumps to the next deadline, so timeouts are exact and take no time. Tests with sockets need
`in_trio_with_sockets`.
"""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
import trio.testing
from hypercorn.typing import ASGIReceiveEvent, ASGISendEvent

from fakebroker import FakebrokerError, FakeCluster
from fakebroker.control import server as server_module
from fakebroker.control.app import App
from fakebroker.control.auth import Guard
from fakebroker.control.server import ControlServer
from fakebroker.server.fake_cluster import internals
from tests.support.control.asgi import END_OF_BODY, AsgiRequest, BlockingDispatcher, ImmediateDispatcher, http_scope
from tests.support.control.control_server import BASE, TIMEOUT_S, ControlHarness, controlled_cluster, next_event
from tests.support.server.bystander import open_files
from tests.support.trio_runner import in_trio, in_trio_with_sockets
from tests.support.wire_client import until

DISCONNECT: ASGIReceiveEvent = {"type": "http.disconnect"}
FIRST_PART: ASGIReceiveEvent = {"type": "http.request", "body": b"{", "more_body": True}


# One request, without a server


@pytest.mark.parametrize("path", ["/", "/stream"])
@in_trio
async def test_a_disconnect_cancels_the_request(path: str) -> None:
    dispatcher = BlockingDispatcher()
    async with trio.open_nursery() as nursery:
        request = AsgiRequest(App(dispatcher, Guard("localhost")), nursery, path)
        await dispatcher.has_started.wait()
        request.send(DISCONNECT)
        await dispatcher.has_ended.wait()
        await request.has_ended.wait()


@in_trio
async def test_a_disconnect_during_the_last_send_does_not_cancel_the_send() -> None:
    events, received = trio.open_memory_channel[ASGIReceiveEvent](9)
    events.send_nowait(END_OF_BODY)
    sent = []

    async def send(event: ASGISendEvent) -> None:
        if event["type"] == "http.response.body" and not event["more_body"]:
            events.send_nowait(DISCONNECT)
            await trio.testing.wait_all_tasks_blocked()
        sent.append(event["type"])

    await App(ImmediateDispatcher(), Guard("localhost"))(http_scope("/"), received.receive, send)
    assert sent == ["http.response.start", "http.response.body"]


@in_trio
async def test_pending_and_new_requests_get_503_when_the_application_ends() -> None:
    dispatcher = BlockingDispatcher()
    async with trio.open_nursery() as nursery:
        app = App(dispatcher, Guard("localhost"))
        pending = AsgiRequest(app, nursery)
        await dispatcher.has_started.wait()
        app.end()
        late = AsgiRequest(app, nursery)
        for request in (pending, late):
            await request.has_ended.wait()
            assert request.status == 503
            assert json.loads(request.sent[1]["body"])["detail"] == "the control server has stopped"


@in_trio
async def test_a_body_that_does_not_arrive_times_out() -> None:
    started_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        request = AsgiRequest(App(BlockingDispatcher(), Guard("localhost")), nursery, "/", FIRST_PART)
        await request.has_ended.wait()
    assert request.status == 408
    assert trio.current_time() - started_s == pytest.approx(30)


@in_trio
async def test_a_disconnect_within_the_body_gets_no_response() -> None:
    async with trio.open_nursery() as nursery:
        request = AsgiRequest(App(BlockingDispatcher(), Guard("localhost")), nursery, "/", FIRST_PART, DISCONNECT)
        await request.has_ended.wait()
    assert request.sent == []


# The end of the server


def wait_until(condition: Callable[[], bool], control: ControlHarness) -> None:
    while not internals(control.cluster).run(condition):
        pass


def test_stopping_the_server_ends_waits_and_streams_but_not_the_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FakeCluster(1) as cluster:
        with ControlServer(cluster) as server:
            control = ControlHarness(cluster, server)
            responses: list[Any] = []
            body = {"condition": {"is": "group.stable", "group_id": "g"}, "timeout_s": 60}
            waiter = threading.Thread(target=lambda: responses.append(control.request("POST", f"{BASE}/wait", body)))
            waiter.start()
            wait_until(lambda: len(internals(cluster).watches) == 1, control)
            stream = control.stream("/stream")
            events = stream.__enter__()
            next_event(events, "overview")
        assert b": " not in events.read()[-2:]
        stream.__exit__(None, None, None)
        waiter.join(TIMEOUT_S)
        assert responses[0].status == 503
        with pytest.raises(OSError, match="refused"):
            control.request("GET", "/healthz")
        with ControlServer(cluster, port=urlsplit(server.url).port or 0) as again:
            assert ControlHarness(cluster, again).request("GET", "/healthz").status == 200
    assert caplog.records == []


REQUEST = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"


def raw_connection(control: ControlHarness) -> socket.socket:
    address = urlsplit(control.server.url)
    return socket.create_connection((address.hostname or "", address.port or 0), TIMEOUT_S)


@pytest.mark.parametrize("ends_first", ["control", "cluster"])
def test_a_client_that_does_not_read_does_not_delay_the_shutdown(ends_first: str) -> None:
    with FakeCluster(1) as cluster:
        server = ControlServer(cluster).__enter__()
        client = raw_connection(ControlHarness(cluster, server))
        client.setblocking(False)
        with suppress(BlockingIOError):
            while True:  # Until the server cannot send its responses, and so stops reading.
                client.sendall(REQUEST * 100)
        if ends_first == "control":
            server.__exit__(None, None, None)
    server.__exit__(None, None, None)
    client.close()


def test_a_client_that_pauses_gets_all_responses() -> None:
    with controlled_cluster(1) as control, raw_connection(control) as client:
        whole = control.request("GET", "/openapi.json").body
        requests = 50  # Their responses exceed the buffers of the sockets.
        client.sendall(REQUEST * requests)
        for _ in range(50):
            assert control.request("GET", "/healthz").status == 200
        with client.makefile("rb") as responses:
            for _ in range(requests):
                while responses.readline() not in (b"\r\n", b""):
                    pass
                assert responses.read(len(whole)) == whole


def test_connection_close_closes_the_connection_after_the_response(subtests: pytest.Subtests) -> None:
    with controlled_cluster(1) as control:
        for path in ("/healthz", "/metrics", f"{BASE}/journal.jsonl", f"{BASE}/groups", f"{BASE}/clock"):
            for version in ("1.0", "1.1"):
                with subtests.test(path=path, version=version), raw_connection(control) as client:
                    client.sendall(
                        f"GET {path} HTTP/{version}\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
                    )
                    with client.makefile("rb") as response:
                        assert response.read().startswith(b"HTTP/1.1 200 ")


async def connection_to(server: ControlServer) -> trio.SocketStream:
    address = urlsplit(server.url)
    assert address.hostname is not None
    assert address.port is not None
    return await trio.open_tcp_stream(address.hostname, address.port)


def test_an_idle_connection_is_closed(subtests: pytest.Subtests) -> None:
    clock = trio.testing.MockClock()

    async def main() -> None:
        async with FakeCluster(1) as cluster:
            with ControlServer(cluster) as server:
                for path in ("/healthz", f"{BASE}/journal.jsonl", f"{BASE}/clock"):
                    with subtests.test(path=path):
                        client = await connection_to(server)
                        await client.send_all(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                        assert (await client.receive_some()).startswith(b"HTTP/1.1 200 ")
                        await trio.testing.wait_all_tasks_blocked()
                        clock.jump(76)
                        while await client.receive_some():
                            pass
                        await client.aclose()

    trio.run(main, clock=clock)


def test_a_connection_is_kept_for_75_seconds_without_requests() -> None:
    clock = trio.testing.MockClock()

    async def main() -> None:
        async with FakeCluster(1) as cluster:
            with ControlServer(cluster) as server:
                client = await connection_to(server)
                for idle_s in (0, 74, 74):
                    await trio.testing.wait_all_tasks_blocked()
                    clock.jump(idle_s)
                    await client.send_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                    received = b""
                    while not received.endswith(b"}"):
                        part = await client.receive_some()
                        assert part, f"closed after {idle_s} s"
                        received += part
                await trio.testing.wait_all_tasks_blocked()
                clock.jump(76)
                assert await client.receive_some() == b""
                await client.aclose()

    trio.run(main, clock=clock)


@in_trio_with_sockets
async def test_the_server_can_be_stopped_in_the_loop_of_its_cluster() -> None:
    async with FakeCluster(1) as cluster:
        with ControlServer(cluster) as server:
            control = ControlHarness(cluster, server)
            assert (await trio.to_thread.run_sync(control.request, "GET", "/healthz")).status == 200
    with pytest.raises(OSError, match="refused"):
        control.request("GET", "/healthz")


def test_starting_needs_a_running_cluster() -> None:
    cluster = FakeCluster(1)
    server = ControlServer(cluster)
    with pytest.raises(FakebrokerError, match=r"^the cluster is not running: expected "):
        server.__enter__()
    with pytest.raises(OSError, match="refused"):
        ControlHarness(cluster, server).request("GET", "/healthz")


def test_a_server_is_entered_once() -> None:
    with FakeCluster(1) as cluster:
        with ControlServer(cluster) as server:
            control = ControlHarness(cluster, server)
            with pytest.raises(FakebrokerError, match=r"entered before: expected a new ControlServer"), server:
                pass
            assert control.request("GET", "/healthz").status == 200
        with pytest.raises(FakebrokerError, match=r"entered before: expected a new ControlServer"), server:
            pass


def test_an_error_in_the_server_is_logged_and_does_not_stop_the_brokers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(server_module, "serve", fail)
    with controlled_cluster(1) as control:
        control.cluster.group("g").seed(1)
    assert [record.getMessage() for record in caplog.records] == ["control server failed"]


def test_connections_that_clients_close_are_closed_at_once() -> None:
    """They do not keep a file descriptor until the idle timeout, which is longer than this test waits."""
    with controlled_cluster(brokers=1) as control:
        before = open_files()
        for path in ("/groups", "/nothing", "/metrics") * 10:
            control.request("GET", f"/v1/clusters/default{path}")
        half, slow = control.connect(), control.connect()
        half.connect()
        half.sock.sendall(b"GET / HTTP/1.1\r\n")
        half.close()
        slow.connect()
        slow.sock.sendall(b"GET /v1/clusters/default/groups HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        slow.sock.shutdown(socket.SHUT_WR)
        while slow.sock.recv(65536):
            pass
        slow.close()
        until(lambda: open_files() <= before, control.cluster)
