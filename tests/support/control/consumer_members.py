"""Members of consumer groups (KIP-848) over TCP that send heartbeats only when a test says so."""

from collections.abc import Iterator
from contextlib import contextmanager

from fakebroker import FakeCluster
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from tests.support.wire_client import WireClient

A, B = "el9mNceSSfKFkY8RUIuaQA", "kujuwsAcRhq9Bz8fo29K6Q"
"""Member ids as clients make them."""


class ConsumerMember:
    """A member of a consumer group, subscribed to topic orders.

    Attributes:
        epoch: Its epoch; 0 before the first heartbeat.
    """

    def __init__(self, wire: WireClient, group_id: str, member_id: str) -> None:
        self._wire, self._group_id, self._member_id = wire, group_id, member_id
        self._assigned: list[HeartbeatTopicPartitions] = []
        self.epoch = 0

    def beat(self, *, confirms: bool = False) -> None:
        """Send a heartbeat: join, or stay; `confirms` reports the assigned partitions as those that it owns."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names = 60_000, ["orders"]
        if self.epoch == 0 or confirms:
            request.topic_partitions = self._assigned
        response = self._wire.ask(request, ConsumerGroupHeartbeatResponse)
        assert not response.error_code, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self._assigned = response.assignment.topic_partitions

    def leave(self) -> None:
        """Leave the group."""
        self.epoch = -1
        self.beat()


@contextmanager
def reconciling(cluster: FakeCluster, group_id: str = "g") -> Iterator[tuple[ConsumerMember, ConsumerMember]]:
    """Yield members with the client ids a and b. The group waits for a to give up half of its partitions."""
    broker = cluster.group(group_id).coordinator()
    with WireClient(broker, "a") as one, WireClient(broker, "b") as other:
        a, b = ConsumerMember(one, group_id, A), ConsumerMember(other, group_id, B)
        a.beat()
        b.beat()
        a.beat()
        yield a, b
