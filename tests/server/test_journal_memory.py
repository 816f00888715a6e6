"""The memory of a process whose journal has large responses."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support import fetch_server
from tests.support.soak import sampled, soak
from tests.support.wire_client import WireClient

MIB = 1024 * 1024
READERS, LIMIT_BYTES, SLACK_BYTES = 6, 64 * MIB, 50 * 1_000_000
FETCH_VERSION = 12  # The last one with names of topics.


def read_all(broker: BrokerView, fetch_bytes: int) -> int:
    """Read the topic from its start, and return the number of records."""
    offset = 0
    with WireClient(broker) as wire:
        while offset < fetch_server.BATCHES:
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=fetch_bytes)
            request = FetchRequest(
                max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="big", partitions=[partition])],
                forgotten_topics_data=[],
            )  # fmt: skip
            response = wire.ask(request, FetchResponse, FETCH_VERSION)
            records = response.responses[0].partitions[0].records
            assert records
            offset += len(records) // fetch_server.BATCH_BYTES
    return offset


def peak_of(mode: str, fetch_bytes: int) -> int:
    """Return the peak memory in bytes of a process whose topic six clients read at the same time."""
    command = [sys.executable, "-m", fetch_server.__name__, mode, str(LIMIT_BYTES)]
    with ExitStack() as stack:
        server = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(server.kill)
        assert server.stdin is not None
        assert server.stdout is not None
        host, port = server.stdout.readline().strip().rsplit(":", 1)
        broker = BrokerView(1, host, int(port), up=True)
        with ThreadPoolExecutor(READERS) as readers:
            read = list(readers.map(lambda _: read_all(broker, fetch_bytes), range(READERS)))
        assert read == [fetch_server.BATCHES] * READERS
        print("stop", file=server.stdin, flush=True)
        return int(server.stdout.readline())


@pytest.mark.slow
@soak
@pytest.mark.parametrize("fetch_bytes", sampled([4 * MIB, 20 * MIB], 2))
def test_memory_stays_within_the_limit_of_the_journal(fetch_bytes: int, record_property: Any) -> None:
    without = peak_of("off", fetch_bytes)
    for mode in ("full", "headers"):
        peak = peak_of(mode, fetch_bytes)
        record_property(f"peak above a run without journal, {mode}, MiB", (peak - without) / MIB)
        assert peak <= without + LIMIT_BYTES + SLACK_BYTES
