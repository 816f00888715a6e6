"""A stand-in for the control API with made-up JSON: to have states at will that a cluster has only at times."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

NOW_MS = 1_790_000_000_000.0


class StandIn(ThreadingHTTPServer):
    """Answers like the control API.

    Attributes:
        overview: What it tells of the cluster.
        groups: The groups; each order is that in which they are here.
        orders: In which orders they were asked for.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.overview = overview()
        self.groups = [group(number) for number in range(1, 4)]
        self.orders: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/v1/clusters/default":
            self._answer(self.server.overview)
        elif url.path == "/v1/clusters/default/groups":
            query = parse_qs(url.query)
            self.server.orders += query["sort"]
            groups = self.server.groups[: int(query["limit"][0])]
            self._answer({"total": len(self.server.groups), "groups": groups})

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """A stand-in that answers until the end of the block."""
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def overview(**changes: Any) -> dict[str, Any]:
    """A cluster of three brokers that has something to do."""
    apis = [("Heartbeat", 2000.0, 0.0, 0.05, 0.12), ("Fetch", 300.0, 0.5, 0.4, 501.2), ("JoinGroup", 2.5, 0.0, 3, 2999)]
    names = ("api", "requests_per_s", "errors_per_s", "p50_ms", "p99_ms")
    return {
        "name": "default",
        "clock": {"now_ms": NOW_MS, "kind": "real"},
        "brokers": [broker(node_id) for node_id in (1, 2, 3)],
        "groups_by_state": {"Empty": 7, "PreparingRebalance": 1, "CompletingRebalance": 0, "Stable": 1234, "Dead": 0},
        "members": 3456,
        "connections": 24,
        "rates": {"requests_per_s": 2302.5, "by_api": [dict(zip(names, api, strict=True)) for api in apis]},
        "faults": 0,
        "rebalances": 56,
        **changes,
    }


def broker(node_id: int, **changes: Any) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "host": "127.0.0.1",
        "port": 9091 + node_id,
        "up": True,
        "as_version": "4.2",
        "connections": 8,
        "groups": 400 + node_id,
        "requests_per_s": 700.0 + node_id,
        **changes,
    }


def group(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "group_id": f"billing-{number}",
        "state": "Stable",
        "generation_id": number,
        "members": 3,
        "coordinator": number % 3 + 1,
        "since_ms": NOW_MS - 1000 * number,
        "rebalances": number + 1,
        "why": f"SyncGroup of the leader consumer-{number}",
        **changes,
    }
