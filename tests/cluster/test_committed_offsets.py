"""OffsetCommit and OffsetFetch in all versions: their fields, and where each error is returned."""

from typing import Any

import pytest

from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, versions
from tests.support.group_requests import commit_of, offset_to_commit

UNKNOWN_ID = b"\x09" * 16


# OffsetCommit


def commit(
    harness: ClusterHarness, version: int, *offsets: OffsetCommitRequestPartition, topic: str = "news", **fields: Any
) -> list[int]:
    """Commit offsets for the group "g" without being a member. Returns the error codes of the partitions."""
    if version >= 10:
        topic_id = harness.topic(topic).topic_id if topic in harness.cluster.topics else UNKNOWN_ID
        named = OffsetCommitRequestTopic(topic_id=topic_id, partitions=list(offsets))
    else:
        named = OffsetCommitRequestTopic(name=topic, topic_id=ZERO_UUID, partitions=list(offsets))
    response = harness.ask(OffsetCommitRequest(group_id="g", topics=[named], **fields), version)
    (result,) = response.topics
    assert (result.name, result.topic_id) == (named.name, named.topic_id)
    return [each.error_code for each in result.partitions]


def committed(harness: ClusterHarness) -> list[Any]:
    """Return the topic, partition and committed offset of all partitions of the group "g"."""
    return list(harness.cluster.brokers[1].coordinator.offsets.fetch("g", None)[1])


def test_commit_in_each_version(subtests: pytest.Subtests) -> None:
    for version in versions("OffsetCommit"):
        with subtests.test(version=version):
            harness = ClusterHarness(topics={"news": 2})
            offsets = offset_to_commit(0), offset_to_commit(1, 8, committed_metadata=None)
            if version == 0:
                assert commit(harness, version, *offsets) == [ErrorCode.UNSUPPORTED_VERSION] * 2
                continue
            assert commit(harness, version, *offsets) == [0, 0]
            assert [(topic, index, each.offset, each.metadata) for topic, index, each in committed(harness)] == [
                ("news", 0, 7, "note"),
                ("news", 1, 8, ""),
            ]


def test_unknown_topics_and_partitions_have_their_own_errors(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness(topics={"news": 1})
    for version, error in [(0, 3), (9, 3), (10, 100)]:
        with subtests.test(version=version):
            assert commit(harness, version, offset_to_commit(0), topic="other") == [error]
            if version:
                assert commit(harness, version, offset_to_commit(5), offset_to_commit(0)) == [3, 0]


def test_a_commit_without_known_partitions_does_not_check_the_group() -> None:
    harness = ClusterHarness()
    member: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": 5}
    assert commit(harness, 9, offset_to_commit(0), topic="other", **member) == [3]
    assert harness.cluster.brokers[1].coordinator.groups.classic.get("g") is None


def test_a_commit_of_a_member_to_a_missing_group(subtests: pytest.Subtests) -> None:
    for version, error in [(8, 22), (9, 69), (10, 69)]:
        with subtests.test(version=version):
            member: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": 1}
            assert commit(ClusterHarness(), version, offset_to_commit(0), **member) == [error]


def test_metadata_of_a_commit_has_at_most_4096_bytes() -> None:
    harness = ClusterHarness()
    assert commit(harness, 9, offset_to_commit(0, committed_metadata="x" * 4096)) == [0]
    assert commit(harness, 9, offset_to_commit(0, committed_metadata="x" * 4097)) == [12]


def test_timestamps_and_retention_times_of_old_versions() -> None:
    harness = ClusterHarness()

    def times() -> tuple[int, int | None]:
        ((_, _, offset),) = committed(harness)
        return offset.commit_timestamp_ms, offset.expire_timestamp_ms

    commit(harness, 1, offset_to_commit(0, commit_timestamp=123))
    assert times() == (123, None)
    commit(harness, 2, offset_to_commit(0), retention_time_ms=1000)
    assert times() == (int(harness.now_ms), int(harness.now_ms) + 1000)
    commit(harness, 5, offset_to_commit(0))
    assert times() == (int(harness.now_ms), None)


# OffsetFetch


def fetch(
    harness: ClusterHarness, version: int, topics: list[tuple[str, list[int]]] | None, group_id: str = "g"
) -> Any:
    """Fetch offsets of a group, None for all. Returns the result of the group: before version 8, the whole response."""
    if version < 8:
        old = None if topics is None else [OffsetFetchRequestTopic(name=n, partition_indexes=i) for n, i in topics]
        return harness.ask(OffsetFetchRequest(group_id=group_id, topics=old), version)
    new = None
    if topics is not None:
        new = [
            OffsetFetchRequestTopics(
                name="" if version >= 10 else name,
                topic_id=harness.topic(name).topic_id if version >= 10 else ZERO_UUID,
                partition_indexes=indexes,
            )
            for name, indexes in topics
        ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=new)])
    return harness.ask(request, version).groups[0]


