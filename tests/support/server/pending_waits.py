"""Waits in threads, for tests that cause what the waits wait for."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from fakebroker import FakeCluster
from fakebroker.server.fake_cluster import internals

Start = Callable[..., "Future[Any]"]
"""A function that starts a wait in a thread, like `submit` of an executor: `start(cluster.wait, condition)`."""


@contextmanager
def pending_waits(cluster: FakeCluster) -> Iterator[Start]:
    """Return a function that starts waits in threads. It returns as soon as a wait is registered, or is over.

    At the end, all waits must be over, and have left nothing in the cluster.
    """
    reactor = internals(cluster).server.reactor
    with ThreadPoolExecutor(20) as pool:

        def start(wait: Callable[..., Any], *args: Any, **options: Any) -> "Future[Any]":
            known = len(reactor.watchers)
            future = pool.submit(wait, *args, **options)
            while len(reactor.watchers) == known and not future.done():
                cluster.groups()
            return future

        yield start
    # In the cluster's thread, because the waits do not wait for their own end there.
    assert internals(cluster).run(lambda: remains_of_waits(cluster)) == []


def remains_of_waits(cluster: FakeCluster) -> list[object]:
    """Return what waits that are not over have in a cluster. Must run in the cluster's thread."""
    owner = internals(cluster)
    reactor, listeners = owner.server.reactor, owner.cluster.history.listeners
    of_transactions = owner.cluster.transactions.history.listeners
    return [*owner.watches, *reactor.watchers, *reactor.observers, *listeners, *of_transactions]
