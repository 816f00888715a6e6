"""What idle groups and connections keep in memory: objects that are shared, and bytes."""

import gc
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from fakebroker.cluster import topics as topics_module
from fakebroker.cluster.call import Peer, read_call
from fakebroker.coordinator.classic.group import Group
from fakebroker.coordinator.snapshot_dict import NO_ENTRIES
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.cluster.idle_groups import IdleGroups

GROUPS, CONNECTIONS = 400, 400
WARM_UP = 100
# Python's versions and platforms differ; the bounds are well above the bytes of Python 3.11 on Linux.
MAX_BYTES_OF_A_GROUP = 3_300  # with its newest records, which are not compressed
MAX_BYTES_OF_ITS_OBJECTS = 850
MAX_BYTES_OF_A_CONNECTION = 3_000


def allocated_bytes(work: Callable[[], object]) -> int:
    """Return how many bytes more are allocated after the work than before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def groups_of(idle: IdleGroups) -> list[Group]:
    return list(idle.cluster.brokers[1].coordinator.groups.classic.values())


def test_idle_groups_share_what_is_empty_or_equal() -> None:
    idle = IdleGroups()
    idle.add(2)
    one, other = groups_of(idle)
    assert one.state.value == "Stable"
    for name in ("static_members", "pending_members", "parked_joins", "parked_syncs", "awaiting_sync"):
        assert getattr(one, name) is NO_ENTRIES, name
    assert one.pending_change is None
    assert one.context is other.context
    assert one.subscribed_topics is other.subscribed_topics
    assert one.protocol_counts is other.protocol_counts
    (member,), (other_member,) = one.members.values(), other.members.values()
    assert member.protocols is other_member.protocols
    assert member.assignment is other_member.assignment


def test_bytes_of_a_group_with_one_member_and_one_offset() -> None:
    idle = IdleGroups(journal="off")
    idle.cluster.history.max_moments = WARM_UP  # limited, so not part of the memory of a group
    idle.add(WARM_UP)
    assert allocated_bytes(lambda: idle.add(GROUPS)) / GROUPS < MAX_BYTES_OF_A_GROUP


def test_bytes_of_the_objects_of_a_group_with_one_member_and_one_offset() -> None:
    """Without names and numbers. The offset is not an object."""
    idle = IdleGroups(journal="off")
    idle.add(1)
    [group] = groups_of(idle)
    (member,) = group.members.values()
    objects = (group, group.members, member, group.offsets, group.offsets.entries)
    assert sum(map(sys.getsizeof, objects)) < MAX_BYTES_OF_ITS_OBJECTS


def test_bytes_of_a_connection_that_has_sent_api_versions() -> None:
    cluster = IdleGroups(journal="off").cluster
    frame = request_frame(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3, 1, "c")[4:]
    peers = []

    def connect(count: int) -> None:
        for number in range(count):
            peer = Peer(cluster.brokers[1], "/127.0.0.1", number)
            peers.append(peer)
            assert cluster.requests.handle(read_call(peer, frame), 1.0)

    connect(WARM_UP)
    assert allocated_bytes(lambda: connect(CONNECTIONS)) / CONNECTIONS < MAX_BYTES_OF_A_CONNECTION


def test_only_the_newest_names_of_deleted_topics_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "_MAX_FORMER_NAMES", 2)
    topics = ClusterHarness().cluster.topics
    deleted = [topics.create(f"t{number}", [[1]]) for number in range(3)]
    for topic in deleted:
        topics.delete(topic)
    assert [topics.past_or_present_name_of(topic.topic_id) for topic in deleted] == [None, "t1", "t2"]
