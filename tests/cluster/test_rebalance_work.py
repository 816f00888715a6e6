"""The work of a rebalance for each member does not depend on the size of the group, in groups of both kinds."""

import sys
from collections import Counter
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from types import FrameType
from typing import Any
from unittest.mock import patch

from fakebroker.coordinator.classic import group as group_module
from fakebroker.coordinator.snapshot_dict import SnapshotDict
from tests.support.cluster.consumer_group_frames import ConsumerGroupFrames
from tests.support.cluster.group_frames import GROUP, GroupFrames

SMALL, LARGE = 100, 1_000
TOLERANCE = 1.02
"""Lengths of texts and varints grow with the number of members."""


class CountingDict(SnapshotDict[Any]):
    """Counts the keys of all its instances that were visited, also by copies such as `tuple(values)`."""

    __slots__ = ()
    visits = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            CountingDict.visits += 1
            yield key

    def __reversed__(self) -> Iterator[str]:
        for key in super().__reversed__():
            CountingDict.visits += 1
            yield key

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return KeysView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return ItemsView(self)


def work_of_a_rebalance(members: int) -> Counter[str]:
    """Return what a rebalance takes: calls of functions, visits of members and parked requests, and encoded bytes."""
    frames = GroupFrames(members)
    cluster = frames.cluster
    group = cluster.brokers[1].coordinator.groups.classic.get(GROUP)
    assert group is not None
    group.members = CountingDict(group.members.items())
    log = cluster.offsets_partition_of(GROUP).log
    size_bytes = log.size_bytes
    work: Counter[str] = Counter()
    CountingDict.visits = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        work["calls"] += event in ("call", "c_call")

    for requests, finish in ((frames.join_requests, frames.finish_join), (frames.sync_requests, frames.finish_sync)):
        sent = requests()
        # Those of parked requests are made when the first one arrives.
        with patch.object(group_module, "SnapshotDict", CountingDict):
            sys.setprofile(count)
            try:
                responses = frames.send(sent)
            finally:
                sys.setprofile(None)
        work["response bytes"] += sum(map(len, responses.values()))
        finish(responses)
    work["visits"] = CountingDict.visits
    work["record bytes"] = log.size_bytes - size_bytes
    return work


def test_the_work_for_each_member_does_not_grow_with_the_group() -> None:
    work_of_a_rebalance(2)  # Codecs are compiled.
    small, large = work_of_a_rebalance(SMALL), work_of_a_rebalance(LARGE)
    assert set(small) == {"calls", "visits", "response bytes", "record bytes"}
    for what, counted in small.items():
        assert large[what] / LARGE <= TOLERANCE * counted / SMALL, what


def calls_of_a_heartbeat(members: int) -> float:
    """Return the calls for one heartbeat of a consumer group that reaches a new epoch, because a member has joined."""
    frames = ConsumerGroupFrames(1, members)
    frames.load()
    peers = frames.peers(members + 1)
    frames.take(members, frames.send(peers[members], frames.join_request()))
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        heartbeats = frames.settle(peers)
    finally:
        sys.setprofile(None)
    return calls / heartbeats


def test_the_work_for_a_heartbeat_does_not_grow_with_the_consumer_group() -> None:
    calls_of_a_heartbeat(2)  # Codecs are compiled.
    assert calls_of_a_heartbeat(200) <= TOLERANCE * calls_of_a_heartbeat(40)
