"""A group whose coordinator moves between brokers, and the responses that its member gets."""

from collections.abc import Mapping
from typing import Any

from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import Partition
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.cluster.harness_groups import NO_INITIAL_DELAY, SESSION_MS, sync_after
from tests.support.group_requests import commit_of, join_request, offset_to_commit


class FailoverHarness:
    """A cluster of brokers 1 to 3 with the group "g" of one dynamic member, in generation 1, which is Stable.

    Broker 1 is the first coordinator. There is one partition of __consumer_offsets, and the topic "news" with one
    partition. The clock is that of `ClusterHarness`.

    Args:
        offset: The offset that the member has committed for news-0.
        config: Further settings.
    """

    def __init__(self, *, offset: int = 7, config: Mapping[str, object] | None = None) -> None:
        settings = {**NO_INITIAL_DELAY, "offsets.topic.num.partitions": 1, **(config or {})}
        self.cluster_harness = ClusterHarness(brokers=3, config=settings)
        self.cluster = self.cluster_harness.cluster
        self.member_id = self.cluster_harness.ask(join_request(session_timeout_ms=SESSION_MS), 9).member_id
        joined = self.cluster_harness.ask(join_request(member_id=self.member_id, session_timeout_ms=SESSION_MS), 9)
        assert self.cluster_harness.ask(sync_after(joined), 5).error_code == 0
        assert self.commit(offset, 1) == 0

    @property
    def now_ms(self) -> float:
        return self.cluster_harness.now_ms

    @property
    def partition(self) -> Partition:
        """The partition of __consumer_offsets with the group."""
        return self.cluster.offsets_partition(0)

    # Requests of the member

    def heartbeat(self, broker: int) -> int:
        """Send a heartbeat of generation 1; returns the error code."""
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=self.member_id)
        code: int = self.cluster_harness.ask(request, 4, broker=broker).error_code
        return code

    def heartbeats(self) -> list[int]:
        """Send a heartbeat to each broker; returns the error codes."""
        return [self.heartbeat(node_id) for node_id in (1, 2, 3)]

    def commit(self, offset: int, broker: int) -> int:
        """Commit an offset for news-0; returns the error code."""
        request = commit_of(offset_to_commit(0, offset), generation_id_or_member_epoch=1, member_id=self.member_id)
        code: int = self.cluster_harness.ask(request, 9, broker=broker).topics[0].partitions[0].error_code
        return code

    def committed(self, broker: int) -> Any:
        """Return the committed offset of news-0, None if there is none, or the error of the group."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        (group,) = self.cluster_harness.ask(request, 9, broker=broker).groups
        if group.error_code:
            return ErrorCode(group.error_code)
        return group.topics[0].partitions[0].committed_offset if group.topics else None

    def found_coordinator(self) -> int:
        """Return the node id that FindCoordinator returns, or the negative error code."""
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        (found,) = self.cluster_harness.ask(request, 4, broker=3).coordinators
        node_id: int = found.node_id
        return node_id if not found.error_code else -found.error_code

    # Changes of the cluster

    def move_coordinator(self, to: int, **options: Any) -> None:
        """Move the coordinator to a broker, with options of `Failover`, and process the timers that are due."""
        self.cluster.controller.set_leader(self.partition, to, self.now_ms, Failover(**options))
        self.cluster.tick(self.now_ms)

    def stop_broker(self, node_id: int, *, elect: bool = True, **options: Any) -> None:
        broker = self.cluster.brokers[node_id]
        self.cluster.controller.stop_broker(broker, self.now_ms, Failover(**options), elect=elect)

    def start_broker(self, node_id: int, **options: Any) -> None:
        self.cluster.controller.start_broker(self.cluster.brokers[node_id], self.now_ms, Failover(**options))

    def remove_broker(self, node_id: int, **options: Any) -> None:
        self.cluster.remove_broker(self.cluster.brokers[node_id], self.now_ms, Failover(**options))
