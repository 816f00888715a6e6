"""Connections of HTTP callers: in how many pieces answers go out, and when a connection ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypercorn.config import Config
from trio.testing import MockClock, wait_all_tasks_blocked

from fakebroker.control.gateway.connection import serve
from tests.client.trio_runner import in_trio_on_own_time

IDLE_S = 5.0
HEAD = b"HTTP/1.1 200 \r\n"


class Listener(trio.abc.Listener[trio.SocketStream]):
    """Notes what goes out on the connections it takes."""

    def __init__(self, inner: trio.SocketListener) -> None:
        self._inner = inner
        self.sent: list[bytes] = []

    async def accept(self) -> trio.SocketStream:
        stream = await self._inner.accept()
        send_all = stream.send_all

        async def noted(data: Any) -> None:
            self.sent.append(bytes(data))
            await send_all(data)

        stream.send_all = noted  # type: ignore[method-assign]  # what it does stays the same
        return stream

    async def aclose(self) -> None:
        await self._inner.aclose()


class App:
    """Answers with these pieces; to a path with `slow` in it only once it may."""

    def __init__(self, *pieces: bytes, status: int = 200) -> None:
        self.pieces, self.status = pieces, status
        self.may_answer, self.is_asked, self.is_left = trio.Event(), trio.Event(), trio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if "slow" in scope["path"]:
            self.is_asked.set()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, receive)
                await self.may_answer.wait()
                nursery.cancel_scope.cancel()
        else:
            while (await receive()).get("more_body"):
                pass
        length = str(sum(map(len, self.pieces))).encode()
        await send({"type": "http.response.start", "status": self.status, "headers": [(b"content-length", length)]})
        for number, piece in enumerate(self.pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(self.pieces)})

    async def _watch(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_left.set()
        self.may_answer.set()


class Server:
    """What a test has to do with."""

    def __init__(self, address: tuple[str, int], listener: Listener) -> None:
        self.address, self.listener = address, listener
        self.has_ended, self.is_over = trio.Event(), trio.Event()

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(*self.address)

    async def pass_s(self, seconds: float) -> None:
        """Let time pass, once there is nothing left to do before."""
        await wait_all_tasks_blocked()
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(seconds)
        await wait_all_tasks_blocked()


@asynccontextmanager
async def served(app: App) -> AsyncIterator[Server]:
    """A server on a port of this machine, for a test that takes a few times as long as a connection may idle."""
    sock = trio.socket.socket()
    await sock.bind(("127.0.0.1", 0))
    sock.listen()
    config = Config()
    config.accesslog = config.errorlog = None
    config.include_server_header = config.include_date_header = False
    config.keep_alive_timeout = IDLE_S
    server = Server(sock.getsockname(), Listener(trio.SocketListener(sock)))

    async def run(task_status: trio.TaskStatus[None]) -> None:
        await serve(app, config, server.listener, server.has_ended, task_status)
        server.is_over.set()

    with trio.fail_after(6 * IDLE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            yield server
            nursery.cancel_scope.cancel()


def request(method: str = "GET", path: str = "/", *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: here", *lines, "", ""]).encode()


async def received(stream: trio.SocketStream, until: bytes) -> bytes:
    """What comes until it ends so."""
    data = b""
    while not data.endswith(until):
        piece = await stream.receive_some()
        assert piece, f"closed after {data!r}"
        data += piece
    return data


@pytest.mark.parametrize(
    ("app", "asked", "expected"),
    [
        (App(b"body"), request(), [HEAD + b"content-length: 4\r\n\r\nbody"]),
        (App(b"body"), request("HEAD"), [HEAD + b"content-length: 4\r\n\r\n"]),
        (App(b""), request(), [HEAD + b"content-length: 0\r\n\r\n"]),
        (App(b"one", b"two"), request(), [HEAD + b"content-length: 6\r\n\r\none", b"two"]),
        (App(b"HTTP/1.1 2"), request(), [HEAD + b"content-length: 10\r\n\r\nHTTP/1.1 2"]),
    ],
    ids=["head and body", "a head alone", "an empty body", "two pieces", "a body like a head"],
)
@in_trio_on_own_time
async def test_what_belongs_together_goes_out_together(app: App, asked: bytes, expected: list[bytes]) -> None:
    async with served(app) as server, await server.connect() as stream:
        for _ in range(2):  # A connection is kept.
            await stream.send_all(asked)
            await received(stream, expected[-1])
            assert server.listener.sent == expected
            server.listener.sent.clear()


@in_trio_on_own_time
async def test_who_waits_to_be_told_to_continue_is_told() -> None:
    async with served(App(b"body")) as server, await server.connect() as stream:
        await stream.send_all(request("POST", "/", "content-length: 2", "expect: 100-continue"))
        assert (await received(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        await stream.send_all(b"{}")
        assert (await received(stream, b"body")).startswith(HEAD)


@in_trio_on_own_time
async def test_a_connection_ends_when_it_was_idle_for_too_long() -> None:
    async with served(App(b"body")) as server, await server.connect() as stream:
        for _ in range(3):
            await server.pass_s(IDLE_S * 0.9)
            await stream.send_all(request())
            await received(stream, b"body")
        await server.pass_s(IDLE_S)
        assert await stream.receive_some() == b""


@in_trio_on_own_time
async def test_who_waits_for_an_answer_is_not_idle() -> None:
    app = App(b"body")
    async with served(app) as server, await server.connect() as stream:
        await stream.send_all(request(path="/slow"))
        await app.is_asked.wait()
        for _ in range(3):
            await server.pass_s(IDLE_S)
        app.may_answer.set()
        await received(stream, b"body")
        await server.pass_s(IDLE_S)
        assert await stream.receive_some() == b""


@in_trio_on_own_time
async def test_nothing_is_left_of_a_caller_who_goes() -> None:
    app = App(b"body")
    async with served(app) as server:
        await wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        for path in ("/", "/slow"):
            stream = await server.connect()
            await stream.send_all(request(path=path))
            if path == "/slow":
                await app.is_asked.wait()
            await stream.aclose()
        await app.is_left.wait()
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before


@in_trio_on_own_time
async def test_at_the_end_who_is_idle_is_closed_and_who_waits_gets_an_answer() -> None:
    app = App(b"body")
    async with served(app) as server, await server.connect() as idle, await server.connect() as waiting:
        await idle.send_all(request())
        await received(idle, b"body")
        await waiting.send_all(request(path="/slow"))
        await app.is_asked.wait()
        await wait_all_tasks_blocked()
        server.has_ended.set()
        assert await idle.receive_some() == b""
        app.may_answer.set()
        await received(waiting, b"body")
        assert await waiting.receive_some() == b""
        await server.is_over.wait()


@in_trio_on_own_time
async def test_at_the_end_nobody_is_waited_for_longer_than_grace() -> None:
    app = App(b"body")
    async with served(app) as server, await server.connect() as waiting:
        await waiting.send_all(request(path="/slow"))
        await app.is_asked.wait()
        server.has_ended.set()
        await server.pass_s(3.0)
        await server.is_over.wait()
