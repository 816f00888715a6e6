"""One run: a script, played with one design in virtual time."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol, TypeVar

from fakebroker.lab.design import Design
from fakebroker.lab.script import BrokerEvent, MemberEvent, Script, TopicEvent
from fakebroker.lab.world.brokers import BrokerProcess, OffsetsTopic
from fakebroker.lab.world.context import BrokerState
from fakebroker.lab.world.idle_groups import IdleGroups
from fakebroker.lab.world.links import MemberLink
from fakebroker.lab.world.members import MemberProcess
from fakebroker.lab.world.ownership import Ownership
from fakebroker.lab.world.traffic import Traffic
from fakebroker.proposals.consumer_rewrite.registry import Registry
from fakebroker.protocol.messages.find_coordinator import Coordinator as FoundCoordinator, FindCoordinatorResponse
from fakebroker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fakebroker.protocol.schema import Message
from fakebroker.replay.simulation.links import Links
from fakebroker.replay.simulation.scheduler import EVENT, RESPONSE, START_MS, TIMER, Scheduler, VirtualClock
from fakebroker.topic_partition import TopicPartition

T = TypeVar("T")


class Observer(Protocol):
    """Sees what happens in a run, for diagrams, transcripts and invariants."""

    def sent(self, at_ms: float, member: MemberProcess, message: Message, node_id: int, *, to_member: bool) -> None:
        """A member has sent a message to a broker, or a broker to a member."""

    def happened(self, at_ms: float, event: MemberEvent | BrokerEvent | TopicEvent) -> None:
        """An event of the script has happened."""

    def changed(self, at_ms: float, member: MemberProcess) -> None:
        """A member has reported its partitions."""

    def expelled(self, at_ms: float, member: MemberProcess) -> None:
        """A coordinator has removed a member that seemed to have failed."""


@dataclass(slots=True)
class Failures:
    """How failed members were noticed.

    Attributes:
        noticed_ms: For each member whose process ended without leaving, and that was removed from its group: the time
            from its end to its removal.
        mistakes: How often a member was removed from its group while its process was running, paused ones included.
        errors: The reasons of members that stopped by themselves, with the number of each.
    """

    noticed_ms: list[float] = field(default_factory=list)
    mistakes: int = 0
    errors: dict[str, int] = field(default_factory=dict)


class World:
    """One run.

    Args:
        design: The design.
        script: What happens.
        observer: Sees messages, events and assignments; None for none.
        rests: Whether the beats of groups in which nothing happens are skipped.

    Attributes:
        design, script: See the arguments.
        start_ms: When the run starts, in milliseconds since the Unix epoch.
        brokers: By node id.
        members: By number.
        partition_counts: By topic.
        group_configs: The settings of the members that brokers have in designs that say so: by group id and name.
        registry: The registry.
        ownership, traffic, failures: The measurements.
    """

    def __init__(self, design: Design, script: Script, observer: Observer | None = None, *, rests: bool = True) -> None:
        self.design, self.script = design, script
        self.start_ms = START_MS
        self._clock = VirtualClock(START_MS)
        self.scheduler = Scheduler(self._clock)
        self.links = Links(self.scheduler, self._refuse)
        self._observer = observer
        self._random = random.Random(f"lab {script.seed}")
        self._link_numbers = 0
        self._by_id: dict[tuple[str, str], tuple[MemberProcess, int]] = {}  # With the incarnation.
        self._expelled_early: set[tuple[str, str]] = set()  # Ids that no member has reported yet.
        self._ended_ms: dict[tuple[int, int], float] = {}  # By number and incarnation, until it is noticed.
        plan = script.cluster
        self.partition_counts = dict(plan.topics)
        self.group_configs: Mapping[str, Mapping[str, int]] = {group.group_id: group.configs for group in script.groups}
        self.registry: Registry[Any] = Registry()
        self.traffic = Traffic(script.duration_ms)
        self.failures = Failures()
        self.ownership = Ownership(START_MS, plan.records_per_s)
        self.members: dict[int, MemberProcess] = {}
        for group in script.groups:
            self.ownership.add(group.group_id, self._partitions(group.topics), START_MS)
            for number in group.members:
                self.members[number] = MemberProcess(self, number, group)
        self.brokers = {node_id: BrokerProcess(self, node_id) for node_id in range(1, plan.brokers + 1)}
        self.offsets_topic = OffsetsTopic(self, self.brokers)
        self.idle_groups = IdleGroups(
            self, self.members, self.brokers, self.offsets_topic, self.traffic, start_ms=START_MS, is_enabled=rests
        )

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        counts = self.partition_counts
        return [(topic, index) for topic in topics for index in range(counts.get(topic, 0))]

    def run(self) -> None:
        """Run to the end."""
        for _ in self.play():
            pass

    def play(self, every_ms: float = inf) -> Iterator[float]:
        """Run to the end.

        Args:
            every_ms: Interval of the reports.

        Yields:
            The time since the beginning, in milliseconds, about every `every_ms`.
        """
        self.offsets_topic.start()
        for broker in self.brokers.values():
            broker.plan()
        for number, event in enumerate(self.script.events):
            self.scheduler.schedule(START_MS + event.at_ms, EVENT, number, self._perform, event)
        end_ms = START_MS + self.script.duration_ms
        step, clock, report_ms = self.scheduler.step, self._clock, START_MS + every_ms
        while step(end_ms):
            if clock.moment_ms >= report_ms:
                report_ms = clock.moment_ms + every_ms
                yield clock.moment_ms - START_MS
        paused = {member.number: member.paused_ms for member in self.members.values() if member.paused_ms is not None}
        self.ownership.finish(paused, end_ms)

    def now_ms(self) -> float:
        """Return the virtual time, in milliseconds since the Unix epoch."""
        return self._clock.moment_ms

    def next_link_number(self) -> int:
        self._link_numbers += 1
        return self._link_numbers

    def new_id(self) -> str:
        """Return a random UUID."""
        digits = f"{self._random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    # Events

    def _perform(self, event: MemberEvent | BrokerEvent | TopicEvent) -> None:
        if self._observer is not None:
            self._observer.happened(self.now_ms() - START_MS, event)
        match event:
            case MemberEvent():
                self._perform_member(self.members[event.member], event)
            case BrokerEvent():
                self._perform_broker(self.brokers[event.node_id], event)
            case TopicEvent():
                self._set_partitions(event)

    def _perform_member(self, member: MemberProcess, event: MemberEvent) -> None:
        now_ms, is_running = self.now_ms(), member.member is not None
        if event.do == "start":
            if not is_running:
                self.ownership.started(member.group_id, member.number, now_ms)
                member.start()
        elif is_running:
            match event.do:
                case "leave" | "crash" | "vanish":
                    self._end_member(member, event)
                case "pause":
                    self.idle_groups.forget(member)
                    member.pause(event.for_ms)
                case "slow":
                    member.slow(event.extra_ms, event.for_ms)
                case "cut":
                    member.cut()
                case "lose_request":
                    member.loses_request = True
                case "lose_response":
                    member.loses_response = True

    def _end_member(self, member: MemberProcess, event: MemberEvent) -> None:
        now_ms = self.now_ms()
        running_ms = now_ms if member.paused_ms is None else member.paused_ms
        self.idle_groups.forget(member)
        self.ownership.changed(member.group_id, event.do, now_ms)  # Before the member stops consuming.
        if event.do == "leave":
            member.leave()
        else:
            self._ended_ms[member.number, member.incarnation] = now_ms
            member.end(closes=event.do == "crash")
        self.ownership.ended(member.group_id, member.number, running_ms, now_ms)

    def _perform_broker(self, broker: BrokerProcess, event: BrokerEvent) -> None:
        if event.do == "start":
            if not broker.is_up:
                broker.start()
                for gone in (broker.node_id, None):  # The partitions that it led until now, and those without a leader.
                    self.offsets_topic.elect(gone)
        elif broker.state is BrokerState.UP:
            for group_id in self.offsets_topic.groups_of(broker.node_id):
                self.ownership.must_hear(group_id, self.now_ms())
            broker.end(event.do)
            plan = self.script.cluster
            wait_ms = plan.elect_ms + (plan.detect_ms if event.do == "vanish" else 0.0)
            at_ms = self.now_ms() + wait_ms
            self.scheduler.schedule(at_ms, EVENT, -1, self._elect, broker)

    def _elect(self, broker: BrokerProcess) -> None:
        if not broker.is_up:
            self.offsets_topic.elect(broker.node_id)

    def _set_partitions(self, event: TopicEvent) -> None:
        before = self.partition_counts.get(event.topic, 0)
        if event.partitions <= before:  # Kafka cannot remove partitions.
            return
        self.partition_counts[event.topic] = event.partitions
        added = [(event.topic, index) for index in range(before, event.partitions)]
        for group in self.script.groups:
            if event.topic in group.topics:
                self.ownership.add_partitions(group.group_id, added, self.now_ms())
        for broker in self.brokers.values():
            if broker.is_up:
                broker.coordinator.topics_changed(self.now_ms())
                broker.plan()

    # What brokers and members report

    def _refuse(self, link: MemberLink) -> None:
        """Something has arrived at a broker that does not have the connection: a running host resets it."""
        if self.brokers[link.node_id].state is not BrokerState.VANISHED:
            self.links.to_client(link, link.member.on_disconnected)

    def requested(self, node_id: int) -> None:
        """Count a request that a broker has received."""
        self.traffic.requested(node_id, self.now_ms() - START_MS)

    def sent(self, member: MemberProcess, message: Message, node_id: int, *, to_member: bool) -> None:
        """Count a message between a member and a broker."""
        size = self.traffic.sent(message, self.now_ms() - START_MS)
        self.ownership.sent(member.group_id, size, is_beat=self.design.is_beat(message))
        if self._observer is not None:
            self._observer.sent(self.now_ms() - START_MS, member, message, node_id, to_member=to_member)

    def heard(self, member: MemberProcess, link: MemberLink) -> None:
        """A member has received a message over a connection."""
        if self.ownership.groups[member.group_id].must_hear and (
            link.node_id == self.offsets_topic.coordinator_of(member.group_id)
        ):
            self.ownership.heard(member.group_id, member.number, self.now_ms())

    def identified(self, member: MemberProcess, member_id: str) -> None:
        """A member has reported its id."""
        self._by_id[member.group_id, member_id] = member, member.incarnation
        if (member.group_id, member_id) in self._expelled_early:  # It has learned its id after that was removed.
            self._expelled_early.discard((member.group_id, member_id))
            self.expelled(member.group_id, member_id)

    def expelled(self, group_id: str, member_id: str) -> None:
        """A coordinator has removed a member that seemed to have failed."""
        member, incarnation = self._by_id.get((group_id, member_id), (None, 0))
        if member is None:
            self._expelled_early.add((group_id, member_id))
            return
        ended_ms = self._ended_ms.pop((member.number, incarnation), None)
        if ended_ms is not None:
            self.failures.noticed_ms.append(self.now_ms() - ended_ms)
        elif incarnation == member.incarnation:
            self.failures.mistakes += 1
        if self._observer is not None:
            self._observer.expelled(self.now_ms() - START_MS, member)

    def assignment_changed(self, member: MemberProcess) -> None:
        """A member has reported its partitions."""
        if self._observer is not None:
            self._observer.changed(self.now_ms() - START_MS, member)

    def failed(self, member: MemberProcess, why: str) -> None:
        """A member has stopped because of an error."""
        self.failures.errors[why] = self.failures.errors.get(why, 0) + 1

    # The registry and look-ups

    def access_registry(self, operation: Callable[[Registry[Any]], T], done: Callable[[T], None]) -> None:
        """Run an operation on the registry after half a round trip; `done` gets the result after the other half."""
        half_ms = self.script.cluster.registry_ms / 2
        self.scheduler.schedule(self.now_ms() + half_ms, TIMER, 0, self._access, operation, done, half_ms)

    def _access(self, operation: Callable[[Registry[Any]], Any], done: Callable[[Any], None], half_ms: float) -> None:
        self.scheduler.schedule(self.now_ms() + half_ms, RESPONSE, 0, done, operation(self.registry))

    def coordinator_found(self, group_id: str) -> tuple[FindCoordinatorResponse, int | None]:
        """Return the response to a look-up of a coordinator, and the coordinator's node id."""
        node_id = self.offsets_topic.visible_coordinator_of(group_id)
        found = FoundCoordinator(
            key=group_id,
            node_id=-1 if node_id is None else node_id,
            host="" if node_id is None else f"broker-{node_id}",
            port=-1 if node_id is None else 9092,
            error_code=15 if node_id is None else 0,
            error_message=None,
        )
        return FindCoordinatorResponse(coordinators=[found]), node_id

    def metadata_found(self) -> tuple[MetadataResponse, dict[str, int]]:
        """Return the response to a look-up of metadata, and the partition counts."""
        topics = [
            MetadataResponseTopic(error_code=0, name=topic, partitions=[_metadata_row(index) for index in range(count)])
            for topic, count in self.partition_counts.items()
        ]
        return MetadataResponse(brokers=[], topics=topics), dict(self.partition_counts)


def _metadata_row(index: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(error_code=0, partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1])
