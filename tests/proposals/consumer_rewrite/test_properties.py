"""Arbitrary histories of groups of the rewrite design: consumers, time, topics, failing writes and failovers."""

from math import inf

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.api import GroupMetadata, JoinAnswer, RewriteConfig
from fakebroker.proposals.consumer_rewrite.errors import (
    COORDINATOR_STARTUP_NOT_COMPLETE,
    ILLEGAL_GENERATION,
    NONE,
    NOT_COORDINATOR_FOR_GROUP,
    UNKNOWN_CONSUMER,
)
from fakebroker.proposals.consumer_rewrite.group import RewriteGroup
from fakebroker.proposals.consumer_rewrite.states import CATCH_UP, PREPARE_FOR_REBALANCE, READY, REBALANCING, STEADY
from fakebroker.topic_partition import TopicPartition
from tests.support.coordinator.rewrite_lab import SHARD, Join, RewriteLab
from tests.support.soak import examples, soak

TOPICS = ("t", "u", "new")
SESSIONS_MS = (1_000, 3_000)
COMMIT_ERRORS = {
    NONE,
    NOT_COORDINATOR_FOR_GROUP,
    COORDINATOR_STARTUP_NOT_COMPLETE,
    ILLEGAL_GENERATION,
    UNKNOWN_CONSUMER,
}


class RewriteMachine(RuleBasedStateMachine):
    """Consumers that send anything at any time, with checks of every answer against the registry."""

    lab: RewriteLab

    def __init__(self) -> None:
        super().__init__()
        self.joins: list[Join] = []
        self.told: dict[int, dict[str, tuple[TopicPartition, ...]]] = {}
        self.ids: list[str] = ["", "g-unknown"]
        self.written: dict[int, GroupMetadata] = {}
        self.generation_id = 0

    @initialize()
    def start(self) -> None:
        self.lab = RewriteLab(RewriteConfig(max_session_timeout_ms=3_000), t=3, u=1)
        self.lab.on_write = self.note_written

    # Requests

    @rule(
        number=st.integers(0, 30),
        topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3),
        strategy=st.sampled_from(["range", "range", "range", "roundrobin", "?"]),
        session_ms=st.sampled_from([*SESSIONS_MS, 4_000]),
        connection=st.none() | st.integers(0, 2),
    )
    def join(self, number: int, topics: list[str], strategy: str, session_ms: int, connection: int | None) -> None:
        consumer_id = self.ids[number % len(self.ids)]
        join = self.lab.join(consumer_id, tuple(topics), strategy, session_ms, connection)
        self.joins.append(join)

    @rule(number=st.integers(0, 30), generation_offset=st.sampled_from([0, 0, 0, -1, 1]))
    def beat(self, number: int, generation_offset: int) -> None:
        consumer_id = self.ids[number % len(self.ids)]
        group = self.lab.coordinator.group("g")
        generation_id = (group.generation_id if group else 0) + generation_offset
        returns = group is not None and consumer_id in group.expired
        error = self.lab.beat(consumer_id, generation_id)
        if error is NONE:
            assert group is not None
            assert generation_offset == 0
            assert returns or group.state in (READY, STEADY)
            assert consumer_id in group.consumers
        elif group is not None and error is UNKNOWN_CONSUMER:
            assert consumer_id not in group

    @rule(number=st.integers(0, 30), generation_offset=st.sampled_from([0, 0, 0, -1, 1]))
    def commit(self, number: int, generation_offset: int) -> None:
        consumer_id = self.ids[number % len(self.ids)]
        group = self.lab.coordinator.group("g")
        error = self.lab.commit(consumer_id, (group.generation_id if group else 0) + generation_offset)
        assert error in COMMIT_ERRORS
        if error is NONE and group is None:
            assert (consumer_id, generation_offset) == ("", -1)
        elif error is NONE:
            assert group is not None
            assert generation_offset == 0
            assert group.state is not REBALANCING
            assert consumer_id in group

    @rule(delay_ms=st.sampled_from([1, 300, 999, 1_000, 2_500]))
    def pass_time(self, delay_ms: int) -> None:
        self.lab.later(delay_ms)

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(0, 4))
    def set_topic(self, topic: str, partitions: int) -> None:
        self.lab.set_topic(topic, partitions)

    # Writes and elections

    @precondition(lambda self: self.lab.held is None)
    @rule()
    def hold_writes(self) -> None:
        self.lab.held = []

    @precondition(lambda self: self.lab.held)
    @rule(fails=st.sampled_from([False, False, True]))
    def finish_write(self, fails: bool) -> None:
        if fails:
            self.lab.errors.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.lab.finish_write()

    @precondition(lambda self: self.lab.held is not None)
    @rule()
    def write_at_once(self) -> None:
        held, self.lab.held = self.lab.held or [], None
        for write in held:
            write()

    @precondition(lambda self: self.lab.state is not CATCH_UP)
    @rule(notices=st.booleans(), loads=st.booleans())
    def fail_over(self, notices: bool, loads: bool) -> None:
        """Elect the other broker. If the present coordinator does not notice, its later writes must fail."""
        if notices:
            self.lab.coordinator.resign(SHARD, self.lab.now_ms)
        other = 3 - self.lab.current
        self.lab.coordinators[other].resign(SHARD, self.lab.now_ms)
        self.lab.elect(other)
        if loads:
            self.lab.load(other)

    @precondition(lambda self: self.lab.state is CATCH_UP)
    @rule()
    def load(self) -> None:
        self.lab.load(self.lab.current)

    # Checks

    def note_written(self) -> None:
        stored = self.lab.stored
        if stored is not None:
            assert stored.generation_id >= self.generation_id
            self.generation_id = stored.generation_id
            assert self.written.setdefault(stored.generation_id, stored) == stored

    @invariant()
    def answers_agree_with_the_registry(self) -> None:
        self.note_written()
        for join in self.joins:
            if not join.waits:
                self.check_answer(join.answer, join)
        self.joins = [join for join in self.joins if join.waits]

    def check_answer(self, answer: JoinAnswer, join: Join) -> None:
        if answer.error:
            assert answer == JoinAnswer(answer.error)
            return
        metadata = self.written[answer.generation_id]
        (consumer,) = (each for each in metadata.consumers if each.consumer_id == answer.consumer_id)
        assert consumer.partitions == answer.partitions
        assert consumer.topics == tuple(dict.fromkeys(join.request.topics))
        assert answer.consumer_id == join.request.consumer_id or not join.request.consumer_id
        told = self.told.setdefault(answer.generation_id, {})
        assert answer.consumer_id not in told
        told[answer.consumer_id] = answer.partitions
        owned = [partition for partitions in told.values() for partition in partitions]
        assert len(owned) == len(set(owned)), "a partition is owned twice"
        if answer.consumer_id not in self.ids:
            self.ids.append(answer.consumer_id)

    @invariant()
    def every_partition_of_a_generation_has_one_owner(self) -> None:
        stored = self.lab.stored
        if stored is not None:
            owned = sorted(each for consumer in stored.consumers for each in consumer.partitions)
            expected = [(topic, index) for topic, count in stored.partition_counts.items() for index in range(count)]
            assert owned == sorted(expected)
            assert set(stored.partition_counts) == {topic for each in stored.consumers for topic in each.topics}

    @invariant()
    def groups_are_consistent(self) -> None:
        for coordinator in self.lab.coordinators.values():
            group = coordinator.group("g")
            if group is not None:
                check(group)
            indexed = {topic for topic, groups in coordinator._groups_by_topic.items() if group in groups}
            assert indexed == (set(group.partition_counts) if group is not None else set())

    def teardown(self) -> None:
        """Every join is answered, at the latest after one session timeout for each join that waits."""
        if not hasattr(self, "lab"):
            return
        lab = self.lab
        for coordinator in lab.coordinators.values():
            if coordinator is not lab.coordinator:
                coordinator.resign(SHARD, lab.now_ms)
        if lab.state is CATCH_UP:
            lab.load(lab.current)
        lab.errors.clear()
        self.write_at_once()
        for _ in range(10):
            lab.later(max(SESSIONS_MS))
        assert not any(join.waits for join in self.joins)
        self.answers_agree_with_the_registry()


