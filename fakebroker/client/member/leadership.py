"""The leader's part of a rebalance, between JoinGroup and SyncGroup: assigning partitions to the group's members."""

from collections.abc import Mapping

from fakebroker.client.member.assignors import Assignor
from fakebroker.protocol.consumer_protocol import decode_subscription, encode_assignment
from fakebroker.protocol.messages.join_group import JoinGroupResponse


class Leadership:
    """The members' subscriptions, and the partition counts that the leader assigned by.

    A leader needs the partition counts even if it must not assign (KIP-814), to notice when they change.

    Args:
        response: The JoinGroup response that made the member the leader.
        protocol: The name of the assignor, for reading subscriptions.

    Attributes:
        topics: All topics that the group subscribes to.
        awaits_counts: Whether the leader waits for partition counts before it assigns.

    Raises:
        ProtocolError: A member's metadata is not a subscription.
    """

    __slots__ = ("_partition_counts", "_skip_assignment", "_subscriptions", "awaits_counts", "topics")

    def __init__(self, response: JoinGroupResponse, protocol: str) -> None:
        self._skip_assignment = response.skip_assignment
        self._subscriptions = [
            decode_subscription(member.metadata, protocol, member.member_id, member.group_instance_id)
            for member in response.members
        ]
        self._partition_counts: dict[str, int] = {}
        self.topics = tuple(dict.fromkeys(topic for member in self._subscriptions for topic in member.topics))
        self.awaits_counts = bool(self._subscriptions)

    def assign(self, partition_counts: Mapping[str, int], assignor: Assignor) -> dict[str, bytes]:
        """Assign partitions; a topic without a count has none.

        Returns:
            The encoded assignment of each member id. A custom assignor may raise any exception.
        """
        self._partition_counts = {topic: partition_counts.get(topic, 0) for topic in self.topics}
        assignments = {} if self._skip_assignment else assignor(self._subscriptions, self._partition_counts)
        encoded = {member_id: encode_assignment(partitions) for member_id, partitions in assignments.items()}
        self.awaits_counts, self._subscriptions = False, []
        return encoded

    def counts_differ(self, partition_counts: Mapping[str, int]) -> bool:
        """Return whether a count differs from the count used by `assign`. Topics without a count are unchanged."""
        return any(partition_counts.get(topic, count) != count for topic, count in self._partition_counts.items())
