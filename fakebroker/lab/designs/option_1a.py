"""Option 1.a of the consumer rewrite document: heartbeats by consumers, which register again upon a rebalance.

Where the document is silent or contradicts itself, these readings are implemented:

- Consumers choose their ids, as in Kafka 0.8: group, client and a part of a random UUID, new for each start. So a
  coordinator knows a consumer that registers again after a lost confirmation.
- A reply to a ping with an error makes the consumer look up the coordinator again, as the summary says and the list of
  disadvantages laments. It registers over its connection, unless the coordinator has moved.
- poll() is single-threaded and blocks in the registration. So a consumer stops fetching as soon as it has to register:
  after an error, without a reply within the session timeout, and when its connection breaks.
- Each registration has the consumed offsets, not only those after a failover, and the coordinator takes the maximum of
  them and its own. So nothing is committed in onPartitionDeassigned.
- The confirmation is awaited for the session timeout; then the consumer looks up the coordinator and registers again.
- "Record metadata" is: append the offsets, then write the ownership to the registry, then confirm.
- Consumers that wait for their confirmation do not expire; their session starts with it. All others have to register
  within their session.
- A registration while ownership is written waits: the next rebalance follows at once.
- The ping of a consumer that the coordinator does not have "kicks a rebalance", although the consumer may never return.
- Coordinators do not notice broken connections, only missing pings; commits count as pings. There is no message for
  leaving: a consumer commits, and is missed after its session timeout.
- RegisterConsumer names no strategy. The coordinator assigns ranges of each topic, the default of Kafka 0.8.
- A subscription is valid if the topics exist and no partitions are named. Wildcards and subscriptions to single
  partitions (open questions of the document) are not implemented.
- Session timeouts may differ within a group; valid ones are positive and at most the coordinator's maximum.
- Before its offsets are loaded, a coordinator answers "Not Coordinator". One that is no longer the leader forgets its
  groups.
- A group without consumers is forgotten. Its ownership stays in the registry, where nothing reads it.
"""

from collections.abc import Mapping
from enum import Enum
from functools import partial

import msgspec

from fakebroker.client.member.member_settings import MemberSettings
from fakebroker.errors import ErrorCode
from fakebroker.lab.design import Beat, CoordinatorPort, CoordinatorSettings, Design, Idle, Link, MemberPort, Records
from fakebroker.lab.designs.options.fetcher import Fetcher
from fakebroker.lab.designs.options.messages import (
    NOT_COORDINATOR,
    REBALANCE,
    UNKNOWN_CONSUMER,
    OffsetCommitRequest,
    OffsetCommitResponse,
    PartitionAndOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    from_wire,
)
from fakebroker.lab.designs.options.offset_cache import OffsetCache
from fakebroker.lab.designs.options.pings import Pings
from fakebroker.lab.designs.options.registered_ownership import write_ownership
from fakebroker.lab.designs.options.registration import Registration, new_consumer_id, register_request
from fakebroker.lab.designs.options.served_groups import (
    Assignment,
    ConsumerInfo,
    GroupInfo,
    ServedGroups,
    assignment_of,
    changed_topics,
    registration_error,
)
from fakebroker.lab.designs.options.sessions import Sessions
from fakebroker.lab.invariants import ALL_OWNED, LIVE_STAYS, NONE_SKIPPED
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition


