"""A well-behaved member of a group, which measures what other connections do to it and to the process."""

import ctypes
import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakebroker import ErrorCode, FakeCluster
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import commit_request
from tests.support.groups_over_tcp import heartbeat, join_and_sync
from tests.support.wire_client import WireClient, until

MIB = 1024 * 1024
GROUP = "bystander"
# Parameters of glibc's `mallopt`, and the default of both.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
THRESHOLD_BYTES = 128 * 1024


class Bystander:
    """A member of a group of its own, on its own connection.

    Attributes:
        answers: How many pairs of a heartbeat and a commit were answered.
        worst_cpu_s: The longest CPU time of the cluster's thread between a request and its answer.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.answers, self.worst_cpu_s = 0, 0.0
        self._wire = WireClient(cluster.group(GROUP).coordinator(), "bystander")
        self._member_id = join_and_sync(self._wire, GROUP, session_timeout_ms=300_000)
        self._clock = time.pthread_getcpuclockid(internals(cluster).run(threading.get_ident))

    def check(self) -> None:
        """Send a heartbeat and a commit, which must be answered without error."""
        started_s = time.clock_gettime(self._clock)
        assert heartbeat(self._wire, GROUP, self._member_id) is ErrorCode.NONE
        answered_s = time.clock_gettime(self._clock)
        commit = commit_request(self.answers, 0, GROUP, self._member_id, 1)
        committed = self._wire.ask(commit, OffsetCommitResponse, 9)
        assert committed.topics[0].partitions[0].error_code == 0
        committed_s = time.clock_gettime(self._clock)
        self.answers += 1
        self.worst_cpu_s = max(self.worst_cpu_s, answered_s - started_s, committed_s - answered_s)

    def close(self) -> None:
        """Close the connection."""
        self._wire.socket.close()


@contextmanager
def unharmed(
    cluster: FakeCluster,
    *,
    max_cpu_s: float = 0.5,
    max_peak_bytes: int = 64 * MIB,
    max_growth_bytes: int = 32 * MIB,
) -> Iterator[Bystander]:
    """Check that a bystander is served while the body attacks, and that memory and descriptors are given back.

    Args:
        cluster: The cluster, with a topic `orders`.
        max_cpu_s: Limit of `Bystander.worst_cpu_s`.
        max_peak_bytes: By how much the resident memory of this process may grow meanwhile.
        max_growth_bytes: By how much the resident memory may have grown afterwards.
    """
    bystander = Bystander(cluster)
    bystander.check()
    release_memory()
    files, (memory_bytes, _) = open_files(), resident_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # The peak is that from now on.
    try:
        yield bystander
        bystander.check()
        until(lambda: open_files() <= files, cluster)
        release_memory()
        now_bytes, peak_bytes = resident_bytes()
        assert bystander.answers >= 3, "the attack did not let the bystander check"
        assert bystander.worst_cpu_s <= max_cpu_s
        grown = f"{memory_bytes:,} bytes before, {now_bytes:,} now, {peak_bytes:,} at the peak"
        assert peak_bytes - memory_bytes <= max_peak_bytes, grown
        assert now_bytes - memory_bytes <= max_growth_bytes, grown
        assert cluster.group(GROUP).offsets()["orders", 0].offset == bystander.answers - 1
    finally:
        bystander.close()


def release_memory() -> None:
    """Collect garbage, and let the C library return free memory to the system.

    glibc raises its thresholds when large blocks are freed. Then it keeps up to 64 MiB at the end of each thread's
    heap, which `malloc_trim` does not return. A fixed threshold stops that for the rest of the process.
    """
    gc.collect()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc has both.
        library.mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, THRESHOLD_BYTES)
        library.malloc_trim(0)


def resident_bytes() -> tuple[int, int]:
    """Return the resident memory of this process, and its peak."""
    sizes = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now_kib, peak_kib = (int(sizes[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    return now_kib * 1024, peak_kib * 1024


def open_files() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))
