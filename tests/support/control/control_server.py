"""A control server beside a cluster of this process, and the plainest HTTP client that can ask it."""

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
class Answer:
    """The answer to one request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Asking:
    """A cluster, and where it is controlled."""

    cluster: FakeCluster
    server: ControlServer

    def connect(self) -> HTTPConnection:
        return HTTPConnection(urlsplit(self.server.url).netloc, timeout=TIMEOUT_S)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """Ask; a body that is no bytes goes as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.connect()
        try:
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str = "") -> Any:
        """The JSON at a path below the cluster's."""
        answer = self.ask("GET", BASE + path)
        assert answer.status == 200, answer
        return answer.json

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        """The JSON that posting to a path below the cluster's gives."""
        answer = self.ask("POST", BASE + path, body)
        assert answer.status == status, answer
        return answer.json

    @contextmanager
    def listen(self, path: str, cluster: str = "default") -> Iterator[HTTPResponse]:
        """A stream of events of a cluster, until the end of the block."""
        with closing(self.connect()) as connection:
            connection.request("GET", f"/v1/clusters/{cluster}{path}")
            with connection.getresponse() as response:
                yield response


@contextmanager
def asking(*arguments: Any, token: str | None = None, host: str = "127.0.0.1", **options: Any) -> Iterator[Asking]:
    """A cluster with these arguments, and its control server."""
    with FakeCluster(*arguments, **options) as cluster, ControlServer(cluster, host, token=token) as server:
        yield Asking(cluster, server)


def next_event(response: HTTPResponse, kind: str) -> Any:
    """The data of the next event of a kind."""
    found = ""
    while line := response.readline().decode():
        name, _, value = line.rstrip("\n").partition(": ")
        if name == "event":
            found = value
        elif name == "data" and found == kind:
            return json.loads(value)
    raise AssertionError(f"the stream ended before an event {kind}")
