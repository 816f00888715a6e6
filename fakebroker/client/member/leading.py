"""What the leader of a group does between JoinGroup and SyncGroup: it asks for partition counts and assigns by them.

When a member leads, and what follows from other counts later on, stands in `member.py`.
"""

from collections.abc import Mapping

from fakebroker.client.member import requests
from fakebroker.client.member.assignors import Subscription
from fakebroker.client.member.effects import FetchMetadata
from fakebroker.client.member.session import Session
from fakebroker.client.member.subscription import decode_subscription, encode_assignment
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.messages.join_group import JoinGroupResponse


class Leader(Session):
    """The part of a member that leads; see `Member`."""

    def _reset(self) -> None:
        super()._reset()
        self._lead_no_more()

    def _lead_no_more(self) -> None:
        self._group: list[Subscription] = []  # everybody's, while the leader waits for partition counts
        self._skip_assignment = False
        self._partition_counts: dict[str, int] = {}  # those that this leader assigned by

    def _lead(self, response: JoinGroupResponse, now_ms: float) -> None:
        """A leader needs the partition counts also where it is not to assign: to see them change (KIP-814)."""
        self._skip_assignment = response.skip_assignment
        try:
            self._group = [
                decode_subscription(member.metadata, self.settings.protocol, member.member_id, member.group_instance_id)
                for member in response.members
            ]
        except ProtocolError as error:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error), now_ms)
            return
        self.effects.append(FetchMetadata(self._topics_of_group(), now_ms))

    def _topics_of_group(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(topic for member in self._group for topic in member.topics))

    def _assign(self, partition_counts: Mapping[str, int], now_ms: float) -> None:
        self._partition_counts = {topic: partition_counts.get(topic, 0) for topic in self._topics_of_group()}
        try:
            assignments = {} if self._skip_assignment else self.settings.assign(self._group, self._partition_counts)
            encoded = {member_id: encode_assignment(partitions) for member_id, partitions in assignments.items()}
        except Exception as error:  # an application's own assignor may raise anything, or return anything
            sentence = (
                f"the assignor {self.settings.protocol!r} failed with {error!r}, expected partitions by member id"
            )
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, sentence, now_ms)
            return
        self._group = []
        self._send(requests.sync_group(self.identity, self.settings.protocol, encoded), now_ms)

    def _counts_differ(self, partition_counts: Mapping[str, int]) -> bool:
        """Whether topics have other counts than those assigned by; topics that are missing are as they were."""
        return any(partition_counts.get(topic, count) != count for topic, count in self._partition_counts.items())
