"""The group APIs message by message: what a version adds, and where an error stands in each."""

from collections.abc import Callable
from typing import Any

import pytest

from fakebroker.cluster.cluster import uuid_text
from fakebroker.cluster.configs.settings import SETTINGS
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import ZERO_UUID
from tests.support.cluster.cluster_harness import ClusterHarness, response, versions

NO_DELAY: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}


def harness(**config: object) -> ClusterHarness:
    return ClusterHarness(config=NO_DELAY | {name.replace("_", "."): value for name, value in config.items()})


def join(member_id: str = "", *, group_id: str = "g", **fields: Any) -> JoinGroupRequest:
    values: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"r")],
    }
    return JoinGroupRequest(group_id=group_id, member_id=member_id, **values | fields)


def joined(h: ClusterHarness, version: int = 9, group_id: str = "g", **fields: Any) -> Any:
    """A member in a generation of its own: the answer to its join."""
    version_fields = {} if version else {"rebalance_timeout_ms": -1}
    first = h.ask(join(group_id=group_id, **version_fields | fields), version)
    if first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return first
    return h.ask(join(first.member_id, group_id=group_id, **version_fields | fields), version)


def sync(answer: Any, version: int, **fields: Any) -> SyncGroupRequest:
    if version >= 5:
        fields = {"protocol_type": "consumer", "protocol_name": "range"} | fields
    assignments = [SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"mine")]
    return SyncGroupRequest(
        group_id="g", generation_id=answer.generation_id, member_id=answer.member_id, assignments=assignments, **fields
    )


# FindCoordinator


@pytest.mark.parametrize("version", versions("FindCoordinator"))
def test_find_coordinator(version: int) -> None:
    h = ClusterHarness(brokers=3)
    keys = ["a", "my-group", "", "a"]
    for key in keys if version < 4 else [keys]:
        request = FindCoordinatorRequest(key=key) if version < 4 else FindCoordinatorRequest(coordinator_keys=keys)  # type: ignore[arg-type]  # a key, or all of them
        answer = h.ask(request, version, broker=2)
        found = [answer] if version < 4 else answer.coordinators
        asked = [key] if version < 4 else keys
        for one, group_id in zip(found, asked, strict=True):
            node_id = partition_for(str(group_id), 2) % 3 + 1
            assert (one.error_code, one.node_id, one.host, one.port) == (0, node_id, "localhost", 9000 + node_id)
        if version in (1, 2, 3):
            assert answer.error_message == "NONE"
        if version >= 4:
            assert [one.key for one in found] == keys
            assert [one.error_message for one in found] == [""] * 4


def test_find_coordinator_for_no_key() -> None:
    assert ClusterHarness().ask(FindCoordinatorRequest(coordinator_keys=[]), 4).coordinators == []


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize(("key_type", "error"), [(1, 0), (2, 42), (3, 42), (-1, 42)])
def test_key_types(version: int, key_type: int, error: int) -> None:
    h = ClusterHarness()
    if version < 4:
        found = h.ask(FindCoordinatorRequest(key="k", key_type=key_type), version)
    else:
        found = h.ask(FindCoordinatorRequest(coordinator_keys=["k"], key_type=key_type), version).coordinators[0]
        assert found.key == "k"
    assert found.error_code == error
    assert (found.node_id, found.host, found.port) == ((1, "localhost", 9001) if not error else (-1, "", -1))


def test_one_key_can_fail_while_others_succeed() -> None:
    h = ClusterHarness(brokers=2)
    h.cluster.brokers[1].up = False
    keys = [f"group-{number}" for number in range(20)]
    found = h.ask(FindCoordinatorRequest(coordinator_keys=keys), 6, broker=2).coordinators
    for one in found:
        home = partition_for(one.key, 2) % 2 + 1
        expected = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1) if home == 1 else (ErrorCode.NONE, 2)
        assert (one.error_code, one.node_id) == expected
    assert {one.error_code for one in found} == {0, 15}


# JoinGroup, SyncGroup, Heartbeat


@pytest.mark.parametrize("version", versions("JoinGroup"))
def test_join_in_every_version(version: int) -> None:
    h = harness()
    fields: dict[str, Any] = {} if version else {"rebalance_timeout_ms": -1}
    first = h.ask(join(**fields), version)
    if version >= 4:
        assert (first.error_code, first.generation_id, first.leader, first.members) == (79, -1, "", [])
        assert first.protocol_name == (None if version >= 7 else "")
        first = h.ask(join(first.member_id, **fields), version)
    assert first.error_code == 0
    assert first.generation_id == 1
    assert first.leader == first.member_id
    assert first.member_id.startswith("client-")
    assert first.protocol_name == "range"
    assert first.protocol_type == ("consumer" if version >= 7 else None)
    assert [(member.member_id, member.metadata) for member in first.members] == [(first.member_id, b"r")]
    group = h.cluster.brokers[1].coordinator.group("g")
    assert group is not None
    member = group.members[first.member_id]
    assert member.rebalance_timeout_ms == (60_000 if version else 10_000)
    assert member.client_id == "client"


