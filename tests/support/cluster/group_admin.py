"""A cluster with groups in whatever state a test needs, and the requests that administer them."""

from typing import Any

from fakebroker.cluster.logs.offsets_topic import read_records
from fakebroker.coordinator.group.coordinator import Coordinator
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fakebroker.protocol.releases import NEWEST, Release
from tests.support.cluster.cluster_harness import ClusterHarness

BEFORE_4_0 = Release(3, 9)
NONE = ErrorCode.NONE


class Groups:
    """A cluster of brokers without initial delay, and the requests that bring a group into a state."""

    def __init__(self, release: Release = NEWEST, **config: object) -> None:
        settings: dict[str, object] = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
        settings |= {name.replace("_", "."): value for name, value in config.items()}
        self.harness = ClusterHarness({"news": 2, "sport": 1}, brokers=2, config=settings)
        for broker in self.harness.cluster.brokers.values():
            broker.release = release

    @property
    def coordinator(self) -> Coordinator:
        return self.harness.cluster.brokers[1].coordinator

    def join(self, group_id: str = "g", member_id: str = "", version: int = 3, **fields: Any) -> str | None:
        """The id that a member got; None while its join is parked."""
        values: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=encode_subscription(["news"]))],
        }
        request = JoinGroupRequest(group_id=group_id, member_id=member_id, **values | fields)
        response = self.harness.send(request, version).response
        return response.member_id if response else None

    def sync(self, member_id: str, group_id: str = "g", generation_id: int = 1) -> None:
        given = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")]
        request = SyncGroupRequest(
            group_id=group_id, generation_id=generation_id, member_id=member_id, assignments=given
        )
        assert self.harness.ask(request, 3).error_code == NONE

    def stable(self, group_id: str = "g", **fields: Any) -> str:
        member_id = self.join(group_id, **fields)
        assert member_id is not None
        self.sync(member_id, group_id)
        return member_id

    def leave(self, member_id: str, group_id: str = "g") -> None:
        members = [MemberIdentity(member_id=member_id)]
        assert self.harness.ask(LeaveGroupRequest(group_id=group_id, members=members), 3).error_code == NONE

    def commit(self, group_id: str = "g", *partitions: tuple[str, int]) -> None:
        """Commits without being a member, for news-0 by default."""
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata=None)
                ],
            )
            for name, index in partitions or [("news", 0)]
        ]
        response = self.harness.ask(OffsetCommitRequest(group_id=group_id, topics=topics), 7)
        assert {each.error_code for topic in response.topics for each in topic.partitions} == {NONE}

    def committed(self, group_id: str = "g") -> list[tuple[str, int]]:
        _, offsets = self.coordinator.fetch_offsets(group_id, None, self.harness.now_ms)
        return [(topic, index) for topic, index, _ in offsets]

    def describe(self, *group_ids: str, version: int = 6, broker: int = 1, operations: bool = False) -> list[Any]:
        request = DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=operations)
        groups: list[Any] = self.harness.ask(request, version, broker=broker).groups
        return groups

    def list_groups(self, version: int = 5, broker: int = 1, **filters: Any) -> Any:
        return self.harness.ask(ListGroupsRequest(**filters), version, broker=broker)

    def listed(self, **filters: Any) -> list[str]:
        return [group.group_id for group in self.list_groups(**filters).groups]

    def delete(self, *group_ids: str, version: int = 2, broker: int = 1) -> list[tuple[str, int]]:
        response = self.harness.ask(DeleteGroupsRequest(groups_names=list(group_ids)), version, broker=broker)
        return [(result.group_id, result.error_code) for result in response.results]

    def delete_offsets(
        self, *partitions: tuple[str, int], group_id: str = "g", broker: int = 1
    ) -> tuple[int, list[tuple[str, int, int]]]:
        topics = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for name, index in partitions
        ]
        response = self.harness.ask(OffsetDeleteRequest(group_id=group_id, topics=topics), 0, broker=broker)
        results = [
            (topic.name, each.partition_index, each.error_code)
            for topic in response.topics
            for each in topic.partitions
        ]
        return response.error_code, results

    def reloaded(self) -> Coordinator:
        """Another coordinator, which has read the log of partition 0."""
        records = read_records(self.harness.cluster.offsets_partition(0).log, 0)
        coordinator = Coordinator(self.coordinator.config, lambda: "new")
        coordinator.start_loading(0)
        coordinator.finish_loading(0, records, self.harness.now_ms)
        return coordinator
