"""Consumers that are closed when a test is over, and a look at what clients have left behind."""

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
    Client,
    Consumer,
    GroupConsumer,
    Settings,
    StartAdmin,
    StartConsumer,
)


@pytest.fixture(autouse=True)
def _nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test leaves a thread or a socket behind, or makes the cluster complain.

    It is set up before the other fixtures, and so torn down after them.
    """
    threads, sockets = set(threading.enumerate()), _sockets()
    yield
    gc.collect()
    assert set(threading.enumerate()) <= threads
    assert _sockets() <= sockets
    assert [record for record in caplog.get_records("call") if record.name == "fakebroker"] == []


def _sockets() -> int:
    """How many sockets this process has, where the system tells."""
    links = Path("/proc/self/fd")
    if not links.is_dir():
        return 0
    return sum("socket:" in str(link.readlink()) for link in links.iterdir() if link.is_symlink())


@contextmanager
def closed_together() -> Iterator[list[GroupConsumer]]:
    """Closes the consumers in a list at the same time, at the end.

    One after the other, the first might wait for a rebalance in which the next one, that nobody polls any more, takes
    no part.
    """
    consumers: list[GroupConsumer] = []
    try:
        yield consumers
    finally:
        with ThreadPoolExecutor(max(1, len(consumers))) as pool:
            list(pool.map(lambda consumer: consumer.close(), consumers))


@pytest.fixture
def start_consumer(fake_cluster: FakeCluster) -> Iterator[StartConsumer]:
    """Makes consumers out of a client and the fields of `Settings`; they are closed when the test is over."""
    with closed_together() as consumers:

        def start(client: Client, **settings: Any) -> Consumer:
            consumer = client.consumer(fake_cluster.bootstrap_servers, Settings(**settings))
            consumers.append(consumer)
            return consumer

        yield start


@pytest.fixture
def start_admin(fake_cluster: FakeCluster) -> Iterator[StartAdmin]:
    """Makes admin clients; they are closed when the test is over."""
    with ExitStack() as stack:

        def start(client: Client) -> Admin:
            return stack.enter_context(closing(client.admin(fake_cluster.bootstrap_servers)))

        yield start