def test_an_error_before_version_7_has_an_empty_protocol_name() -> None:
    for version in versions("JoinGroup"):
        fields: dict[str, Any] = {} if version else {"rebalance_timeout_ms": -1}
        answer = harness().ask(join("nobody", **fields), version)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert answer.protocol_name == (None if version >= 7 else "")
        assert (answer.generation_id, answer.leader, answer.member_id) == (-1, "", "nobody")


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_that_comes_back(version: int) -> None:
    h = harness()
    answer = joined(h, version, group_instance_id="one")
    assert answer.members[0].group_instance_id == "one"
    h.ask(sync(answer, 5), 5)
    again = h.ask(join(group_instance_id="one"), version)
    assert (again.error_code, again.generation_id) == (0, 1)
    assert again.member_id != answer.member_id
    if version == 9:
        assert again.leader == again.member_id
        assert again.skip_assignment
        assert len(again.members) == 1
    else:
        assert again.leader == answer.member_id
        assert again.members == []
    old = HeartbeatRequest(group_id="g", generation_id=1, member_id=answer.member_id, group_instance_id="one")
    assert h.ask(old, 4).error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", versions("SyncGroup"))
def test_sync_in_every_version(version: int) -> None:
    h = harness()
    answer = h.ask(sync(joined(h), version), version)
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    assert (answer.protocol_type, answer.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_from_version_5_on_names_type_and_protocol(missing: str) -> None:
    h = harness()
    answer = joined(h)
    assert h.ask(sync(answer, 5, **{missing: None}), 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # Even before the group is looked at.
    request = SyncGroupRequest(group_id="", generation_id=1, member_id="m", assignments=[])
    assert h.ask(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.ask(request, 4).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions("Heartbeat"))
def test_heartbeat_in_every_version(version: int) -> None:
    h = harness()
    answer = joined(h)
    for generation_id, member_id, error in [(1, answer.member_id, 0), (2, answer.member_id, 22), (1, "x", 25)]:
        beat = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=member_id)
        assert h.ask(beat, version).error_code == error


@pytest.mark.parametrize("version", versions("LeaveGroup"))
def test_leave_in_every_version(version: int) -> None:
    h = harness()
    member_id = joined(h).member_id
    if version < 3:
        assert h.ask(LeaveGroupRequest(group_id="g", member_id="x"), version).error_code == 25
        assert h.ask(LeaveGroupRequest(group_id="g", member_id=member_id), version).error_code == 0
        assert h.ask(LeaveGroupRequest(group_id="", member_id=member_id), version).error_code == 24
        return
    leaving = [MemberIdentity(member_id=one) for one in ("x", member_id, member_id)]
    answer = h.ask(LeaveGroupRequest(group_id="g", members=leaving), version)
    assert answer.error_code == 0
    assert [(one.member_id, one.error_code) for one in answer.members] == [("x", 25), (member_id, 0), (member_id, 25)]
    answer = h.ask(LeaveGroupRequest(group_id="", members=leaving), version)
    assert (answer.error_code, answer.members) == (24, [])


def test_static_members_can_be_removed_by_instance_id() -> None:
    h = harness()
    joined(h, group_instance_id="one")
    leaving = [MemberIdentity(member_id="", group_instance_id="one")]
    answer = h.ask(LeaveGroupRequest(group_id="g", members=leaving), 5)
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members] == [("", "one", 0)]


def test_a_parked_join_is_answered_when_its_time_has_come() -> None:
    h = harness(group_initial_rebalance_delay_ms=3000)
    member_id = h.ask(join(), 9).member_id
    call = h.send(join(member_id), 9)
    assert call.response is None
    assert call.answered_ms is None
    deadline_ms = h.cluster.next_deadline()
    assert deadline_ms == h.now_ms + 3000
    h.advance(2999)
    assert call.response is None
    h.advance(1)
    assert response(call).generation_id == 1
    assert call.answered_ms == h.now_ms


# Another broker


