"""The ASGI application: authorization, limits of bodies, security headers, cancellation of requests."""

from collections.abc import Iterator
from contextlib import aclosing, contextmanager

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from fakebroker.control.auth import Guard
from fakebroker.control.problems import Problem
from fakebroker.control.routes.dispatch import Dispatcher, Reply, Request, failure

MAX_BODY_BYTES = 1024 * 1024
_MAX_READ_BYTES = 16 * MAX_BODY_BYTES
_BODY_TIMEOUT_S = 30.0
_SECURITY_HEADERS = [
    # Other sites must not frame these pages (clickjacking).
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
]


class App:
    """The application. Requests are canceled when their clients disconnect.

    Args:
        dispatcher: Handles the requests.
        guard: Rejects requests that are not allowed.
    """

    def __init__(self, dispatcher: Dispatcher, guard: Guard) -> None:
        self._dispatcher = dispatcher
        self._guard = guard
        self._pending: set[trio.CancelScope] = set()
        self._has_ended = False

    def end(self) -> None:
        """Reject all requests from now on, also those that are pending."""
        self._has_ended = True
        for scope in self._pending:
            scope.cancel()

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] == "http":
            await self._respond(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000, "reason": None})

    async def _respond(self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        # Segments of the path may contain encoded slashes, so they are decoded only after the path has been split.
        method, path = scope["method"], scope["raw_path"].decode("latin-1")
        headers = _headers(scope)
        try:
            self._guard.check(method, path, headers)
            body = await _read_body(receive)
        except Problem as problem:
            await _send(failure(Request(method, path), problem), method, send)
            return
        if body is None:
            return
        request = Request(method, path, scope["query_string"].decode("latin-1"), body, headers.get("accept", ""))
        if self._dispatcher.is_brief(request):
            await _send(await self._dispatcher.handle(request), method, send)
            return
        reply = failure(request, Problem(503, "the control server has stopped"))
        # The end of the response is sent outside the nursery. hypercorn reports a disconnect within that call, and if
        # it were canceled there, it would neither close the connection nor start its idle timeout.
        last: bytes | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_on_disconnect, receive, nursery.cancel_scope)
            with self._canceled_at_end():
                reply = await self._dispatcher.handle(request)
            last = await _start(reply, method, send)
            nursery.cancel_scope.cancel()
        if last is not None:
            await _end(last, send)

    @contextmanager
    def _canceled_at_end(self) -> Iterator[None]:
        """Cancel the context when `end` is called, or at once if it has been."""
        with trio.CancelScope() as scope:
            if self._has_ended:
                scope.cancel()
            self._pending.add(scope)
            try:
                yield
            finally:
                self._pending.remove(scope)


def _headers(scope: HTTPScope) -> dict[str, str]:
    """Return the first header of each name."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed([*scope["headers"]])}


async def _read_body(receive: ASGIReceiveCallable) -> bytes | None:
    """Return the body of a request, or None if the client has disconnected.

    Raises:
        Problem: The body is too large, or does not arrive in time.
    """
    body, length = bytearray(), 0
    with trio.move_on_after(_BODY_TIMEOUT_S) as timeout:
        # Bodies that are too large are read, too: many clients read the response only after sending the whole body.
        while length <= _MAX_READ_BYTES:
            message = await receive()
            if message["type"] != "http.request":
                return None
            length += len(message["body"])
            if length <= MAX_BODY_BYTES:
                body += message["body"]
            if not message["more_body"]:
                break
    if timeout.cancelled_caught:
        expected = f"the whole body within {_BODY_TIMEOUT_S:g} s"
        raise Problem(408, f"body: expected {expected}", field="body", expected=expected)
    if length > MAX_BODY_BYTES:
        expected = f"at most {MAX_BODY_BYTES} bytes"
        raise Problem(413, f"body: expected {expected}", field="body", expected=expected)
    return bytes(body)


async def _cancel_on_disconnect(receive: ASGIReceiveCallable, scope: trio.CancelScope) -> None:
    """Cancel a scope when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _send(reply: Reply, method: str, send: ASGISendCallable) -> None:
    await _end(await _start(reply, method, send), send)


async def _start(reply: Reply, method: str, send: ASGISendCallable) -> bytes:
    """Send the headers and, if the body is a generator, its pieces; return the rest, to be sent by `_end`."""
    headers = {**reply.headers}
    if reply.media_type:
        headers["content-type"] = reply.media_type
    body = reply.body
    if isinstance(body, bytes) and reply.status != 204:
        headers["content-length"] = str(len(body))
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": [*encoded, *_SECURITY_HEADERS]})
    if not isinstance(body, bytes):
        async with aclosing(body):
            if method != "HEAD":
                async for piece in body:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        body = b""
    return body


async def _end(body: bytes, send: ASGISendCallable) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": False})
