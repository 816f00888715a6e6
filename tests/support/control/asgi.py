"""Requests to the ASGI application without a server, and dispatchers that block or reply at once."""

from collections.abc import AsyncGenerator
from typing import Any

import trio
from hypercorn.typing import ASGIReceiveEvent, ASGISendEvent, HTTPScope

from fakebroker.control.app import App
from fakebroker.control.routes.dispatch import Dispatcher, Reply, Request

END_OF_BODY: ASGIReceiveEvent = {"type": "http.request", "body": b"", "more_body": False}


class BlockingDispatcher(Dispatcher):
    """Never replies, except to "/stream": the body of that reply has one part and no end.

    `is_brief` is False, so `App` cancels a request when the client disconnects or the server stops.

    Attributes:
        has_started: A request was received; for "/stream", the part was sent.
        has_ended: The request was cancelled.
    """

    def __init__(self) -> None:
        self.has_started, self.has_ended = trio.Event(), trio.Event()

    def is_brief(self, request: Request) -> bool:
        return False

    async def handle(self, request: Request) -> Reply:
        if request.path == "/stream":
            return Reply(200, "text/plain", self._parts())
        self.has_started.set()
        try:
            await trio.sleep_forever()
        finally:
            self.has_ended.set()
        raise AssertionError

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"part"
            self.has_started.set()
            await trio.sleep_forever()
        finally:
            self.has_ended.set()


class ImmediateDispatcher(BlockingDispatcher):
    """Replies without waiting, but as a request that can be canceled (`is_brief` is False)."""

    async def handle(self, request: Request) -> Reply:
        return Reply(200, "text/plain", b"done")


def http_scope(path: str) -> HTTPScope:
    """Return the scope of a GET request."""
    scope: Any = {
        "type": "http",
        "method": "GET",
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }
    result: HTTPScope = scope
    return result


class AsgiRequest:
    """One request to an application, in a task of its own.

    Attributes:
        sent: The events that the application has sent.
        has_ended: The application has returned.
    """

    def __init__(self, app: App, nursery: trio.Nursery, path: str = "/", *events: ASGIReceiveEvent) -> None:
        self.sent: list[Any] = []
        self.has_ended = trio.Event()
        self._sender, self._receiver = trio.open_memory_channel[ASGIReceiveEvent](9)
        for event in events or (END_OF_BODY,):
            self.send(event)
        nursery.start_soon(self._run, app, http_scope(path))

    def send(self, event: ASGIReceiveEvent) -> None:
        """Send an event to the application."""
        self._sender.send_nowait(event)

    async def _run(self, app: App, scope: HTTPScope) -> None:
        await app(scope, self._receiver.receive, self._receive_event)
        self.has_ended.set()

    async def _receive_event(self, event: ASGISendEvent) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(event)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status