def test_a_broker_that_is_not_the_coordinator_says_so() -> None:
    h = ClusterHarness(brokers=2, topics={"t": 1})
    home = partition_for("g", 2) % 2 + 1
    other = 3 - home
    topics = [OffsetCommitRequestTopic(name="t", partitions=[commit_partition(0)])]
    fetch = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    asked: list[tuple[Message, int, Callable[[Any], int]]] = [
        (join(), 9, lambda a: a.error_code),
        (SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]), 4, lambda a: a.error_code),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, lambda a: a.error_code),
        (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), 5, lambda a: a.error_code),
        (OffsetCommitRequest(group_id="g", topics=topics), 9, lambda a: a.topics[0].partitions[0].error_code),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[fetch])]),
            9,
            lambda a: a.groups[0].error_code,
        ),
    ]
    for request, version, error_of in asked:
        assert error_of(h.ask(request, version, broker=other)) == ErrorCode.NOT_COORDINATOR, request
        assert error_of(h.ask(request, version, broker=home)) != ErrorCode.NOT_COORDINATOR, request


# OffsetCommit


def commit_partition(index: int, offset: int = 7, **fields: Any) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, **{"committed_metadata": "note"} | fields
    )


def commit(
    h: ClusterHarness, version: int, *partitions: OffsetCommitRequestPartition, name: str = "news", **fields: Any
) -> Any:
    """Commit without a generation; gives the error codes."""
    topic_id = h.topic(name).topic_id if version >= 10 and name in h.cluster.topics else b"\x01" * 16
    topic = OffsetCommitRequestTopic(
        name="" if version >= 10 else name,
        topic_id=topic_id if version >= 10 else ZERO_UUID,
        partitions=list(partitions),
    )
    answer = h.ask(OffsetCommitRequest(group_id="g", topics=[topic], **fields), version)
    (told,) = answer.topics
    assert (told.name, told.topic_id) == (topic.name, topic.topic_id)
    return [one.error_code for one in told.partitions]


@pytest.mark.parametrize("version", versions("OffsetCommit"))
def test_commit_in_every_version(version: int) -> None:
    h = ClusterHarness(topics={"news": 2})
    assert commit(h, version, commit_partition(0), commit_partition(1, 8, committed_metadata=None)) == (
        [0, 0] if version else [35, 35]
    )
    offsets = h.cluster.brokers[1].coordinator.fetch_offsets("g", None, h.now_ms)[1]
    if version:
        assert [(topic, index, c.offset, c.metadata) for topic, index, c in offsets if c] == [
            ("news", 0, 7, "note"),
            ("news", 1, 8, ""),
        ]


def test_commit_refuses_unknown_topics_one_by_one() -> None:
    h = ClusterHarness(topics={"news": 1})
    assert commit(h, 9, commit_partition(0), name="other") == [3]
    assert commit(h, 9, commit_partition(5), commit_partition(0)) == [3, 0]
    assert commit(h, 10, commit_partition(0), name="other") == [100]
    assert commit(h, 10, commit_partition(5), commit_partition(0)) == [3, 0]
    assert commit(h, 0, commit_partition(0), name="other") == [3]


def test_commit_with_nothing_left_does_not_look_at_the_group() -> None:
    h = ClusterHarness()
    assert commit(h, 9, commit_partition(0), name="other", member_id="m", generation_id_or_member_epoch=5) == [3]
    assert h.cluster.brokers[1].coordinator.group("g") is None


@pytest.mark.parametrize(("version", "error"), [(8, 22), (9, 69), (10, 69)])
def test_commit_of_a_generation_to_no_group(version: int, error: int) -> None:
    fields: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": 1}
    assert commit(ClusterHarness(), version, commit_partition(0), **fields) == [error]


def test_commit_metadata_has_a_limit() -> None:
    h = ClusterHarness()
    assert commit(h, 9, commit_partition(0, committed_metadata="x" * 4096)) == [0]
    assert commit(h, 9, commit_partition(0, committed_metadata="x" * 4097)) == [12]


def test_commit_timestamp_and_retention_of_old_versions() -> None:
    h = ClusterHarness()

    def committed() -> tuple[int, int | None]:
        (_, _, offset), = h.cluster.brokers[1].coordinator.fetch_offsets("g", None, h.now_ms)[1]  # fmt: skip
        assert offset is not None
        return offset.commit_timestamp_ms, offset.expire_timestamp_ms

    commit(h, 1, commit_partition(0, commit_timestamp=123))
    assert committed() == (123, None)
    commit(h, 2, commit_partition(0), retention_time_ms=1000)
    assert committed() == (int(h.now_ms), int(h.now_ms) + 1000)
    commit(h, 5, commit_partition(0))
    assert committed() == (int(h.now_ms), None)


# OffsetFetch


