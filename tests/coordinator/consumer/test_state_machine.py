"""Random histories of a consumer group: members join, reconcile, leave and fall silent, topics change, failovers."""

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fakebroker.cluster.regular_expressions import compile_regex
from fakebroker.coordinator.consumer import controls as consumer_controls
from fakebroker.coordinator.consumer.assignors import ASSIGNORS, Assignment, Assignor, GroupSpec
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerGroupMember,
    Partitions,
)
from fakebroker.coordinator.consumer.states import ConsumerGroupState
from fakebroker.coordinator.consumer.subscriptions import MIN_REFRESH_INTERVAL_MS
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.persistence import replay
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from fakebroker.protocol.releases import NEWEST
from tests.support.coordinator.consumer_group_harness import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerGroupHarness,
    FakeTopics,
    assigned_partitions,
    contents,
)
from tests.support.soak import examples, soak

MEMBERS = ("a", "b", "c", "s", "t")
INSTANCE = {"s": "i", "t": "i"}
"""Static members: two that use the same instance id."""
TOPICS = ("news", "orders")
OUT = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""The errors after which a client has to join again."""

NO_INDEXES: frozenset[int] = frozenset()

a_member = st.sampled_from(MEMBERS)
a_subscription = st.sampled_from(
    [
        {"subscribed_topic_names": names, "subscribed_topic_regex": regex}
        for names, regex in (
            (("orders",), ""),
            (("news", "orders"), ""),
            (("news",), ""),
            ((), ""),
            ((), ".*"),
            ((), "n.*"),
            (("orders",), "n.*"),
        )
    ]
)
an_assignor = st.sampled_from([None, "range", "uniform"])


Subscription = dict[str, Any]
"""The fields of a heartbeat with which a member subscribes."""


def subscribes(member: ConsumerGroupMember, topic: str) -> bool:
    return topic in member.subscribed_topic_names or bool(re.fullmatch(member.subscribed_topic_regex, topic))


def recording(results: list[dict[str, Assignment]], assignor: Assignor) -> Assignor:
    def assign(group: GroupSpec) -> dict[str, Assignment]:
        results.append(dict(assignor(group)))
        return results[-1]

    return assign


class RecordingHarness(ConsumerGroupHarness):
    """Notes when a dynamic member got a partition.

    Attributes:
        since: The epoch of the member then, by member id, topic id and partition.
    """

    def __init__(self, *args: Any, **config: Any) -> None:
        self.since: dict[tuple[str, bytes, int], int] = {}
        super().__init__(*args, **config)

    def check(self) -> None:
        super().check()
        group = self.coordinator.groups.consumer.get(GROUP)
        held = {
            (member.member_id, topic_id, index): member.member_epoch
            for member in (() if group is None else group.members.values())
            if member.instance_id is None
            for partitions in (member.assigned, member.pending_revocation)
            for topic_id, indexes in partitions.items()
            for index in indexes
        }
        self.since = {place: self.since.get(place, epoch) for place, epoch in held.items()}


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Clients that follow the protocol, apart from lost responses, against one coordinator.

    Attributes:
        epochs: The epoch that each client knows; none while it is not a member.
        owned: What each client has, which it gives up when it is told to.
        subscriptions: What each client subscribed to last.
        unsure: The clients whose last response was lost.
        results: The results of assignors, oldest first.
        highest: The highest epoch of each member.
        group_epochs: The highest group epoch and assignment epoch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.results: list[dict[str, Assignment]] = []
        assignors = {name: recording(self.results, assignor) for name, assignor in ASSIGNORS.items()}
        self.harness = RecordingHarness(FakeTopics(orders=5), assignors=assignors, compile_regex=compile_regex)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Partitions] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.unsure: set[str] = set()
        self.highest: dict[str, int] = {}
        self.group_epochs = 0, 0

    @property
    def group(self) -> ConsumerGroup | None:
        return self.harness.coordinator.groups.consumer.get(GROUP)

    # Clients

    @initialize(interval_ms=st.sampled_from([0, 1_000]))
    def first(self, interval_ms: int) -> None:
        self.harness.config.consumer.assignment_interval_ms = interval_ms
        self.join("a", {"subscribed_topic_names": ("orders",)}, None, lost=False)

    @rule(member_id=a_member, subscription=a_subscription, assignor=an_assignor, lost=st.booleans())
    def join(self, member_id: str, subscription: Subscription, assignor: str | None, lost: bool) -> None:
        """A client joins, if it has not; the response may be lost."""
        if member_id in self.epochs:
            return
        result = self.send(member_id, 0, **subscription, server_assignor=assignor)
        if result.error_code is not ErrorCode.UNRELEASED_INSTANCE_ID:
            self.subscriptions[member_id] = subscription
            self.take(member_id, result, lost=lost)

    @rule(member_id=a_member, lost=st.booleans(), reports=st.booleans(), assignor=an_assignor)
    def heartbeat(self, member_id: str, lost: bool, reports: bool, assignor: str | None) -> None:
        """A member sends a heartbeat, perhaps with what it has, or with another assignor; the response may be lost."""
        if member_id not in self.epochs:
            return
        fields: dict[str, Any] = {} if assignor is None else {"server_assignor": assignor}
        if reports or member_id in self.unsure:
            fields["reported"] = self.owned[member_id]
        if member_id in self.unsure:
            # After a lost response a client reports everything, and so learns its assignment.
            fields |= {**self.subscriptions[member_id], "rebalance_timeout_ms": REBALANCE_MS}
        self.take(member_id, self.send(member_id, self.epochs[member_id], **fields), lost=lost)

    @rule(member_id=a_member, subscription=a_subscription)
    def subscribe(self, member_id: str, subscription: Subscription) -> None:
        if member_id in self.epochs and member_id not in self.unsure:
            self.subscriptions[member_id] = subscription
            self.take(member_id, self.send(member_id, self.epochs[member_id], **subscription))

    @rule(member_id=a_member, for_a_while=st.booleans())
    def leave(self, member_id: str, for_a_while: bool) -> None:
        self.send(member_id, -2 if for_a_while and member_id in INSTANCE else -1)
        self.forget(member_id)

    def send(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        if member_id in INSTANCE:
            fields["instance_id"] = INSTANCE[member_id]
        return self.harness.send(member_id, epoch, **fields)

    def take(self, member_id: str, result: ConsumerGroupHeartbeatResponse, *, lost: bool = False) -> None:
        """Let a client receive a response, unless it is lost."""
        if result.error_code in OUT:
            self.forget(member_id)
            return
        assert result.error_code is ErrorCode.NONE, result
        self.unsure.add(member_id)
        if not lost:
            self.unsure.discard(member_id)
            self.epochs[member_id] = result.member_epoch
            if (assigned := assigned_partitions(result)) is not None:
                self.owned[member_id] = assigned
            self.owned.setdefault(member_id, {})

    def forget(self, member_id: str) -> None:
        self.epochs.pop(member_id, None)
        self.owned.pop(member_id, None)
        self.unsure.discard(member_id)

    # The cluster

    @rule(ms=st.sampled_from([1_000, MIN_REFRESH_INTERVAL_MS + 1, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def advance(self, ms: int) -> None:
        self.harness.advance(ms)

    @rule()
    def fail_over(self) -> None:
        self.harness.fail_over()

    @rule(
        member_id=a_member,
        subscription=a_subscription,
        kind=st.sampled_from(["join", "report", "subscribe", "leave", "leave for a while", "expire"]),
    )
    def fail_append(self, member_id: str, subscription: Subscription, kind: str) -> None:
        """The log refuses the records of a request, or of the removal of members: nothing has changed."""
        group = self.group
        before, appends, runs = None if group is None else contents(group), len(self.harness.batches), len(self.results)
        self.harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        epoch = self.epochs.get(member_id, 0)
        if kind == "expire":
            self.harness.advance(SESSION_MS)
        elif kind in ("join", "subscribe"):
            self.send(member_id, 0 if kind == "join" else epoch, **subscription)
        elif kind == "report":
            self.send(member_id, epoch, reported=self.owned.get(member_id, {}))
        else:
            self.send(member_id, -2 if kind == "leave for a while" and member_id in INSTANCE else -1)
        self.harness.append_error = None
        del self.results[runs:]
        assert len(self.harness.batches) == appends
        assert (None if self.group is None else contents(self.group)) == before

    @rule()
    def delete(self) -> None:
        """An administrator deletes the group, which nothing is left of if it has no members."""
        group = self.group
        results = [self.harness.coordinator.delete_groups([GROUP], self.harness.now_ms)[GROUP]]
        if group is None or not group.members:
            assert results == [ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NONE]
            assert self.group is None
            assert replay(self.harness.log, 0, NEWEST).consumer_groups == {}
            self.group_epochs = 0, 0
            self.results.clear()
        else:
            assert results == [ErrorCode.NON_EMPTY_GROUP]

    # Manual control

    @rule(state=st.sampled_from([ConsumerGroupState.ASSIGNING, ConsumerGroupState.RECONCILING]), member_id=a_member)
    def hold(self, state: ConsumerGroupState, member_id: str) -> None:
        """The assignor does not run, or two members are not believed to have given up partitions, until `release`."""
        controls = self.harness.controls.setdefault(GROUP, GroupControls())
        if state is ConsumerGroupState.ASSIGNING:
            controls.held_states[state] = None
        else:
            controls.held_members |= {member_id: None, "a": None}

    @rule()
    def release(self) -> None:
        self.harness.controls.pop(GROUP, None)

    @rule()
    def force_assignment(self) -> None:
        group = self.group
        if group is not None and group.state in (ConsumerGroupState.STABLE, ConsumerGroupState.RECONCILING):
            consumer_controls.force_assignment(self.harness.coordinator, group, self.harness.now_ms)
            assert group.state.value == "Assigning"

    @rule(member_id=a_member)
    def fence_epoch(self, member_id: str) -> None:
        """The epoch of a member is forgotten, and its client notices at once."""
        group, epoch = self.group, self.epochs.get(member_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None and epoch is not None:
            consumer_controls.fence_epoch(self.harness.coordinator, group, member, self.harness.now_ms)
            result = self.send(member_id, epoch)
            assert result.error_code is ErrorCode.FENCED_MEMBER_EPOCH
            self.take(member_id, result)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 3))
    def change_topic(self, name: str, partitions: int) -> None:
        found = self.harness.topics.named(name)
        if found is None:
            self.harness.topics.create(name, partitions)
        elif partitions == 1 and name == "news":
            self.harness.topics.delete(name)
        elif found.partition_count < 12:
            self.harness.topics.grow(name, found.partition_count + partitions)

    @rule()
    def settle(self) -> None:
        """All clients follow the protocol for a while: then the group reaches its target, and all is assigned."""
        self.release()
        # A target that was computed when a member joined without topics may have some for it, as in Kafka.
        self.force_assignment()
        self.harness.advance(MIN_REFRESH_INTERVAL_MS + 1)
        for _ in range(12):
            self.harness.advance(self.harness.config.consumer.assignment_interval_ms)
            for member_id in list(self.epochs):
                self.heartbeat(member_id, lost=False, reports=True, assignor=None)
        group = self.group
        if group is not None and self.epochs.keys() == group.members.keys() and group.members:
            assert group.state.value == "Stable", group.members
            for member_id, member in group.members.items():
                # A member that has never had a subscription is not in the target, as in Kafka.
                assert member.assigned == group.target.get(member_id, {})
            topics = [
                topic
                for topic in map(self.harness.topics.named, self.harness.topics.names())
                if topic is not None and any(subscribes(member, topic.name) for member in group.members.values())
            ]
            assigned = sum(len(each) for member in group.members.values() for each in member.assigned.values())
            assert assigned == sum(topic.partition_count for topic in topics)

    def teardown(self) -> None:
        self.harness.fail_over()

    # What always holds, besides what the harness checks

    @invariant()
    def epochs_rise(self) -> None:
        group = self.group
        if group is not None:
            epochs = group.group_epoch, group.assignment_epoch
            assert epochs >= self.group_epochs
            assert epochs[1] >= self.group_epochs[1]
            self.group_epochs = epochs
        members = {} if group is None else group.members
        for member_id in [*self.highest]:
            if member_id not in members or members[member_id].member_epoch in (LEAVING_STATIC_EPOCH, JOINING_EPOCH):
                del self.highest[member_id]
        for member_id, member in members.items():
            if member.member_epoch != LEAVING_STATIC_EPOCH:
                assert member.member_epoch >= self.highest.get(member_id, 0), member
                self.highest[member_id] = member.member_epoch

    @invariant()
    def the_target_is_the_result_of_the_assignor(self) -> None:
        group = self.group
        if group is not None and group.target and self.results:
            result = self.results[-1]
            ids = {member_id: self.holder_in(result, member_id) for member_id in group.target}
            assert {member_id: result.get(ids[member_id], {}) for member_id in group.target} == group.target

    def holder_in(self, result: dict[str, Assignment], member_id: str) -> str:
        """Return the id that a member had when the assignor ran: a static one may have replaced the other."""
        instance_id = INSTANCE.get(member_id)
        others = [each for each in result if each not in (member_id,) and instance_id and INSTANCE.get(each)]
        return member_id if member_id in result or not others else others[0]

    @invariant()
    def a_commit_in_an_older_epoch_needs_a_partition_that_the_member_had_then(self) -> None:
        for member_id, member in ({} if self.group is None else self.group.members).items():
            if member.instance_id is None and member.member_epoch != JOINING_EPOCH:
                for epoch in range(member.member_epoch - 3, member.member_epoch + 2):
                    self.check_commits(member_id, epoch, member.member_epoch)

    def check_commits(self, member_id: str, epoch: int, present: int) -> None:
        assert self.group is not None
        for place in {(topic.topic_id, index) for topic in self.harness.topics.all() for index in range(3)}:
            since = self.harness.since.get((member_id, *place))
            is_allowed = epoch == present or (epoch < present and since is not None and since <= epoch)
            error = self.group.check_commit(epoch, member_id) or self.group.check_older_commit(
                epoch, member_id, [place]
            )
            assert error is (ErrorCode.NONE if is_allowed else ErrorCode.STALE_MEMBER_EPOCH), (member_id, epoch, place)

    @invariant()
    def no_two_clients_have_a_partition(self) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, member in self.members_with_clients():
            for place in [(topic, index) for topic, indexes in self.owned[member_id].items() for index in indexes]:
                assert owners.setdefault(place, member_id) == member_id, f"{place} has two owners"
            if member_id not in self.unsure:
                for topic_id, indexes in self.owned[member_id].items():
                    held = member.assigned.get(topic_id, NO_INDEXES) | member.pending_revocation.get(
                        topic_id, NO_INDEXES
                    )
                    assert indexes <= held, member

    def members_with_clients(self) -> Iterator[tuple[str, ConsumerGroupMember]]:
        """Yield the members whose client knows that it is one. Clients may not know yet that they were removed."""
        for member_id, member in ({} if self.group is None else self.group.members).items():
            if member_id in self.owned:
                yield member_id, member


ConsumerGroupMachine.TestCase.settings = settings(max_examples=examples(15, soak=2_000), stateful_step_count=40)
TestConsumerGroups = soak(ConsumerGroupMachine.TestCase)
