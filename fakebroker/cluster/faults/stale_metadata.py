"""Outdated Metadata and FindCoordinator responses, as from a broker that has not learned of the latest elections."""

from collections.abc import Mapping
from typing import NamedTuple

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.listeners import Listener
from fakebroker.cluster.topics import OFFSETS_TOPIC, Topics
from fakebroker.coordinator.partitions import partition_for
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import MetadataResponse
from fakebroker.protocol.schema import Message

_GROUP = 0
"""FindCoordinator's key type for groups (KIP-98). Other coordinators do not change."""


class _Leader(NamedTuple):
    node_id: int
    leader_epoch: int


class StaleMetadata:
    """The leaders of all partitions at the time of its creation. Partitions created later are reported correctly."""

    def __init__(self, brokers: Mapping[int, BrokerNode], topics: Topics) -> None:
        self._brokers = dict(brokers)
        self._leaders = {
            (topic.name, partition.index): _Leader(partition.leader_id, partition.leader_epoch)
            for topic in topics.all()
            for partition in topic.partitions
        }
        self._offsets_partitions = sum(name == OFFSETS_TOPIC for name, _ in self._leaders)

    def apply(self, request: Message, response: Message, listener: Listener) -> None:
        """Replace the leaders and coordinators in a response by those at the time of creation, without their errors."""
        if isinstance(response, MetadataResponse):
            self._restore_leaders(response)
        elif isinstance(response, FindCoordinatorResponse):
            assert isinstance(request, FindCoordinatorRequest)
            if request.key_type == _GROUP:
                self._restore_coordinators(request, response, listener)

    def _restore_leaders(self, response: MetadataResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                leader = self._leaders.get((topic.name or "", partition.partition_index))
                if leader is not None:
                    partition.leader_id, partition.leader_epoch = leader
                    partition.error_code = 0

    def _restore_coordinators(
        self, request: FindCoordinatorRequest, response: FindCoordinatorResponse, listener: Listener
    ) -> None:
        results: list[Coordinator | FindCoordinatorResponse] = [*response.coordinators]
        keys = request.coordinator_keys
        if not results:
            results, keys = [response], [request.key]
        for result, key in zip(results, keys, strict=True):
            leader = self._leaders[OFFSETS_TOPIC, partition_for(key, self._offsets_partitions)]
            broker = self._brokers.get(leader.node_id)
            if broker is not None:
                result.error_code, result.node_id = 0, broker.node_id
                result.host, result.port = broker.endpoint(listener)
