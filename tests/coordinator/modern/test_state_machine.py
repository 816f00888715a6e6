"""Random histories of a consumer group: members join, reconcile, leave and fall silent, topics change, failovers."""

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fakebroker.coordinator.group.modern.assignors import ASSIGNORS
from fakebroker.coordinator.group.modern.assignors.group_spec import Assignment, Assignor, GroupSpec
from fakebroker.errors import ErrorCode
from tests.support.coordinator.consumer_group_harness import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerGroupHarness,
    FakeTopics,
)
from tests.support.soak import examples, soak

MEMBERS = ("a", "b", "c", "d")
TOPICS = ("news", "orders")


def recording(results: list[dict[str, Assignment]], assignor: Assignor) -> Assignor:
    def assign(group: GroupSpec) -> dict[str, Assignment]:
        results.append(dict(assignor(group)))
        return results[-1]

    return assign


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Clients that follow the protocol, apart from lost responses, against one coordinator.

    Attributes:
        epochs: The epoch that each client knows; none while it is not a member.
        owned: What each client has, which it gives up when it is told to.
        topics: What each client subscribed to last.
        unsure: The clients whose last response was lost.
        results: The results of assignors, oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.results: list[dict[str, Assignment]] = []
        assignors = {name: recording(self.results, assignor) for name, assignor in ASSIGNORS.items()}
        self.harness = ConsumerGroupHarness(FakeTopics(orders=5), assignors=assignors)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[str, set[int]]] = {}
        self.topics: dict[str, tuple[str, ...]] = {}
        self.unsure: set[str] = set()
        self.highest: dict[str, int] = {}

    @initialize()
    def first(self) -> None:
        self.heartbeat("a", ("orders",), lost=False)

    @rule(
        member_id=st.sampled_from(MEMBERS),
        topics=st.sampled_from([("orders",), ("news", "orders"), ("news",), ()]),
        lost=st.booleans(),
    )
    def heartbeat(self, member_id: str, topics: tuple[str, ...], lost: bool) -> None:
        """A client joins, or reports what it has; the response may be lost."""
        if member_id in self.epochs:
            known = {name: owned for name, owned in self.owned[member_id].items() if name in self._topics()}
            # After a lost response a client reports everything, and so learns its assignment.
            full = {"subscribed_topic_names": self.topics[member_id], "rebalance_timeout_ms": REBALANCE_MS}
            result = self.harness.send(
                member_id, self.epochs[member_id], known, **(full if member_id in self.unsure else {})
            )
        else:
            result = self.harness.send(member_id, subscribed_topic_names=topics)
            self.topics[member_id] = topics
        if result.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._forget(member_id)
        else:
            assert result.error is ErrorCode.NONE, result
            self.unsure.add(member_id)
            if not lost:
                self.unsure.discard(member_id)
                self.epochs[member_id] = result.member_epoch
                if result.assignment is not None:
                    self.owned[member_id] = self.harness.topics.by_name(result.assignment)
                self.owned.setdefault(member_id, {})

    @rule(member_id=st.sampled_from(MEMBERS), topics=st.sampled_from([("orders",), ("news", "orders"), ()]))
    def subscribe(self, member_id: str, topics: tuple[str, ...]) -> None:
        if member_id in self.epochs:
            result = self.harness.send(member_id, self.epochs[member_id], subscribed_topic_names=topics)
            if result.error:
                self._forget(member_id)
            else:
                self.topics[member_id] = topics
                self.epochs[member_id] = result.member_epoch
                if result.assignment is not None:
                    self.owned[member_id] = self.harness.topics.by_name(result.assignment)

    @rule(member_id=st.sampled_from(MEMBERS))
    def leave(self, member_id: str) -> None:
        self.harness.send(member_id, -1)
        self._forget(member_id)

    @rule(ms=st.sampled_from([1_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def advance(self, ms: int) -> None:
        self.harness.advance(ms)

    @rule()
    def fail_over(self) -> None:
        self.harness.fail_over()

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
        for _ in range(12):
            for member_id in list(self.epochs):
                self.heartbeat(member_id, (), lost=False)
        group = self.harness.coordinator.consumer_groups.get(GROUP)
        if group is not None and self.epochs.keys() == group.members.keys() and group.members:
            assert group.state.value == "Stable", group.members
            for member_id, member in group.members.items():
                # A member that has never had a subscription is not in the target, as in Kafka.
                assert member.assigned == group.target.get(member_id, {})
            wanted = {name for member in group.members.values() for name in member.subscribed_topic_names}
            topics = [found for name in wanted if (found := self.harness.topics.named(name)) is not None]
            assigned = sum(len(each) for member in group.members.values() for each in member.assigned.values())
            assert assigned == sum(topic.partition_count for topic in topics)

    @invariant()
    def epochs_of_members_rise(self) -> None:
        group = self.harness.coordinator.consumer_groups.get(GROUP)
        members = {} if group is None else group.members
        for member_id in [*self.highest]:
            if member_id not in members:
                del self.highest[member_id]
        for member_id, member in members.items():
            assert member.member_epoch >= self.highest.get(member_id, 0), member
            self.highest[member_id] = member.member_epoch

    @invariant()
    def the_target_is_the_result_of_the_assignor(self) -> None:
        group = self.harness.coordinator.consumer_groups.get(GROUP)
        if group is not None and group.target and self.results:
            result = self.results[-1]
            assert {member_id: result.get(member_id, {}) for member_id in group.target} == group.target

    @invariant()
    def no_two_clients_have_a_partition(self) -> None:
        group = self.harness.coordinator.consumer_groups.get(GROUP)
        owners: dict[tuple[str, int], str] = {}
        for member_id, owned in self.owned.items():
            if group is not None and member_id in group.members:  # Others were removed, and do not know it yet.
                for place in [(topic, index) for topic, indexes in owned.items() for index in indexes]:
                    assert owners.setdefault(place, member_id) == member_id, f"{place} has two owners"

    def _topics(self) -> set[str]:
        return {name for name in TOPICS if self.harness.topics.named(name) is not None}

    def _forget(self, member_id: str) -> None:
        self.epochs.pop(member_id, None)
        self.owned.pop(member_id, None)


ConsumerGroupMachine.TestCase.settings = settings(max_examples=examples(15, soak=2_000), stateful_step_count=40)
TestConsumerGroups = soak(ConsumerGroupMachine.TestCase)
