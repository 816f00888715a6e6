"""The sessions of idle members at their coordinators: whether heartbeats would be accepted, suspended and resumed.

While a session is suspended, it does not expire; the coordinator calls the keeper before another timer of the group
expires. One class for each kind of group. Does not depend on members or clocks.
"""

from collections.abc import Callable

from fakebroker.client.member.requests import Identity
from fakebroker.cluster.broker import BrokerNode
from fakebroker.coordinator.classic.group import Group, Member
from fakebroker.coordinator.classic.states import STABLE
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse

Keeper = Callable[[str], None]


class ClassicSession:
    """The session of a member of a classic group."""

    def __init__(self, coordinator: Coordinator, group: Group, member: Member) -> None:
        self._coordinator, self.group, self._member = coordinator, group, member

    @property
    def deadline_ms(self) -> float:
        """When the session expires, unless it is extended."""
        return self._member.deadline_ms

    @property
    def keeps_offsets(self) -> bool:
        """Whether offsets do not expire while the group has members, so that the times of commits do not count."""
        return not self.group.config.is_before_kip_211

    def suspend(self, keeper: Keeper) -> None:
        self._member.keeper = keeper

    def resume(self, arrived_ms: float) -> None:
        """Resume the session. The last heartbeat arrived at `arrived_ms`; -inf if none did.

        A later commit may have extended the session already.
        """
        deadline_ms = max(self._member.deadline_ms, arrived_ms + self._member.session_timeout_ms)
        self._coordinator.groups.resume_session(self.group, self._member, deadline_ms)

    def response(self) -> HeartbeatResponse:
        """Return the response to a heartbeat."""
        return HeartbeatResponse()


class ConsumerSession:
    """The session of a member of a consumer group (KIP-848)."""

    keeps_offsets = True

    def __init__(self, coordinator: Coordinator, group: ConsumerGroup, member_id: str) -> None:
        self._coordinator, self.group, self._member_id = coordinator, group, member_id

    @property
    def deadline_ms(self) -> float:
        """When the session expires, unless it is extended."""
        return self.group.session_deadlines[self._member_id]

    def suspend(self, keeper: Keeper) -> None:
        self.group.keepers[self._member_id] = keeper

    def resume(self, arrived_ms: float) -> None:
        """Resume the session. The last heartbeat arrived at `arrived_ms`; -inf if none did."""
        timeout_ms = self._coordinator.groups.consumer.session_timeout_ms(self.group.group_id)
        deadline_ms = max(self.deadline_ms, arrived_ms + timeout_ms)
        self._coordinator.groups.resume_consumer_session(self.group, self._member_id, deadline_ms)

    def response(self) -> ConsumerGroupHeartbeatResponse:
        """Return the response to a heartbeat."""
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=self._member_id,
            member_epoch=self.group.members[self._member_id].member_epoch,
            heartbeat_interval_ms=self._coordinator.groups.consumer.heartbeat_interval_ms(self.group.group_id),
        )


Session = ClassicSession | ConsumerSession


def session_of(broker: BrokerNode, group_id: str, member_id: str) -> Session:
    """Return the session of a member that the broker coordinates."""
    coordinator = broker.coordinator
    if (consumer_group := coordinator.groups.consumer.get(group_id)) is not None:
        return ConsumerSession(coordinator, consumer_group, member_id)
    group = coordinator.groups.classic.get(group_id)
    assert group is not None
    return ClassicSession(coordinator, group, group.members[member_id])


def accepting_session(broker: BrokerNode, identity: Identity) -> Session | None:
    """Return the session of a member if the broker would accept its heartbeats, and these only extend the session."""
    coordinator = broker.coordinator
    if (consumer_group := coordinator.groups.consumer.get(identity.group_id)) is not None:
        groups = coordinator.groups.consumer
        member = groups.settled_member(consumer_group, identity.member_id, identity.generation_id)
        if member is None or identity.instance_id not in (None, member.instance_id):
            return None
        return ConsumerSession(coordinator, consumer_group, identity.member_id)
    group = coordinator.groups.classic.get(identity.group_id)
    if group is None or group.state is not STABLE or group.generation_id != identity.generation_id:
        return None
    registered = group.members.get(identity.member_id)
    if registered is None or identity.instance_id not in (None, registered.instance_id):
        return None
    return ClassicSession(coordinator, group, registered)