class Option1aMember:
    """A consumer of option 1.a; a `lab.design.Member`.

    Args:
        settings: Its settings.
        port: Carries out its actions.
    """

    def __init__(self, settings: MemberSettings, port: MemberPort) -> None:
        self._settings, self._port = settings, port
        self._consumer_id = new_consumer_id(settings, port)
        self._registration = Registration(settings, port, self._request)
        new_id = self._registration.new_correlation_id
        self._fetcher = Fetcher(settings, port, self._consumer_id, new_id)
        interval_ms, timeout_ms = settings.heartbeat_interval_ms, settings.session_timeout_ms
        self._pings = Pings(settings.group_id, self._consumer_id, interval_ms, timeout_ms)

    def _request(self, correlation_id: int) -> RegisterConsumerRequest:
        return register_request(self._settings, self._consumer_id, correlation_id, self._fetcher.consumed())

    # lab.design.Member

    def start(self, now_ms: float) -> None:
        self._registration.begin()

    def leave(self, now_ms: float) -> None:
        if self._registration.is_registered and self._registration.link is not None:
            self._fetcher.commit(self._registration.link)
        self._registration.end()

    def found(self, node_id: int | None, now_ms: float) -> None:
        self._registration.found(node_id, now_ms)

    def metadata(self, partition_counts: Mapping[str, int], now_ms: float) -> None:
        """Consumers do not need metadata: the coordinator assigns."""

    def connected(self, link: Link, now_ms: float) -> None:
        self._registration.connected(link, now_ms)

    def disconnected(self, link: Link, now_ms: float) -> None:
        if self._registration.disconnected(link, now_ms):
            self._register_again()

    def received(self, link: Link, message: Message, now_ms: float) -> None:
        if link is not self._registration.link:
            return
        match message:
            case RegisterConsumerResponse():
                if self._registration.answered(message, now_ms):
                    self._port.identified(self._consumer_id)
                    self._pings.begin(now_ms)
                    self._fetcher.start(message.partitions_to_own, now_ms)
            case PingResponse():
                if self._pings.answered(message) and message.error_code:
                    self._register_again(keeps_link=True)
            case OffsetCommitResponse():
                self._fetcher.committed(message)

    def next_deadline(self) -> float:
        pings, fetcher = self._pings.next_deadline(), self._fetcher.next_deadline()
        return min(self._registration.next_deadline(), pings, fetcher)

    def tick(self, now_ms: float) -> None:
        registration = self._registration
        if self._pings.is_expired(now_ms):
            self._register_again()
        registration.tick(now_ms)
        link = registration.link if registration.is_registered else None
        if self._pings.is_due(now_ms) and link is not None:
            ping = self._pings.next_request(registration.new_correlation_id(), now_ms)
            if ping is not None:
                self._port.send(link, ping)
        self._fetcher.tick(link, now_ms)

    def idle(self) -> Idle | None:
        ping = self._pings.beat()
        if not self._registration.is_registered or ping is None or self._fetcher.is_committing:
            return None
        commit = self._fetcher.beat()
        return Idle((ping,) if commit is None else (ping, commit))

    def beats_skipped(self, beat: Beat, next_due_ms: float, last_ms: float) -> None:
        if beat.is_commit:
            self._fetcher.skipped(next_due_ms)
        else:
            self._pings.skipped(next_due_ms)

    def _register_again(self, *, keeps_link: bool = False) -> None:
        self._pings.end()
        self._fetcher.stop()
        if not keeps_link:
            self._fetcher.connection_lost()
        self._registration.begin(keeps_link=keeps_link)


class GroupState(Enum):
    """The states of a group.

    REREGISTRATION: Waiting until all consumers have registered, or have expired. Pings are answered with an error.
        Register: waits for the confirmation.
        Transitions: all have registered, at least one -> RECORDING.
    RECORDING: Offsets and ownership are being written. Pings are answered with an error.
        Register: waits for the next rebalance.
        Transitions: written and confirmed -> STEADY; then, if consumers or partitions have changed -> REREGISTRATION.
    STEADY: All consumers are confirmed.
        Transitions: a consumer registers, expires, or pings without being in the group; partitions are added ->
        REREGISTRATION.
    """

    REREGISTRATION = "Reregistration"
    RECORDING = "Recording"
    STEADY = "Steady"


REREGISTRATION = GroupState.REREGISTRATION
RECORDING = GroupState.RECORDING
STEADY = GroupState.STEADY

TRANSITIONS: Mapping[GroupState, tuple[GroupState, ...]] = {
    REREGISTRATION: (RECORDING,),
    RECORDING: (STEADY,),
    STEADY: (REREGISTRATION,),
}
"""The states that may follow each state; every other transition is a bug."""


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    """A registration that waits for its confirmation."""

    link: Link
    correlation_id: int
    consumed: Mapping[TopicPartition, int]


