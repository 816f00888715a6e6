"""A cluster with groups in any state, and the requests that administer them."""

from typing import Any

from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequestProtocol
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from fakebroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fakebroker.protocol.releases import NEWEST, Release
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.cluster.harness_groups import NO_INITIAL_DELAY, SESSION_MS
from tests.support.group_requests import join_request, offset_to_commit

BEFORE_4_0 = Release(3, 9)
NONE = ErrorCode.NONE


class GroupAdminHarness:
    """A cluster of two brokers with the topics news (2 partitions) and sport (1 partition), and no groups.

    There is one partition of __consumer_offsets by default; then broker 1 coordinates all groups. A group's first
    member gets a generation immediately. Methods use the group "g" by default, and send requests to broker 1. The clock
    is that of `ClusterHarness`.

    Args:
        release: The release that the brokers emulate.
        config: Settings by Kafka's names, with underscores instead of dots.
    """

    def __init__(self, release: Release = NEWEST, **config: object) -> None:
        settings = NO_INITIAL_DELAY | {"offsets.topic.num.partitions": 1}
        settings |= {name.replace("_", "."): value for name, value in config.items()}
        self.cluster_harness = ClusterHarness({"news": 2, "sport": 1}, brokers=2, config=settings)
        self.cluster = self.cluster_harness.cluster
        for broker in self.cluster.brokers.values():
            broker.release = release

    @property
    def coordinator(self) -> Coordinator:
        """The group coordinator of broker 1."""
        return self.cluster.brokers[1].coordinator

    # Members

    def join(self, group_id: str = "g", member_id: str = "", version: int = 3, **fields: Any) -> str | None:
        """Send a JoinGroup. Returns the member id of the response, or None if the request is parked."""
        subscription = JoinGroupRequestProtocol(name="range", metadata=encode_subscription(["news"]))
        values: dict[str, Any] = {"protocols": [subscription], "session_timeout_ms": SESSION_MS}
        request = join_request(group_id, member_id, **values | fields)
        response = self.cluster_harness.send(request, version).response
        return response.member_id if response else None

    def sync(self, member_id: str, group_id: str = "g", generation_id: int = 1) -> None:
        """Send the SyncGroup of a leader, which assigns `b"mine"` to itself."""
        assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")]
        request = SyncGroupRequest(
            group_id=group_id, generation_id=generation_id, member_id=member_id, assignments=assignments
        )
        assert self.cluster_harness.ask(request, 3).error_code == NONE

    def create_stable_group(self, group_id: str = "g", **fields: Any) -> str:
        """Create a group of one member with fields of its JoinGroup. Returns the member id."""
        member_id = self.join(group_id, **fields)
        assert member_id is not None
        self.sync(member_id, group_id)
        return member_id

    def leave(self, member_id: str, group_id: str = "g") -> None:
        request = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member_id)])
        assert self.cluster_harness.ask(request, 3).error_code == NONE

    # Offsets

    def commit(self, group_id: str = "g", *partitions: tuple[str, int]) -> None:
        """Commit offsets without being a member, for news-0 by default."""
        topics = [
            OffsetCommitRequestTopic(name=name, partitions=[offset_to_commit(index, 5, committed_metadata=None)])
            for name, index in partitions or [("news", 0)]
        ]
        response = self.cluster_harness.ask(OffsetCommitRequest(group_id=group_id, topics=topics), 7)
        assert {each.error_code for topic in response.topics for each in topic.partitions} == {NONE}

    def committed(self, group_id: str = "g") -> list[tuple[str, int]]:
        """Return the partitions with committed offsets."""
        _, offsets = self.coordinator.offsets.fetch(group_id, None)
        return [(topic, index) for topic, index, _ in offsets]

    # Administration

    def describe(self, *group_ids: str, version: int = 6, broker: int = 1, operations: bool = False) -> list[Any]:
        """Send a DescribeGroups. Returns the groups of the response."""
        request = DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=operations)
        groups: list[Any] = self.cluster_harness.ask(request, version, broker=broker).groups
        return groups

    def list_groups(self, version: int = 5, broker: int = 1, **filters: Any) -> Any:
        """Send a ListGroups. Returns the response."""
        return self.cluster_harness.ask(ListGroupsRequest(**filters), version, broker=broker)

    def listed(self, **filters: Any) -> list[str]:
        """Return the ids of the groups that ListGroups returns."""
        return [group.group_id for group in self.list_groups(**filters).groups]

    def delete(self, *group_ids: str, version: int = 2, broker: int = 1) -> list[tuple[str, int]]:
        """Send a DeleteGroups request. Returns the groups of the response with their error codes."""
        response = self.cluster_harness.ask(DeleteGroupsRequest(groups_names=list(group_ids)), version, broker=broker)
        return [(result.group_id, result.error_code) for result in response.results]

    def delete_offsets(self, *partitions: tuple[str, int]) -> tuple[int, list[tuple[str, int, int]]]:
        """Send an OffsetDelete request. Returns the group's error code, and the partitions with their error codes."""
        topics = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for name, index in partitions
        ]
        response = self.cluster_harness.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        results = [
            (topic.name, each.partition_index, each.error_code)
            for topic in response.topics
            for each in topic.partitions
        ]
        return response.error_code, results
