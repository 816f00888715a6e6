"""Fakes of the control API for `top`: they return JSON that a test sets, so any state of a cluster can be shown."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fakebroker.control.stats.rates import Latency

NOW_MS = 1_790_000_000_000.0


class FakeControlServer(ThreadingHTTPServer):
    """An HTTP server with the three responses that `top` needs.

    Attributes:
        overview: The overview of the cluster.
        groups: The rows of the groups, returned in this order for any `sort`.
        blocked: The groups that wait for members.
        sorts: The `sort` parameters of the requests so far.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.overview = overview()
        self.groups = [group_row(number) for number in range(1, 4)]
        self.blocked: dict[str, Any] = {"total": 0, "groups": []}
        self.sorts: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: FakeControlServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/v1/clusters/default":
            self._respond(self.server.overview)
        elif url.path == "/v1/clusters/default/groups":
            query = parse_qs(url.query)
            self.server.sorts += query["sort"]
            groups = self.server.groups[: int(query["limit"][0])]
            self._respond({"total": len(self.server.groups), "groups": groups})
        elif url.path == "/v1/clusters/default/blocked_groups":
            self._respond(self.server.blocked)

    def _respond(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Do not write to stderr."""


@contextmanager
def fake_control_server() -> Iterator[FakeControlServer]:
    """Run a fake control server in a thread."""
    with FakeControlServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def raw_server(response: bytes) -> Iterator[str]:
    """Accept one connection, send these bytes after the first read, and close it; yields the URL."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(response)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


class FakeTopSource:
    """The methods of the control client that `top` calls, without HTTP.

    Attributes:
        cluster: The overview.
        rows: The rows of the groups, returned in this order for any `sort`.
        blocked: The groups that wait for members.
        transactions: The rows of transactional ids; set `transactions_by_state` of the overview, too.
    """

    def __init__(self, rows: list[dict[str, Any]] | None = None, **changes: Any) -> None:
        self.cluster = overview(**changes)
        self.rows = [group_row(number) for number in range(1, 4)] if rows is None else rows
        self.blocked: list[dict[str, Any]] = []
        self.transactions: list[dict[str, Any]] = []

    def overview(self) -> dict[str, Any]:
        return self.cluster

    def group_rows(self, *, sort: str, limit: int) -> list[dict[str, Any]]:
        return self.rows[:limit]

    def transaction_rows(self, *, sort: str, limit: int) -> list[dict[str, Any]]:
        return self.transactions[:limit]

    def blocked_groups(self, *, limit: int) -> dict[str, Any]:
        return {"total": len(self.blocked), "groups": self.blocked[:limit]}


def overview(**changes: Any) -> dict[str, Any]:
    """Return the overview of a busy cluster with three brokers, with some keys changed."""
    rates = [
        api_rate("Heartbeat", 2000.0, 0.0, (0.0, 0.0, 0.05, 0.12)),
        api_rate("Fetch", 300.0, 0.5, (0.4, 501.2, 0.6, 502.4), can_wait=True),
        api_rate("JoinGroup", 2.5, 0.0, (3.0, 2999.0, 3.2, 3001.0), can_wait=True),
        api_rate("OffsetCommit", 1.0, 0.0, (0.0, 500.0, 0.1, 501.0)),
    ]
    return {
        "name": "default",
        "clock": {"now_ms": NOW_MS, "kind": "real"},
        "brokers": [broker_row(node_id) for node_id in (1, 2, 3)],
        "groups_by_state": {"Empty": 7, "PreparingRebalance": 1, "CompletingRebalance": 0, "Stable": 1234, "Dead": 0},
        "members": 3456,
        "transactions_by_state": {},
        "waiting_markers": 0,
        "connections": 24,
        "rates": {"requests_per_s": 2302.5, "latency": latency((0.0, 0.0, 0.05, 0.13)), "by_api": rates},
        "faults": 0,
        "rebalances": 56,
        **changes,
    }


def latency(quantiles_ms: tuple[float | None, ...]) -> dict[str, Any]:
    """Return quantiles in the order of `Latency`: of the broker time, then of the wire time."""
    return dict(zip(Latency.__annotations__, quantiles_ms, strict=True))


def api_rate(
    api: str, requests_per_s: float, errors_per_s: float, quantiles_ms: tuple[float | None, ...], can_wait: bool = False
) -> dict[str, Any]:
    rates = {"api": api, "can_wait": can_wait, "requests_per_s": requests_per_s, "errors_per_s": errors_per_s}
    return rates | latency(quantiles_ms)


def broker_row(node_id: int, **changes: Any) -> dict[str, Any]:
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


def group_row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "group_id": f"billing-{number}",
        "type": "classic",
        "state": "Stable",
        "generation_id": number,
        "members": 3,
        "coordinator": number % 3 + 1,
        "since_ms": NOW_MS - 1000 * number,
        "until_ms": None,
        "rebalances": number + 1,
        "lag": 4_000 + number,
        "why": f"SyncGroup of the leader consumer-{number}",
        **changes,
    }


def transaction_row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "transactional_id": f"payments-{number}",
        "state": "PrepareCommit",
        "pending_state": "CompleteCommit",
        "producer_id": 4000 + number,
        "producer_epoch": 7,
        "start_ms": NOW_MS - 12_340,
        "last_update_ms": NOW_MS - 1_000 * number,
        "why": f"waiting for markers of orders-{number}, whose leader broker 2 is down",
        **changes,
    }


def blocked_row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "group_id": f"billing-{number}",
        "state": "PreparingRebalance",
        "since_ms": NOW_MS - 12_340,
        "request": "JoinGroup",
        "blocking": [f"slow-{number}"],
        "missing": 1,
        "partitions": 0,
        "sent": 3,
        "members": 4,
        "is_held": False,
        "until_ms": NOW_MS + 287_660,
        "removes": 1,
        "restarts": False,
        **changes,
    }
