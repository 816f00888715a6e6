"""A process with a cluster of one broker and a topic `big` of 40 MB; it reports its peak memory when told to stop.

Arguments: the journal's mode and its limit in bytes. It prints `host:port`, and after a line on stdin the peak of its
resident set in bytes.
"""

import sys
from typing import Any

from fakebroker import FakeCluster
from fakebroker.server.fake_cluster import internals
from tests.support.cluster.cluster_harness import batch

BATCHES, BATCH_BYTES = 40, 1024 * 1024


def peak_bytes() -> int:
    """Return the peak of this process' resident set (Linux)."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main(mode: Any, limit_bytes: str) -> None:
    config = {"log.retention.bytes": -1}
    with FakeCluster(
        brokers=1, topics={"big": 1}, config=config, journal=mode, journal_bytes=int(limit_bytes)
    ) as cluster:
        topic = internals(cluster).cluster.topics.get("big")
        assert topic is not None
        for _ in range(BATCHES):
            topic.partitions[0].log.append(batch(bytes(BATCH_BYTES)), 0)
        print(cluster.bootstrap_servers, flush=True)
        sys.stdin.readline()
    print(peak_bytes(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