def check(group: RewriteGroup) -> None:
    """Check the invariants of one group."""
    waiting = [consumer for consumer in group.consumers.values() if consumer.join is not None]
    assert all((consumer.deadline_ms == inf) == (consumer.join is not None) for consumer in group.consumers.values())
    assert all(consumer.group is group for consumer in group.consumers.values())
    if group.state is PREPARE_FOR_REBALANCE:
        assert group.missing == len(group.consumers) - len(waiting)
        assert group.missing or not group.has_joins
        assert not (group.is_cancelable and group.has_joins)
    elif group.state is REBALANCING:
        assert len(waiting) == len(group.consumers)
    else:
        assert not list(group.waiting_joins())
        assert not group.expired
        assert group.consumers
    if group.state is not REBALANCING:
        assert not group.later_joins
    if group.state is READY:
        assert group.unheard == sum(not consumer.is_heard for consumer in group.consumers.values()) > 0


def run_histories(count: int, steps: int) -> None:
    run_state_machine_as_test(RewriteMachine, settings=settings(max_examples=count, stateful_step_count=steps))


def test_answers_and_registry_are_consistent_in_short_histories() -> None:
    run_histories(40, steps=40)


@soak
@pytest.mark.slow
def test_answers_and_registry_are_consistent_in_long_histories() -> None:
    run_histories(examples(150, soak=2_000), steps=60)
