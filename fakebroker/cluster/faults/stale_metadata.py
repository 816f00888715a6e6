"""A cluster as it was: who led what, told by brokers that have not heard of what has changed since."""

from typing import TYPE_CHECKING, NamedTuple

from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.coordinator.runtime.placement import partition_for
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataResponse
from fakebroker.protocol.schema import Message

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Broker, Cluster

GROUP = 0
"""What a FindCoordinator for groups is called (KIP-98); transactions do not move here."""

STALE_APIS = ("FindCoordinator", "Metadata")
"""The APIs that tell who leads what."""


class _Leader(NamedTuple):
    node_id: int
    leader_epoch: int


class Past:
    """The leaders at one time. Topics and partitions that came later are told as they are."""

    def __init__(self, cluster: "Cluster") -> None:
        self._brokers: dict[int, Broker] = dict(cluster.brokers)
        self._leaders = {
            (topic.name, partition.index): _Leader(partition.leader_id, partition.leader_epoch)
            for topic in cluster.topics
            for partition in topic.partitions
        }
        self._offsets_partitions = cluster.config.number("offsets.topic.num.partitions")

    def told(self, request: Message, response: Message) -> Message:
        """A response, changed to what it would have been then."""
        if isinstance(response, MetadataResponse):
            self._tell_leaders(response)
        elif isinstance(response, FindCoordinatorResponse):
            assert isinstance(request, FindCoordinatorRequest)
            if request.key_type == GROUP:
                self._tell_coordinators(request, response)
        return response

    def _tell_leaders(self, response: MetadataResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                leader = self._leaders.get((topic.name or "", partition.partition_index))
                if leader is not None:
                    partition.leader_id, partition.leader_epoch = leader
                    partition.error_code = 0

    def _tell_coordinators(self, request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> None:
        found: list[Coordinator | FindCoordinatorResponse] = [*response.coordinators]
        keys = request.coordinator_keys
        if not found:
            found, keys = [response], [request.key]
        for each, key in zip(found, keys, strict=True):
            leader = self._leaders[OFFSETS_TOPIC, partition_for(key, self._offsets_partitions)]
            broker = self._brokers.get(leader.node_id)
            if broker is not None:
                each.error_code, each.node_id, each.host, each.port = 0, broker.node_id, broker.host, broker.port
