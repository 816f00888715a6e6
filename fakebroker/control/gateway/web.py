"""The ASGI application: authorization, body limits, the page and the streams; other requests go to the brokers."""

from collections.abc import Iterable
from importlib.resources import files

import msgspec
import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from fakebroker.control.gateway.auth import Guard
from fakebroker.control.gateway.brokers_end import BrokersEnd, HasEnded, IsGone
from fakebroker.control.gateway.streams import AllStreams, stream
from fakebroker.control.problems import PROBLEM_TYPE, Problem

MAX_BODY_BYTES = 1024 * 1024
_MOST_READ_BYTES = 16 * MAX_BODY_BYTES
_PAGE = files("fakebroker.control") / "page"
_DOCS = files("fakebroker.control") / "docs.html"
_KINDS = {
    "html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "json": "application/json",
}  # fmt: skip
_ALWAYS = [
    # Other sites must not frame these pages (clickjacking).
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
]


def make_app(brokers: BrokersEnd, guard: Guard, nursery: trio.Nursery) -> ASGIApp:
    """Return the application for a link to the brokers; background tasks run in the nursery."""
    streams = AllStreams(brokers, nursery)

    async def listen(request: Request) -> Response:
        return await stream(streams, request)

    async def pass_on(request: Request) -> Response:
        return await _passed_on(brokers, request)

    routes = [
        Route("/healthz", _healthz),
        Route("/docs", _docs),
        Route("/", _page),
        Route("/page/{path:path}", _page),
        Route("/v1/clusters/{cluster}/stream", listen),
    ]
    handlers = {
        Problem: _problem,
        HasEnded: _ended,
        IsGone: _gone,
        ClientDisconnect: _gone,
        HTTPException: _other_method,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]
    answer = request_response(pass_on)

    async def others(scope: Scope, receive: Receive, send: Send) -> None:
        await (answer if scope["type"] == "http" else WebSocketClose())(scope, receive, send)

    app.router.default = others
    app.router.redirect_slashes = False
    return Gate(app, guard)


class Gate:
    """Authorizes requests before the application.

    Args:
        app: The application.
        guard: Checks the requests.
    """

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_ALWAYS]
            await send(message)

        # Everything uses the path as received. A part of it may contain an encoded slash, so it is decoded only after
        # it has been split.
        scope["path"] = scope["raw_path"].decode("latin-1")
        try:
            self._guard.check(scope["method"], scope["path"], Headers(scope=scope))
        except Problem as problem:
            await response_to(problem)(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)


async def _passed_on(brokers: BrokersEnd, request: Request) -> Response:
    """Return the brokers' response; the request is canceled if the client disconnects."""
    body = await _body(request)

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    # Not from `request.url`, which also depends on the Host header.
    query = request.scope["query_string"].decode("latin-1")
    reply = await brokers.ask(request.method, request.scope["path"], query, body, gone=gone)
    if reply.status == 405:
        allowed = _allowed(reply.headers["allow"].split(", "))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=allowed)
        reply.headers.update(allowed)
    return Response(reply.body, reply.status, reply.headers, reply.media_type or None)


def _allowed(methods: Iterable[str]) -> dict[str, str]:
    """Return the header with the allowed methods; HEAD is allowed with GET."""
    more = ("HEAD", "OPTIONS") if "GET" in methods else ("OPTIONS",)
    return {"allow": ", ".join(sorted({*methods, *more}))}


async def _body(request: Request) -> bytes:
    body, length = bytearray(), 0
    # Read to the end, so that a client that sends too much gets the error.
    async for chunk in request.stream():
        length += len(chunk)
        if length <= MAX_BODY_BYTES:
            body += chunk
        elif length > _MOST_READ_BYTES:
            break
    if length > MAX_BODY_BYTES:
        expected = f"at most {MAX_BODY_BYTES} bytes"
        raise Problem(413, f"body: expected {expected}", field="body", expected=expected)
    return bytes(body)


async def _healthz(request: Request) -> Response:
    return Response(b'{"status":"ok"}', media_type="application/json")


async def _docs(request: Request) -> Response:
    return Response(_DOCS.read_bytes(), media_type="text/html")


async def _page(request: Request) -> Response:
    name = request.path_params.get("path", "index.html")
    known = {each.name: each for each in _PAGE.iterdir() if each.is_file()}
    if name not in known:
        raise Problem(404, f"page={name!r}: expected one of {', '.join(known)}", field="page", value=name)
    kind = _KINDS.get(name.rpartition(".")[2], "application/octet-stream")
    return Response(known[name].read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})


def response_to(problem: Problem) -> Response:
    """Return a problem as a response."""
    headers = {"www-authenticate": "Bearer"} if problem.status == 401 else None
    return Response(msgspec.json.encode(problem.body()), problem.status, headers, PROBLEM_TYPE)


async def _problem(request: Request, error: Problem) -> Response:
    return response_to(error)


async def _ended(request: Request, error: HasEnded) -> Response:
    return response_to(Problem(503, "the brokers' process has ended"))


async def _other_method(request: Request, error: HTTPException) -> Response:
    """Reject a method that a route of this process does not support."""
    allowed = _allowed((error.headers or {})["Allow"].split(", "))
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=allowed)
    expected = allowed["allow"]
    sentence = f"method={request.method!r}: expected {expected}"
    response = response_to(Problem(405, sentence, field="method", value=request.method, expected=expected))
    response.headers.update(allowed)
    return response


async def _gone(request: Request, error: ClientDisconnect | IsGone) -> Response:
    return Response(status_code=499)  # the client has disconnected
