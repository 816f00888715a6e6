"""The control API: requests of any bytes to the ASGI application, in virtual time and without its server."""

import json
from collections.abc import Iterator
from typing import Any

import trio
import trio.testing

from fakebroker.cluster.handles.definition import DEFINITIONS
from fakebroker.control.app import App
from fakebroker.control.auth import Guard
from fakebroker.control.clusters import Clusters
from fakebroker.control.routes.dispatch import Dispatcher
from fakebroker.control.routes.resources import OPERATIONS
from fakebroker.coordinator import invariants
from fakebroker.coordinator.classic.group import Group
from fakebroker.server.fake_cluster import FakeCluster, internals
from tests.support.cluster.method_arguments import call_of, event_of

_SEPARATOR = b"\n\n"
_MAX_REQUESTS = 5
_DISCONNECTED_AFTER_S = 2.0
"""When the client of a request disconnects: it ends waits and streams, without delay because time is virtual."""

_HOST = "127.0.0.1"
_PATH_VALUES = {
    "cluster": "default",
    "group_id": "stable",
    "id": "1",
    "name": "orders",
    "node_id": "1",
    "partition": "0",
    "topic": "orders",
    "transactional_id": "payments",
}
_CREATES_CLUSTERS = b"/v1/clusters"


def run(data: bytes) -> None:
    """Send requests to a cluster with a group.

    No request fails with an internal error, and afterwards the cluster is served and its invariants hold.

    Args:
        data: At most five requests, separated by empty lines: a method, a space, path and query; then the body,
            from the next line on.
    """
    trio.run(_run, data, clock=trio.testing.MockClock(autojump_threshold=0))


async def _run(data: bytes) -> None:
    async with FakeCluster(2, {"orders": 2}, seed=1) as cluster:
        cluster.group("stable").seed(members=["app", "other"], topics=["orders"])
        clusters = Clusters(cluster)
        async with clusters.running():
            app = App(Dispatcher(clusters), Guard(_HOST, None))
            for text in data.split(_SEPARATOR)[:_MAX_REQUESTS]:
                line, _, body = text.partition(b"\n")
                method, _, target = line.partition(b" ")
                await _request(app, method, target, body)
            assert await _request(app, b"GET", b"/healthz", b"") == 200
            internals(cluster).run(lambda: _check(cluster))
            clusters.end_feeds()
        cluster.clear_faults()  # They may be applied to no request.


def _check(cluster: FakeCluster) -> None:
    for broker in internals(cluster).cluster.brokers.values():
        for group in broker.coordinator.groups.classic.values():
            if isinstance(group, Group):
                invariants.check(group)


async def _request(app: App, method: bytes, target: bytes, body: bytes) -> int:
    """Send a request and return the status of the response; 0 if its client has disconnected before."""
    path, _, query = target.partition(b"?")
    if method == b"POST" and path == _CREATES_CLUSTERS:
        return 0  # Each cluster has a thread and real time of its own.
    scope: Any = {
        "type": "http",
        "method": method.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": [(b"host", _HOST.encode()), (b"content-type", b"application/json")],
    }
    events: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if events:
            return events.pop()
        await trio.sleep(_DISCONNECTED_AFTER_S)
        return {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(event)

    await app(scope, receive, send)
    status: int = sent[0]["status"] if sent else 0
    assert status < 500 or status == 503, f"{method!r} {target!r}: {status}: {sent[1:]}"
    return status


def seeds() -> Iterator[bytes]:
    """Yield a request of each operation, each command as an event, and a wait for each condition."""
    calls = {name.replace(".", "_"): call_of(definition) for name, definition in DEFINITIONS.items()}
    for operation in OPERATIONS:
        key, arguments = calls.get(operation.name, ({}, {}))
        path = operation.path.format_map({**_PATH_VALUES, **key})
        body = "" if operation.body is None else json.dumps(arguments)
        yield f"{operation.method} {path}\n{body}".encode()
    for name, definition in sorted(DEFINITIONS.items()):
        if definition.kind == "command":
            yield _post("events", {"do": name, **event_of(definition)})
        if definition.kind == "condition":
            yield _post("wait", {"condition": {"is": name, **event_of(definition)}})


def _post(path: str, body: dict[str, Any]) -> bytes:
    return f"POST /v1/clusters/default/{path}\n{json.dumps(body)}".encode()
