"""A control server with a cluster in the process of the test, and a plain HTTP client for it."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from fakebroker import FakeCluster
from fakebroker.control.server import ControlServer

TIMEOUT_S = 30.0
BASE = "/v1/clusters/default"


@dataclass(frozen=True, slots=True)
class Response:
    """A complete HTTP response. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The JSON of the body; None without a body."""
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True, slots=True)
class ControlHarness:
    """A cluster, its control server, and requests to it. Each request has a new connection.

    Does not start or stop anything; see `controlled_cluster`. The server's name of the cluster is "default". The clock
    is real time, unless the cluster has a manual clock. No token is sent, unless it is in `headers`.
    """

    cluster: FakeCluster
    server: ControlServer

    def connect(self) -> HTTPConnection:
        return HTTPConnection(urlsplit(self.server.url).netloc, timeout=TIMEOUT_S)

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Response:
        """Send a request. A body other than bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.connect()
        try:
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            return Response(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str = "") -> Any:
        """Get a path below the cluster's; return the JSON."""
        response = self.request("GET", BASE + path)
        assert response.status == 200, response
        return response.json

    def post(self, path: str, body: Any = None, status: int | None = None) -> Any:
        """Post to a path below the cluster's, expecting a status, by default any of success; return the JSON."""
        response = self.request("POST", BASE + path, body)
        assert response.status < 300 if status is None else response.status == status, response
        return response.json

    @contextmanager
    def stream(self, path: str, cluster: str = "default") -> Iterator[HTTPResponse]:
        """Open an event stream of a cluster and close it at the end."""
        with closing(self.connect()) as connection:
            connection.request("GET", f"/v1/clusters/{cluster}{path}")
            with connection.getresponse() as response:
                yield response


@contextmanager
def controlled_cluster(
    *arguments: Any, token: str | None = None, host: str = "127.0.0.1", **options: Any
) -> Iterator[ControlHarness]:
    """Start a FakeCluster with the other arguments, and a control server on a free port of `host`."""
    with FakeCluster(*arguments, **options) as cluster, ControlServer(cluster, host, token=token) as server:
        yield ControlHarness(cluster, server)


def next_event(response: HTTPResponse, kind: str) -> Any:
    """Read an event stream up to the next event of a kind; return its data."""
    event = ""
    while line := response.readline().decode():
        name, _, value = line.rstrip("\n").partition(": ")
        if name == "event":
            event = value
        elif name == "data" and event == kind:
            return json.loads(value)
    raise AssertionError(f"the stream ended before an event {kind}")
