"""A load of control API calls at a fixed rate, and of event streams, as tools produce that watch a busy cluster.

    python -m tests.bench.control_load PORT CALLS_PER_S STREAMS

For each line of stdin it runs for that number of seconds, and prints a JSON line. Calls are sent when they are due,
on persistent connections. The load must use less CPU time than the server, so only status and length of a response
are read.
"""

import json
import selectors
import socket
import statistics
import sys
import time
from collections import deque
from contextlib import ExitStack

CONNECTIONS = 16
_V1 = "/v1/clusters/default"
_HOLD = '{"state": "PreparingRebalance"}'
CALLS = (
    ("GET", f"{_V1}/groups?limit=20", ""),
    ("GET", f"{_V1}/brokers", ""),
    ("POST", f"{_V1}/clear_faults", ""),
    ("GET", f"{_V1}/clock", ""),
    ("POST", f"{_V1}/wait", '{"condition": {"is": "group.state", "group_id": "nobody", "state": "Dead"}}'),
    ("GET", f"{_V1}/journal?limit=10", ""),
    ("POST", f"{_V1}/groups/group-00007/hold", _HOLD),
    ("GET", _V1, ""),
    ("POST", f"{_V1}/groups/group-00008/hold", _HOLD),
    ("POST", f"{_V1}/inject_fault", "{}"),
)
"""The last call is rejected. No fault is added: each broker request would have to be matched against it."""


class ControlConnection:
    """A persistent connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due_at = 0.0
        self._is_refused = False
        self._data = b""

    def send(self, method: str, path: str, body: str = "") -> None:
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
        self.socket.sendall((head + body).encode())

    def call(self, number: int, due_at: float) -> None:
        """Send the call with a number, which is due at a time of `time.perf_counter`."""
        self._is_refused, self.due_at = number % len(CALLS) == len(CALLS) - 1, due_at
        self.send(*CALLS[number % len(CALLS)])

    def receive(self) -> bytes:
        piece = self.socket.recv(1 << 18)
        assert piece, "the control server closed a connection"
        return piece

    def is_answered(self) -> bool:
        """Read available bytes; return whether the response is complete."""
        self._data += self.receive()
        head, end, body = self._data.partition(b"\r\n\r\n")
        _, told, length = head.lower().partition(b"content-length: ")
        if not end or (told and len(body) < int(length.split(b"\r\n", 1)[0])):
            return False
        assert (int(head[9:12]) >= 400) == self._is_refused, self._data.decode()
        self._data = b""
        return True


def run(port: int, calls_per_s: float, streams: int, seconds: float) -> dict[str, float]:
    """Make calls for some seconds; return their rate, and their latencies in milliseconds, counted from when due."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(streams):
            listener = ControlConnection(port)
            stack.enter_context(listener.socket)
            listener.send("GET", f"{_V1}/stream")
            selector.register(listener.socket, selectors.EVENT_READ, (listener, False))
        free = deque(ControlConnection(port) for _ in range(CONNECTIONS))
        for caller in free:
            stack.enter_context(caller.socket)
            selector.register(caller.socket, selectors.EVENT_READ, (caller, True))
        made = heard_bytes = 0
        latencies: list[float] = []
        start = time.perf_counter()
        # Wait for all responses at the end: their work must not disturb the next measurement.
        while (now := time.perf_counter()) < start + seconds or len(free) < CONNECTIONS:
            due_at = start + made / calls_per_s
            may_call = bool(free) and due_at < start + seconds
            if may_call and now >= due_at:
                free.popleft().call(made, due_at)
                made += 1
                continue
            for key, _ in selector.select(due_at - now if may_call else max(0.001, start + seconds - now)):
                caller, calls = key.data
                if not calls:
                    heard_bytes += len(caller.receive())
                elif caller.is_answered():
                    latencies.append((time.perf_counter() - caller.due_at) * 1000)
                    free.append(caller)
    percentiles_ms = statistics.quantiles(latencies, n=100)
    return {
        "calls_per_s": made / seconds,
        "p50_ms": percentiles_ms[49],
        "p99_ms": percentiles_ms[98],
        "heard_kib_per_s": heard_bytes / seconds / 1024,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(line))), flush=True)
