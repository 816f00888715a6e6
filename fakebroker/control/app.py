"""The ASGI application: authorization, limits of bodies, and the end of requests whose callers have disconnected."""

from collections.abc import Iterator
from contextlib import aclosing, contextmanager

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from fakebroker.control.auth import Guard
from fakebroker.control.problems import Problem
from fakebroker.control.routes.dispatch import Dispatcher, Reply, Request, failure

MAX_BODY_BYTES = 1024 * 1024
_MOST_READ_BYTES = 16 * MAX_BODY_BYTES
_MOST_READ_S = 30.0
_ALWAYS = [
    # Other sites must not frame these pages (clickjacking).
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
]


class App:
    """The application.

    Args:
        dispatcher: Handles the requests.
        guard: Checks whether they are allowed.
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
        # Everything uses the path as received. A part of it may contain an encoded slash, so it is decoded only after
        # it has been split.
        method, path = scope["method"], scope["raw_path"].decode("latin-1")
        try:
            self._guard.check(method, path, _headers(scope))
            body = await _body(receive)
        except Problem as problem:
            await _send(failure(Request(method, path), problem), method, send)
            return
        if body is None:
            return
        request = Request(method, path, scope["query_string"].decode("latin-1"), body)
        if self._dispatcher.is_brief(request):
            await _send(await self._dispatcher.answer(request), method, send)
            return
        reply = failure(request, Problem(503, "control over HTTP has ended"))
        # The end of the response is sent outside the nursery: the server reports a disconnection within that call, and
        # must not be canceled there, or it would neither close the connection nor start its idle timeout.
        last: bytes | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
            with self._cancelable():
                reply = await self._dispatcher.answer(request)
            last = await _start(reply, method, send)
            nursery.cancel_scope.cancel()
        if last is not None:
            await _end(last, send)

    @contextmanager
    def _cancelable(self) -> Iterator[None]:
        """Cancel the context at the end."""
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


async def _body(receive: ASGIReceiveCallable) -> bytes | None:
    """Return the body of a request; None if its caller has disconnected.

    Raises:
        Problem: It is too large, or does not arrive in time.
    """
    body, length = bytearray(), 0
    with trio.move_on_after(_MOST_READ_S) as in_time:
        # Read to the end, so that a client that sends too much gets the error.
        while length <= _MOST_READ_BYTES:
            message = await receive()
            if message["type"] != "http.request":
                return None
            length += len(message["body"])
            if length <= MAX_BODY_BYTES:
                body += message["body"]
            if not message["more_body"]:
                break
    if in_time.cancelled_caught:
        expected = f"the whole body within {_MOST_READ_S:g} s"
        raise Problem(408, f"body: expected {expected}", field="body", expected=expected)
    if length > MAX_BODY_BYTES:
        expected = f"at most {MAX_BODY_BYTES} bytes"
        raise Problem(413, f"body: expected {expected}", field="body", expected=expected)
    return bytes(body)


async def _until_gone(receive: ASGIReceiveCallable, scope: trio.CancelScope) -> None:
    """Cancel a scope when the caller disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _send(reply: Reply, method: str, send: ASGISendCallable) -> None:
    await _end(await _start(reply, method, send), send)


async def _start(reply: Reply, method: str, send: ASGISendCallable) -> bytes:
    """Send the headers and the pieces of a body that is produced meanwhile; returns what is left to send."""
    headers = {**reply.headers}
    if reply.media_type:
        headers["content-type"] = reply.media_type
    body = reply.body
    if isinstance(body, bytes) and reply.status != 204:
        headers["content-length"] = str(len(body))
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": [*encoded, *_ALWAYS]})
    if not isinstance(body, bytes):
        async with aclosing(body):
            if method != "HEAD":
                async for piece in body:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        body = b""
    return body


async def _end(body: bytes, send: ASGISendCallable) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": False})