def test_fetch_in_each_version(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness(topics={"news": 3})
    commit(harness, 9, offset_to_commit(1, 42, committed_leader_epoch=3))
    for version in versions("OffsetFetch"):
        with subtests.test(version=version):
            result = fetch(harness, version, [("news", [1, 2])])
            assert result.error_code == 0
            (topic,) = result.topics
            fetched = [
                (
                    each.partition_index,
                    each.committed_offset,
                    each.metadata,
                    each.committed_leader_epoch,
                    each.error_code,
                )
                for each in topic.partitions
            ]
            epoch = 3 if version >= 5 else -1
            expected = [(1, 42, "note", epoch, 0), (2, -1, "", -1, 0)]
            assert fetched == (expected if version else [(1, -1, "", -1, 35), (2, -1, "", -1, 35)])


def test_a_missing_group_has_no_offsets(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    for version in versions("OffsetFetch")[1:]:
        with subtests.test(version=version):
            result = fetch(harness, version, [("news", [0])], "missing")
            assert result.error_code == 0
            (one,) = result.topics[0].partitions
            assert (one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code) == (-1, -1, "", 0)
            assert harness.cluster.brokers[1].coordinator.groups.classic.get("missing") is None
            if version >= 2:
                assert fetch(harness, version, None, "missing").topics == []


def test_null_fetches_all_topics_and_an_empty_list_fetches_none(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness(topics={"news": 2, "more": 1})
    commit(harness, 9, offset_to_commit(0, 1), offset_to_commit(1, 2))
    commit(harness, 9, offset_to_commit(0, 3), topic="more")
    names = {harness.topic(name).topic_id: name for name in ("news", "more")}
    for version in versions("OffsetFetch")[2:]:
        with subtests.test(version=version):
            fetched = {
                (topic.name or names[topic.topic_id], each.partition_index): each.committed_offset
                for topic in fetch(harness, version, None).topics
                for each in topic.partitions
            }
            assert fetched == {("news", 0): 1, ("news", 1): 2, ("more", 0): 3}
            assert fetch(harness, version, []).topics == []


def test_each_of_many_groups_has_its_own_result() -> None:
    harness = ClusterHarness(brokers=2)
    groups = [f"group-{number}" for number in range(10)]
    for number, group_id in enumerate(groups):
        coordinator = partition_for(group_id, 2) % 2 + 1
        harness.ask(commit_of(offset_to_commit(0, number), group_id=group_id), 9, broker=coordinator)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in groups], require_stable=True
    )
    response = harness.ask(request, 9, broker=1)
    assert [group.group_id for group in response.groups] == groups
    for number, group in enumerate(response.groups):
        if partition_for(group.group_id, 2) == 0:
            assert group.error_code == 0
            assert group.topics[0].partitions[0].committed_offset == number
        else:
            assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])
    assert {group.error_code for group in response.groups} == {0, 16}


def test_in_version_1_each_partition_has_the_error_of_the_group(subtests: pytest.Subtests) -> None:
    """A client takes a partition without an error for one without an offset, and reads it from the beginning."""
    topics = [("news", [0, 1, 0]), ("missing", [7])]
    old, new = 1 + partition_for("g", 2) % 2, 2 - partition_for("g", 2) % 2

    def rows(error: ErrorCode) -> list[tuple[str, list[tuple[int, int, int]]]]:
        return [(name, [(index, -1, error) for index in indexes]) for name, indexes in topics]

    def fetched(harness: ClusterHarness, broker: int) -> list[tuple[str, list[tuple[int, int, int]]]]:
        asked = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics]
        response = harness.ask(OffsetFetchRequest(group_id="g", topics=asked), 1, broker=broker)
        return [
            (topic.name, [(each.partition_index, each.committed_offset, each.error_code) for each in topic.partitions])
            for topic in response.topics
        ]

    for release, is_lost in [("3.4", False), ("3.5", True), ("3.8", True), ("3.9", False), ("4.0", False)]:
        with subtests.test(release=release):
            harness = ClusterHarness(brokers=2, as_version=release)
            assert fetched(harness, new) == ([] if is_lost else rows(ErrorCode.NOT_COORDINATOR))
            partition = harness.cluster.offsets_partition_of("g")
            harness.cluster.controller.set_leader(partition, new, harness.now_ms, Failover(load_ms=None))
            assert fetched(harness, old) == ([] if is_lost else rows(ErrorCode.NOT_COORDINATOR))
            assert fetched(harness, new) == ([] if is_lost else rows(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            harness.cluster.controller.finish_loading(harness.now_ms)
            assert fetched(harness, new) == rows(ErrorCode.NONE)


def test_partitions_of_an_unknown_topic_id_have_an_error_each() -> None:
    topics = [OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[0, 1])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    (topic,) = ClusterHarness().ask(request, 10).groups[0].topics
    assert topic.topic_id == UNKNOWN_ID
    assert [(each.committed_offset, each.error_code) for each in topic.partitions] == [(-1, 100), (-1, 100)]
