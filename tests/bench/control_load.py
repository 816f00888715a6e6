"""A paced load of control calls, and streams of events that are read: what watching a busy cluster comes to.

    python -m tests.bench.control_load PORT CALLS_PER_S STREAMS

For each line that comes it does so for as many seconds as the line says, and prints one of JSON. Calls go out when they
are due, on connections that are kept; the load must cost less than what it measures, so an answer is only looked at for
its status and length.
"""

import json
import selectors
import socket
import sys
import time
from collections import deque
from contextlib import ExitStack

CONNECTIONS = 16
_V1 = "/v1/clusters/default"
_FAULT = json.dumps({"api": "Heartbeat", "client_id": "nobody", "drop": True})
CALLS = (
    ("GET", f"{_V1}/groups?limit=20", ""),
    ("GET", f"{_V1}/brokers", ""),
    ("GET", f"{_V1}/faults", ""),
    ("GET", f"{_V1}/clock", ""),
    ("POST", f"{_V1}/wait/state", '{"group_id": "nobody", "state": "Dead"}'),
    ("GET", f"{_V1}/journal?limit=10", ""),
    ("GET", _V1, ""),
    ("POST", f"{_V1}/topics", "{}"),
)
"""The last one is refused."""


class Caller:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due_at = 0.0
        self._data = b""

    def send(self, due_at: float, method: str, path: str, body: str) -> None:
        self.due_at = due_at
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
        self.socket.sendall((head + body).encode())

    def receive(self) -> int | None:
        """Reads on; the status once the answer is whole."""
        piece = self.socket.recv(1 << 18)
        assert piece, "the control server closed a connection"
        self._data += piece
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0]):
            return None
        self._data = b""
        return int(head[9:12])


def run(port: int, calls_per_s: float, streams: int, seconds: float) -> dict[str, float]:
    """Calls for so long; gives how many were made, and how many milliseconds after they were due they were answered."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(streams):
            listener = Caller(port)
            stack.enter_context(listener.socket)
            listener.send(0.0, "GET", f"{_V1}/stream", "")
            selector.register(listener.socket, selectors.EVENT_READ)
        free = deque(Caller(port) for _ in range(CONNECTIONS))
        for caller in free:
            stack.enter_context(caller.socket)
            selector.register(caller.socket, selectors.EVENT_READ, caller)
        made = heard_bytes = refused = 0
        latencies: list[float] = []
        start = time.perf_counter()
        # Nothing is left undone at the end: what comes after is measured too.
        while (now := time.perf_counter()) < start + seconds or len(free) < CONNECTIONS:
            due_at = start + made / calls_per_s
            if free and now >= due_at and now < start + seconds:
                free.popleft().send(due_at, *CALLS[made % len(CALLS)])
                made += 1
                continue
            for key, _ in selector.select(max(0.0, due_at - now) if free else 1.0):
                caller = key.data
                if caller is None:
                    heard_bytes += len(key.fileobj.recv(1 << 18))  # type: ignore[union-attr]  # a socket
                elif (status := caller.receive()) is not None:
                    refused += status >= 400
                    latencies.append((time.perf_counter() - caller.due_at) * 1000)
                    free.append(caller)
    latencies.sort()
    return {
        "calls_per_s": made / seconds,
        "refused_per_s": refused / seconds,
        "p50_ms": latencies[made // 2],
        "p99_ms": latencies[made * 99 // 100],
        "heard_kib_per_s": heard_bytes / seconds / 1024,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(line))), flush=True)
