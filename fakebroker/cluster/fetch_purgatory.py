"""Delayed Fetch requests, which wait for enough records or for their `max_wait_ms` (Kafka's DelayedFetch).

After each append to a log, `FetchPurgatory.wake` is called. The Fetch handler reads the logs and makes the responses.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import inf
from typing import Any

from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.logs.fetch_sessions import FetchContext
from fakebroker.cluster.topics import Partition
from fakebroker.coordinator.timers import Rank, TimerQueue

PartitionKey = tuple[bytes, int]


@dataclass(slots=True, eq=False)
class DelayedFetch(ABC):
    """One delayed Fetch. The Fetch handler has the subclass that reads and answers.

    Attributes:
        call: The request.
        context: The partitions to read, and the fetch session if there is one (KIP-227).
        partitions: The partitions whose new records the request waits for.
        deadline_ms: When the request is answered with the records that are available then, by the clients' time.
        missing_bytes: The request may have enough records after this many more bytes are appended to `partitions`.
        keys: The keys of `partitions` in the purgatory; a partition that was replaced by a restore keeps its key.
        scheduled_ms, timer_number: See `TimerQueue`.
    """

    call: Call
    context: FetchContext
    partitions: list[Partition]
    deadline_ms: float
    missing_bytes: int
    keys: list[PartitionKey] = field(init=False)
    scheduled_ms: float = inf
    timer_number: int = 0

    def __post_init__(self) -> None:
        self.keys = [_key(partition) for partition in self.partitions]

    @abstractmethod
    def read(self) -> None:
        """Read the partitions again, and set `missing_bytes`."""

    @abstractmethod
    def answer(self) -> None:
        """Answer the request with what was read last."""


def _key(partition: Partition) -> PartitionKey:
    return partition.topic.topic_id, partition.index


class FetchPurgatory:
    """All delayed requests: at most one per connection, because Kafka handles a connection's requests one at a time.

    Requests for the same partition, or with the same deadline, are completed in the order in which they were added. All
    times are the clients' time (`Cluster.wire_ms`).

    Args:
        queue: The timers of the cluster by the clients' clock.
    """

    def __init__(self, queue: TimerQueue[Any]) -> None:
        self._by_peer: dict[Peer, DelayedFetch] = {}
        self._by_partition: dict[PartitionKey, dict[DelayedFetch, None]] = {}
        self._timers = queue.service(Rank.FETCHES, self._expire)

    def __len__(self) -> int:
        return len(self._by_peer)

    def add(self, delayed: DelayedFetch) -> None:
        """Add a request, whose connection must not have one yet."""
        assert delayed.call.peer not in self._by_peer, f"{delayed.call!r}: its connection waits already"
        self._by_peer[delayed.call.peer] = delayed
        for key in delayed.keys:
            self._by_partition.setdefault(key, {})[delayed] = None
        self._timers.schedule(delayed, delayed.deadline_ms)

    def remove(self, delayed: DelayedFetch) -> None:
        """Remove a request."""
        del self._by_peer[delayed.call.peer]
        for key in delayed.keys:
            waiting = self._by_partition[key]
            del waiting[delayed]
            if not waiting:
                del self._by_partition[key]
        self._timers.cancel(delayed)

    def discard(self, peer: Peer) -> None:
        """Remove the waiting request of a closed connection. Does nothing if no request waits."""
        delayed = self._by_peer.get(peer)
        if delayed is not None:
            self.remove(delayed)

    def wake(self, partition: Partition, size_bytes: int) -> None:
        """Answer the requests that have enough records now; `size_bytes` is how much more can be read, at most."""
        if not self._by_partition:
            return
        waiting = self._by_partition.get(_key(partition), {})
        for delayed in waiting:
            delayed.missing_bytes -= size_bytes
        for delayed in [each for each in waiting if each.missing_bytes <= 0]:
            delayed.read()
            if delayed.missing_bytes <= 0:
                self.remove(delayed)
                delayed.answer()

    def release(self, partition: Partition) -> None:
        """Make the requests for a partition due immediately, because it was deleted or its leader changed."""
        for delayed in self._by_partition.get(_key(partition), {}):
            self._timers.schedule(delayed, 0.0)

    def _expire(self, delayed: DelayedFetch, due_ms: float, wire_ms: float) -> None:
        self.remove(delayed)
        delayed.read()
        delayed.answer()