def fetch_one(h: ClusterHarness, version: int, topics: list[tuple[str, list[int]]] | None, group_id: str = "g") -> Any:
    """The answer for one group, in the shape of the versions for many."""
    if version >= 8:
        wanted = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopics(
                    name="" if version >= 10 else name,
                    topic_id=h.topic(name).topic_id if version >= 10 else ZERO_UUID,
                    partition_indexes=indexes,
                )
                for name, indexes in topics
            ]
        )
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=wanted)])
        return h.ask(request, version).groups[0]
    old = None if topics is None else [OffsetFetchRequestTopic(name=n, partition_indexes=i) for n, i in topics]
    return h.ask(OffsetFetchRequest(group_id=group_id, topics=old), version)


@pytest.mark.parametrize("version", versions("OffsetFetch"))
def test_fetch_in_every_version(version: int) -> None:
    h = ClusterHarness(topics={"news": 3})
    commit(h, 9, commit_partition(1, 42, committed_leader_epoch=3))
    answer = fetch_one(h, version, [("news", [1, 2])])
    assert answer.error_code == 0
    (topic,) = answer.topics
    told = [
        (one.partition_index, one.committed_offset, one.metadata, one.committed_leader_epoch, one.error_code)
        for one in topic.partitions
    ]
    epoch = 3 if version >= 5 else -1
    expected = [(1, 42, "note", epoch, 0), (2, -1, "", -1, 0)]
    assert told == (expected if version else [(1, -1, "", -1, 35), (2, -1, "", -1, 35)])


@pytest.mark.parametrize("version", range(1, 11))
def test_a_group_that_is_not_has_no_offsets(version: int) -> None:
    h = ClusterHarness()
    answer = fetch_one(h, version, [("news", [0])], "nobody")
    assert answer.error_code == 0
    (one,) = answer.topics[0].partitions
    assert (one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code) == (-1, -1, "", 0)
    assert h.cluster.brokers[1].coordinator.group("nobody") is None
    if version >= 2:
        assert fetch_one(h, version, None, "nobody").topics == []


@pytest.mark.parametrize("version", range(2, 11))
def test_null_topics_are_all_and_no_topics_are_none(version: int) -> None:
    h = ClusterHarness(topics={"news": 2, "more": 1})
    commit(h, 9, commit_partition(0, 1), commit_partition(1, 2))
    commit(h, 9, commit_partition(0, 3), name="more")
    topics = fetch_one(h, version, None).topics
    names = {h.topic(name).topic_id: name for name in ("news", "more")}
    told = {
        (topic.name or names[topic.topic_id], one.partition_index): one.committed_offset
        for topic in topics
        for one in topic.partitions
    }
    assert told == {("news", 0): 1, ("news", 1): 2, ("more", 0): 3}
    assert fetch_one(h, version, []).topics == []


def test_many_groups_each_with_its_own_result() -> None:
    h = ClusterHarness(brokers=2, topics={"news": 1})
    groups = [f"group-{number}" for number in range(10)]
    for number, group_id in enumerate(groups):
        topic = OffsetCommitRequestTopic(name="news", partitions=[commit_partition(0, number)])
        home = partition_for(group_id, 2) % 2 + 1
        h.ask(OffsetCommitRequest(group_id=group_id, topics=[topic]), 9, broker=home)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in groups], require_stable=True
    )
    answer = h.ask(request, 9, broker=1)
    assert [group.group_id for group in answer.groups] == groups
    for number, group in enumerate(answer.groups):
        if partition_for(group.group_id, 2) == 0:
            assert group.error_code == 0
            assert group.topics[0].partitions[0].committed_offset == number
        else:
            assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])
    assert {group.error_code for group in answer.groups} == {0, 16}


def test_version_1_cannot_tell_an_error_of_the_group() -> None:
    h = ClusterHarness(brokers=2)
    other = 2 - partition_for("g", 2) % 2
    old = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="news", partition_indexes=[0])])
    assert h.ask(old, 1, broker=other).topics == []
    assert h.ask(old, 2, broker=other).error_code == ErrorCode.NOT_COORDINATOR


def test_fetch_by_an_unknown_topic_id() -> None:
    h = ClusterHarness()
    wanted = OffsetFetchRequestTopics(topic_id=b"\x09" * 16, partition_indexes=[0, 1])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])])
    (topic,) = h.ask(request, 10).groups[0].topics
    assert topic.topic_id == b"\x09" * 16
    assert [(one.committed_offset, one.error_code) for one in topic.partitions] == [(-1, 100), (-1, 100)]


def test_settings_are_given_to_the_coordinators() -> None:
    h = harness(group_max_session_timeout_ms=10_000, group_min_session_timeout_ms=10_000)
    assert joined(h).error_code == 0
    for timeout_ms in (9_999, 10_001):
        answer = h.ask(join(session_timeout_ms=timeout_ms), 9)
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert SETTINGS["group.min.session.timeout.ms"].default == 6000


def test_ids_are_written_as_uuids() -> None:
    assert uuid_text(bytes(range(16))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
