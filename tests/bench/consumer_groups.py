"""The cost of large consumer groups (KIP-848); prints one line of JSON.

    python -m tests.bench.consumer_groups [--members N] [--loaded N]

Requests and responses are frames, which are decoded and encoded in this process as in `fakebroker serve`; only sockets
are missing. Times are CPU times. Memory is the growth of the resident set while the groups are loaded.
"""

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Sequence

from fakebroker.cli.serve import GARBAGE_COLLECTIONS
from fakebroker.cluster.call import Peer
from fakebroker.cluster.cluster import Cluster
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from tests.bench.figures import Figure
from tests.bench.processes import resident_bytes, rows_of
from tests.support.cluster.consumer_group_frames import ConsumerGroupFrames, answered
from tests.support.cluster.group_frames import GROUP, GroupFrames

MEMBERS, LOADED, LOADED_GROUP = 2_000, 100_000, 1_000
"""Members of the large group, and of all groups that are loaded, of which each has so many."""
JOIN_AIM_MS, HEARTBEAT_AIM = 40.0, 2.0
JOINS, BATCHES, BATCH = 7, 15, 5_000
ACTIVE = 100
"""Members that send heartbeats in turn."""

Row = dict[str, float]
"""The results: `join_ms`, `settle_us` (a request until all members have reached a new epoch), `heartbeat_us` and
`classic_us`; `member_bytes` and `load_us` of one member."""


def large_group(members: int, batch: int = BATCH) -> Row:
    """Measure a group whose members join one by one, and heartbeats in which nothing changes."""
    frames = ConsumerGroupFrames(1, members)
    frames.load()
    peers = frames.peers(members + JOINS + 1)
    joins_ms, settle_us = [], []
    for number in range(members, members + JOINS + 1):  # The first one compiles codecs.
        request = frames.join_request()
        start = time.process_time()
        response = frames.send(peers[number], request)
        joins_ms.append((time.process_time() - start) * 1e3)
        frames.take(number, response)
        start = time.process_time()
        sent = frames.settle(peers)
        settle_us.append((time.process_time() - start) * 1e6 / sent)
    classic = GroupFrames(members)
    active = range(min(ACTIVE, members))
    heartbeats = [frames.heartbeat_request(number) for number in active]
    classic_heartbeats = [_classic_heartbeat(classic, number) for number in active]
    times = [
        (
            _steady_us(frames.cluster, peers, heartbeats, batch),
            _steady_us(classic.cluster, classic.peers, classic_heartbeats, batch),
        )
        for _ in range(BATCHES)
    ]
    return {
        "join_ms": statistics.median(joins_ms[1:]),
        "settle_us": statistics.median(settle_us[1:]),
        "heartbeat_us": statistics.median(consumer_us for consumer_us, _ in times),
        "classic_us": statistics.median(classic_us for _, classic_us in times),
    }


def _classic_heartbeat(group: GroupFrames, number: int) -> bytes:
    request = HeartbeatRequest(group_id=GROUP, generation_id=group.generation_id, member_id=group.member_ids[number])
    return request_frame(request, 4, 0, "client")[4:]


def _steady_us(cluster: Cluster, peers: Sequence[Peer], requests: Sequence[bytes], batch: int) -> float:
    """Return the CPU time of one heartbeat, which is repeated on its connection."""
    sent = [*zip(peers, requests, strict=False)] * (batch // len(requests))
    start = time.process_time()
    for peer, request in sent:
        answered(cluster, peer, request)
    return (time.process_time() - start) * 1e6 / len(sent)


def loaded_groups(members: int) -> Row:
    """Measure how a broker loads groups, after another broker has loaded some."""
    ConsumerGroupFrames(1, LOADED_GROUP).load()
    frames = ConsumerGroupFrames(members // LOADED_GROUP, LOADED_GROUP)
    gc.collect()
    before = resident_bytes(os.getpid())
    start = time.process_time()
    frames.load()
    load_us = (time.process_time() - start) * 1e6
    gc.collect()
    assert frames.group.state.value == "Stable"
    return {"member_bytes": (resident_bytes(os.getpid()) - before) / members, "load_us": load_us / members}


def measure() -> Row:
    """Measure in another process on the first core."""
    [row] = rows_of("tests.bench.consumer_groups")
    return row


def figures(row: Row) -> list[Figure]:
    group, ratio = f"a consumer group of {MEMBERS:,} members", row["heartbeat_us"] / row["classic_us"]
    measured: tuple[tuple[str, float, str, float | None], ...] = (
        (f"one member joins {group}, CPU time", row["join_ms"], "ms", JOIN_AIM_MS),
        ("a request of its members until all have reached the new epoch, CPU time", row["settle_us"], "us", None),
        ("a steady heartbeat to a classic one, without sockets (CPU time)", ratio, "times", HEARTBEAT_AIM),
        (f"{LOADED:,} members of consumer groups", row["member_bytes"] * LOADED / 1e6, "MB", None),
        ("loading them, CPU time", row["load_us"] * LOADED / 1e6, "s", None),
    )
    return [Figure(what=what, measured=value, unit=unit, aim=aim, is_limit=True) for what, value, unit, aim in measured]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--loaded", type=int, default=LOADED)
    arguments = parser.parse_args()
    gc.set_threshold(*GARBAGE_COLLECTIONS)
    row = loaded_groups(arguments.loaded) | large_group(arguments.members)
    print(json.dumps({name: round(value, 3) for name, value in row.items()}))


if __name__ == "__main__":
    main()
