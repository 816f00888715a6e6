"""The speed of replays in memory, for `make bench`: one load of `players.py`. `make bench-replay` measures more."""

import json

from tests.bench.figures import Figure
from tests.bench.processes import rows_of

TASK = {"members": 5_000, "seconds": 600, "ramp_s": 60, "commit_ms": 60_000}
"""As in `make bench-replay`."""
AIM_PER_S = 400_000


def measure() -> dict[str, float]:
    """Return `requests` and `cpu_s` of a simulation in another process on the first core."""
    [row] = rows_of("tests.bench.players", "simulation", json.dumps(TASK))
    return row


def figures(row: dict[str, float], heartbeat_us: float) -> list[Figure]:
    """Return the figures; the ratio is to the CPU time of one heartbeat over TCP."""
    per_s = row["requests"] / row["cpu_s"]
    return [
        Figure(what="simulated requests, steady load, one core", measured=per_s, unit="requests/s", aim=AIM_PER_S),
        Figure(
            name="simulated requests / heartbeats", what="simulated requests for one heartbeat (CPU time)",
            measured=per_s * heartbeat_us / 1e6, unit="times",
        ),
    ]  # fmt: skip