class _Group(GroupInfo):
    """A group. Attributes: its state, written only by `enter`; registrations that wait, by consumer id; whether its
    partitions have changed while they were being assigned.
    """

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state = REREGISTRATION
        self.waiting: dict[str, _Waiting] = {}
        self.is_outdated = False

    def enter(self, state: GroupState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self.group_id!r}: no transition from {self.state} to {state}")
        self.state = state


class Option1aCoordinator:
    """The coordinator of one broker; a `lab.design.Coordinator`.

    Args:
        settings: Its settings.
        port: Carries out its actions.
    """

    def __init__(self, settings: CoordinatorSettings, port: CoordinatorPort) -> None:
        self._settings, self._port = settings, port
        self._groups: ServedGroups[_Group] = ServedGroups(_Group)
        self._offsets = OffsetCache(settings.offsets_partitions, port)
        self._sessions = Sessions()
        self._partition_counts = dict(port.partition_counts())

    # lab.design.Coordinator

    def elected(self, partition: int, now_ms: float) -> None:
        """Serves nothing of a partition before its offsets are loaded."""

    def loaded(self, partition: int, records: Records, now_ms: float) -> None:
        self._offsets.load(partition, records)

    def topics_changed(self, now_ms: float) -> None:
        before, self._partition_counts = self._partition_counts, dict(self._port.partition_counts())
        for group in self._groups.interested_in(changed_topics(before, self._partition_counts)):
            group.is_outdated = group.state is RECORDING
            self._rebalance(group)

    def received(self, link: Link, message: Message, now_ms: float) -> None:
        match message:
            case PingRequest():
                error = self._handle_ping(message, now_ms)
                self._port.reply(link, PingResponse(correlation_id=message.correlation_id, error_code=error))
            case RegisterConsumerRequest():
                self._handle_register_consumer(link, message)
            case OffsetCommitRequest():
                self._handle_commit_offset(link, message, now_ms)

    def disconnected(self, link: Link, now_ms: float) -> None:
        """Only missing pings count."""

    def next_deadline(self) -> float:
        return self._sessions.next_deadline()

    def tick(self, now_ms: float) -> None:
        for consumer in self._sessions.expired(now_ms):
            self._port.expelled(consumer.group_id, consumer.consumer_id)
            group = self._groups.remove(consumer)
            if group.state is STEADY:
                self._rebalance(group)
            else:
                self._record_if_all_have_registered(group)

    def is_steady(self, group_id: str, links: int) -> bool:
        group = self._groups.get(group_id)
        return group is not None and group.state is STEADY and len(group.consumers) == links

    def next_beats(self, group_id: str) -> Mapping[Link, float]:
        return {}

    def rest(self, group_id: str) -> None:
        for consumer in self._consumers(group_id):
            self._sessions.rest(consumer)

    def wake(self, group_id: str, last_ms: Mapping[Link, float]) -> None:
        for consumer in self._consumers(group_id):
            self._sessions.wake(consumer, last_ms[consumer.link])

    def _consumers(self, group_id: str) -> list[ConsumerInfo]:
        group = self._groups.get(group_id)
        return [] if group is None else list(group.consumers.values())

    # Requests

    def _handle_ping(self, request: PingRequest, now_ms: float) -> ErrorCode:
        if not self._offsets.serves(request.group_id):
            return NOT_COORDINATOR
        group = self._groups.get(request.group_id)
        if group is None or request.consumer_id not in group.consumers:
            if group is not None:
                self._rebalance(group)
            return UNKNOWN_CONSUMER
        self._sessions.heard(group.consumers[request.consumer_id], now_ms)
        return ErrorCode.NONE if group.state is STEADY else REBALANCE

    def _handle_register_consumer(self, link: Link, request: RegisterConsumerRequest) -> None:
        error = (
            registration_error(request, self._partition_counts, self._settings.max_session_timeout_ms)
            if self._offsets.serves(request.group_id)
            else NOT_COORDINATOR
        )
        if error:
            self._answer(request.group_id, request.consumer_id, link, request.correlation_id, error)
            return
        group, consumer = self._groups.add(request, link)
        self._sessions.forget(consumer)
        consumed = from_wire(request.consumed_so_far)
        group.waiting[request.consumer_id] = _Waiting(link, request.correlation_id, consumed)
        self._rebalance(group)
        self._record_if_all_have_registered(group)

    def _answer(
        self,
        group_id: str,
        consumer_id: str,
        link: Link,
        correlation_id: int,
        error: ErrorCode = ErrorCode.NONE,
        partitions: list[PartitionAndOffset] | None = None,
    ) -> None:
        response = RegisterConsumerResponse(
            version=1,
            correlation_id=correlation_id,
            error_code=error,
            group_id=group_id,
            consumer_id=consumer_id,
            partitions_to_own=partitions or [],
        )
        self._port.reply(link, response)

    def _handle_commit_offset(self, link: Link, request: OffsetCommitRequest, now_ms: float) -> None:
        def answer(error: ErrorCode) -> None:
            self._port.reply(link, OffsetCommitResponse(correlation_id=request.correlation_id, error_code=error))

        consumer = self._groups.consumers.get(request.consumer_id)
        if consumer is None:
            answer(UNKNOWN_CONSUMER)
            return
        self._sessions.heard(consumer, now_ms)
        offsets = from_wire(request.offset_info)
        self._offsets.commit(
            consumer.group_id, offsets, lambda is_stored: answer(ErrorCode.NONE if is_stored else NOT_COORDINATOR)
        )

    # Rebalance

    def _rebalance(self, group: _Group) -> None:
        if group.state is STEADY and group.consumers:
            group.enter(REREGISTRATION)

    def _record_if_all_have_registered(self, group: _Group) -> None:
        """Update the offsets by the maximum, then assign the partitions and write their ownership."""
        if group.state is not REREGISTRATION or not group.consumers or group.consumers.keys() - group.waiting.keys():
            return
        group.enter(RECORDING)
        waiting = dict(group.waiting)
        offsets = dict(self._offsets.offsets(group.group_id))
        changed: dict[TopicPartition, int] = {}
        for registration in waiting.values():
            for partition, offset in registration.consumed.items():
                if offset > offsets.get(partition, -1):
                    offsets[partition] = changed[partition] = offset
        self._offsets.commit(group.group_id, changed, partial(self._offsets_updated, group, waiting))

    def _offsets_updated(self, group: _Group, waiting: dict[str, _Waiting], is_stored: bool) -> None:
        if self._groups.get(group.group_id) is not group:
            return
        if not is_stored:
            self._give_up(group)
            return
        assignment = assignment_of(list(group.consumers.values()), self._partition_counts)
        self._port.access(
            lambda registry: write_ownership(registry, group.group_id, assignment),
            lambda _: self._recorded(group, waiting, assignment),
        )

    def _recorded(self, group: _Group, waiting: dict[str, _Waiting], assignment: Assignment) -> None:
        if self._groups.get(group.group_id) is not group:
            return
        group.enter(STEADY)
        for consumer_id, registration in waiting.items():
            if group.waiting.get(consumer_id) is registration:
                del group.waiting[consumer_id]
                self._sessions.watch(group.consumers[consumer_id], self._port.now_ms())
                partitions = self._offsets.with_offsets(group.group_id, assignment[consumer_id])
                self._answer(
                    *(group.group_id, consumer_id, registration.link, registration.correlation_id),
                    partitions=partitions,
                )
        if group.waiting or group.is_outdated or group.consumers.keys() != assignment.keys():
            group.is_outdated = False
            self._rebalance(group)
            self._record_if_all_have_registered(group)

    def _give_up(self, group: _Group) -> None:
        """Forget a group that another broker coordinates now."""
        for consumer_id, registration in group.waiting.items():
            self._answer(group.group_id, consumer_id, registration.link, registration.correlation_id, NOT_COORDINATOR)
        for consumer in list(group.consumers.values()):
            self._sessions.forget(consumer)
            self._groups.remove(consumer)


DESIGN = Design(
    name="option-1a",
    summary="Consumers ping; an error in the reply makes them register again, with their consumed offsets",
    member=Option1aMember,
    coordinator=Option1aCoordinator,
    beats=frozenset({PingRequest, PingResponse, OffsetCommitRequest, OffsetCommitResponse}),
    guarantees=frozenset({ALL_OWNED, LIVE_STAYS, NONE_SKIPPED}),
)
