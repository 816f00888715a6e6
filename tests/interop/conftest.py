"""Fixtures that start clients and close them after the test, and a check that nothing is left of them."""

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakebroker import FakeCluster
from tests.support.kafka_clients.client import (
    Admin,
    Consumer,
    GroupConsumer,
    KafkaClient,
    Settings,
    StartAdmin,
    StartConsumer,
)
from tests.support.kafka_clients.confluent_client import CLOSING


@pytest.fixture(autouse=True)
def _nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that a test leaves no threads and sockets, and that the cluster logs nothing.

    Set up before the other fixtures, and therefore torn down after them.
    """
    threads, sockets = _threads(), _sockets()
    yield
    gc.collect()
    if any(thread.name == CLOSING for thread in threading.enumerate()):
        return  # A deadlock of librdkafka keeps its threads and sockets.
    assert _threads() <= threads
    assert _sockets() <= sockets
    assert [record for record in caplog.get_records("call") if record.name == "fakebroker"] == []


def _threads() -> set[threading.Thread]:
    """Return the threads of this process, except those that trio keeps for further calls of `to_thread.run_sync`."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}


def _sockets() -> int:
    """Return the number of open sockets of this process; 0 on systems without /proc."""
    links = Path("/proc/self/fd")
    if not links.is_dir():
        return 0
    return sum("socket:" in str(link.readlink()) for link in links.iterdir() if link.is_symlink())


@contextmanager
def closed_together() -> Iterator[list[GroupConsumer]]:
    """Close the consumers in a list at the same time, at the end of the block.

    One after the other, the first could wait for a rebalance that the next one, which is not polled, does not join.
    """
    consumers: list[GroupConsumer] = []
    try:
        yield consumers
    finally:
        with ThreadPoolExecutor(max(1, len(consumers))) as pool:
            list(pool.map(lambda consumer: consumer.close(), consumers))


@pytest.fixture
def start_consumer(fake_cluster: FakeCluster) -> Iterator[StartConsumer]:
    """A function that starts a consumer from a client and fields of `Settings`; closed after the test."""
    with closed_together() as consumers:

        def start(client: KafkaClient, **settings: Any) -> Consumer:
            consumer = client.consumer(fake_cluster.bootstrap_servers, Settings(**settings))
            consumers.append(consumer)
            return consumer

        yield start


@pytest.fixture
def start_admin(fake_cluster: FakeCluster) -> Iterator[StartAdmin]:
    """A function that starts an admin client; closed after the test."""
    with ExitStack() as stack:

        def start(client: KafkaClient) -> Admin:
            return stack.enter_context(closing(client.admin(fake_cluster.bootstrap_servers)))

        yield start
