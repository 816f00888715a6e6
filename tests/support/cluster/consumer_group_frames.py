"""`ConsumerGroupFrames`: consumer groups (KIP-848) at a cluster without sockets, whose members send frames.

The groups are loaded from a log, because thousands of members that join one by one would run the assignor as often.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from fakebroker import FakeCluster
from fakebroker.cluster.call import Peer, read_call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import ClusterTopics, Partition
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import ConsumerGroupMember
from fakebroker.coordinator.consumer.records import (
    assignment_epoch_record,
    current_assignment_record,
    group_epoch_record,
    subscription_record,
    target_assignment_record,
)
from fakebroker.coordinator.consumer.subscriptions import metadata_hash
from fakebroker.coordinator.records import KeyedRecord
from fakebroker.protocol.frames import read_response, request_frame, response_frame
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.releases import NEWEST
from fakebroker.server.fake_cluster import internals

TOPIC, GROUP = "orders", "group-0"
PARTITIONS_OF_A_MEMBER = 2
VERSION, FIRST_EPOCH = 1, 7
TIMEOUT_MS = 300_000
CLIENT, HOST = "client", "/127.0.0.1"


class ConsumerGroupFrames:
    """A cluster of two brokers, and stable groups `group-0`, `group-1` and so on in one partition of the offsets topic.

    Args:
        groups: Number of groups.
        members: Number of members of each, which have two partitions each.

    Attributes:
        cluster: The cluster. Its first broker leads the partition, but does not have the groups before `load`.
        size: Number of members of `group-0`.
    """

    def __init__(self, groups: int, members: int) -> None:
        topics = {TOPIC: PARTITIONS_OF_A_MEMBER * members}
        cluster = FakeCluster(2, topics, {"offsets.topic.num.partitions": 1}, seed=1)
        self.cluster = internals(cluster).cluster
        self.size = members
        self._epochs: dict[int, int] = {}
        self._reports: dict[int, list[HeartbeatTopicPartitions]] = {}
        self._lead(1)
        for number in range(groups):
            self.cluster.append_records(self._offsets_partition, list(self._records(f"group-{number}")))

    @property
    def _offsets_partition(self) -> Partition:
        return self.cluster.offsets_partition(0)

    def _lead(self, node_id: int) -> None:
        self.cluster.controller.set_leader(self._offsets_partition, node_id, self.cluster.now_ms, Failover())

    def _records(self, group_id: str) -> Iterator[KeyedRecord]:
        topics = ClusterTopics(self.cluster.topics, lambda node_id: None)
        found = topics.named(TOPIC)
        assert found is not None
        yield group_epoch_record(group_id, FIRST_EPOCH, metadata_hash([TOPIC], topics))
        yield assignment_epoch_record(group_id, FIRST_EPOCH)
        for number in range(self.size):
            member_id, first = _member_id(number), PARTITIONS_OF_A_MEMBER * number
            owned = {found.topic_id: frozenset(range(first, first + PARTITIONS_OF_A_MEMBER))}
            member = ConsumerGroupMember(
                member_id=member_id,
                client_id=CLIENT,
                client_host=HOST,
                subscribed_topic_names=frozenset([TOPIC]),
                rebalance_timeout_ms=TIMEOUT_MS,
                member_epoch=FIRST_EPOCH,
                previous_epoch=0,
                assigned=owned,
            )
            yield subscription_record(group_id, member)
            yield target_assignment_record(group_id, member_id, owned)
            yield current_assignment_record(group_id, member, NEWEST)

    def load(self) -> None:
        """Let the second broker load all groups."""
        self._lead(2)
        self._epochs = dict.fromkeys(range(self.size), FIRST_EPOCH)

    @property
    def group(self) -> ConsumerGroup:
        """The state of `group-0`."""
        return self.cluster.brokers[2].coordinator.groups.consumer[GROUP]

    # Requests of members of `group-0`

    def join_request(self) -> bytes:
        """Return the frame with which one more member joins."""
        return self._frame(
            self.size,
            0,
            rebalance_timeout_ms=TIMEOUT_MS,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )

    def heartbeat_request(self, number: int) -> bytes:
        """Return the frame of a member's next heartbeat: with its partitions, if they have changed."""
        return self._frame(number, self._epochs[number], topic_partitions=self._reports.pop(number, None))

    @staticmethod
    def _frame(number: int, epoch: int, **fields: Any) -> bytes:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=_member_id(number), member_epoch=epoch, **fields
        )
        return request_frame(request, VERSION, 0, CLIENT)[4:]

    def peers(self, count: int) -> list[Peer]:
        """Return connections to the coordinator."""
        return [Peer(self.cluster.brokers[2], HOST, number) for number in range(count)]

    def send(self, peer: Peer, frame: bytes) -> bytearray:
        """Handle a request, and return the frame of its response."""
        return answered(self.cluster, peer, frame)

    def take(self, number: int, response: bytearray) -> bool:
        """Let a member take note of a response; return whether its epoch or its partitions have changed."""
        _, message = read_response(ConsumerGroupHeartbeatResponse, VERSION, bytes(response[4:]))
        assert message.error_code == 0, message
        if message.assignment is not None:
            self._reports[number] = message.assignment.topic_partitions
        is_changed = message.member_epoch != self._epochs.get(number) or message.assignment is not None
        self._epochs[number] = message.member_epoch
        self.size = max(self.size, number + 1)
        return is_changed

    def settle(self, peers: Sequence[Peer]) -> int:
        """Let all members send heartbeats until nothing changes any more; return the number of heartbeats."""
        for sent in range(self.size, 100 * self.size, self.size):
            changes = [
                self.take(number, self.send(peers[number], self.heartbeat_request(number)))
                for number in range(self.size)
            ]
            if not any(changes):
                return sent
        raise AssertionError(f"no stable group: {self.group.state}")


def answered(cluster: Cluster, peer: Peer, frame: bytes) -> bytearray:
    """Handle a request that is answered at once, and return the frame of its response."""
    call = read_call(peer, frame)
    assert cluster.requests.handle(call, cluster.now_ms)
    return response_frame(call.response, call.response_version, call.correlation_id)


def _member_id(number: int) -> str:
    return f"member-{number:015}"
