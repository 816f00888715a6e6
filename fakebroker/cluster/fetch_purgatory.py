"""Fetch requests that wait for records, each until enough of them are there or its time is up.

Keeps who waits for what, and until when; reading logs and answering is the Fetch handler's (Kafka's DelayedFetch).
"""

import heapq
from dataclasses import dataclass, field

from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.logs.fetch_sessions import FetchContext
from fakebroker.cluster.topics import Partition

_SLACK = 64

PartitionKey = tuple[bytes, int]


@dataclass(slots=True, eq=False)
class DelayedFetch:
    """One Fetch that waits.

    Attributes:
        call: The request.
        context: What it asks for.
        partitions: Those whose records it waits for.
        deadline_ms: When it is answered with what there is.
        missing_bytes: How many bytes must be appended to its partitions before there can be enough.
    """

    call: Call
    context: FetchContext
    partitions: list[Partition]
    deadline_ms: float
    missing_bytes: int
    keys: list[PartitionKey] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = [_key(partition) for partition in self.partitions]


def _key(partition: Partition) -> PartitionKey:
    return partition.topic.topic_id, partition.index


class FetchPurgatory:
    """The waiting requests, one for each connection at most, since Kafka takes a connection's requests one by one.

    Those that wait for the same partition are woken in the order in which they came; those due at the same time, too.
    """

    def __init__(self) -> None:
        self._by_peer: dict[Peer, DelayedFetch] = {}
        self._by_partition: dict[PartitionKey, dict[DelayedFetch, None]] = {}
        # Requests that have been answered stay in the heap until they come up or outnumber the others.
        self._deadlines: list[tuple[float, int, DelayedFetch]] = []
        self._entries = 0

    def __len__(self) -> int:
        return len(self._by_peer)

    def park(self, delayed: DelayedFetch) -> None:
        """Let a request wait."""
        assert delayed.call.peer not in self._by_peer, f"{delayed.call!r}: its connection waits already"
        self._by_peer[delayed.call.peer] = delayed
        for key in delayed.keys:
            self._by_partition.setdefault(key, {})[delayed] = None
        self._push(delayed.deadline_ms, delayed)

    def remove(self, delayed: DelayedFetch) -> None:
        """Let a request wait no longer."""
        del self._by_peer[delayed.call.peer]
        for key in delayed.keys:
            waiting = self._by_partition[key]
            del waiting[delayed]
            if not waiting:
                del self._by_partition[key]
        if len(self._deadlines) > 2 * len(self._by_peer) + _SLACK:
            self._deadlines = [entry for entry in self._deadlines if self._is_waiting(entry[2])]
            heapq.heapify(self._deadlines)

    def discard(self, peer: Peer) -> None:
        """Forget what a connection waits for: it is closed."""
        delayed = self._by_peer.get(peer)
        if delayed is not None:
            self.remove(delayed)

    def appended(self, partition: Partition, size_bytes: int) -> list[DelayedFetch]:
        """Take note of an append.

        Returns:
            The requests that may have enough now; they go on waiting unless they are removed.
        """
        waiting = self._by_partition.get(_key(partition), {})
        for delayed in waiting:
            delayed.missing_bytes -= size_bytes
        return [delayed for delayed in waiting if delayed.missing_bytes <= 0]

    def release(self, partition: Partition) -> None:
        """Make the requests for a partition due at once: it is deleted, or has another leader."""
        for delayed in self._by_partition.get(_key(partition), {}):
            self._push(0.0, delayed)

    def expired(self, now_ms: float) -> list[DelayedFetch]:
        """Remove the requests whose time is up."""
        due = []
        while (deadline_ms := self.next_deadline()) is not None and deadline_ms <= now_ms:
            delayed = heapq.heappop(self._deadlines)[2]
            self.remove(delayed)
            due.append(delayed)
        return due

    def next_deadline(self) -> float | None:
        """When the next request is due."""
        while self._deadlines and not self._is_waiting(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _is_waiting(self, delayed: DelayedFetch) -> bool:
        return self._by_peer.get(delayed.call.peer) is delayed

    def _push(self, deadline_ms: float, delayed: DelayedFetch) -> None:
        self._entries += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._entries, delayed))
