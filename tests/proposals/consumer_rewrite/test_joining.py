"""JoinGroup of the rewrite design: consumer ids, generations, assignment, and every error of a join."""

import pytest

from fakebroker.assignment import MemberPartitions, RankedMembers
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.api import JoinAnswer, RewriteConfig
from fakebroker.proposals.consumer_rewrite.errors import (
    ILLEGAL_GENERATION,
    ILLEGAL_PROTOCOL_STATE,
    INCONSISTENT_PARTITIONING_STRATEGY,
    NAMES,
    NONE,
    NOT_COORDINATOR_FOR_GROUP,
    SESSION_TIMEOUT_TOO_HIGH,
    UNKNOWN_CONSUMER,
    UNKNOWN_PARTITIONING_STRATEGY,
)
from fakebroker.proposals.consumer_rewrite.states import (
    CATCH_UP,
    DOWN,
    PREPARE_FOR_REBALANCE,
    READY,
    REBALANCING,
    STEADY,
    TRANSITIONS,
    CoordinatorState,
    StateMachine,
)
from tests.support.coordinator.rewrite_lab import SESSION_MS, SHARD, RewriteLab


def t(*partitions: int) -> tuple[tuple[str, int], ...]:
    return tuple(("t", partition) for partition in partitions)


def test_the_first_consumer_gets_an_id_of_its_group_the_first_generation_and_all_partitions() -> None:
    lab = RewriteLab()
    assert lab.state is READY
    assert lab.join().answer == JoinAnswer(NONE, 1, "g-id1", t(0, 1, 2, 3))
    assert lab.state is STEADY


def test_a_new_consumer_waits_until_all_known_consumers_have_joined_by_id() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    new = lab.join()
    assert new.waits
    assert lab.state is PREPARE_FOR_REBALANCE
    assert lab.beat(one, 1) is ILLEGAL_GENERATION
    again = lab.join(one)
    assert again.answer == JoinAnswer(NONE, 2, one, t(0, 1))
    assert new.answer == JoinAnswer(NONE, 2, "g-id2", t(2, 3))
    assert lab.state is STEADY


def test_the_generation_rises_even_if_the_membership_does_not_change() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    assert [lab.join(one).answer.generation_id for _ in range(3)] == [2, 3, 4]


def test_an_empty_id_costs_a_session_timeout_since_the_consumer_is_not_recognized() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    lab.later(1_000)
    assert lab.beat(one, 2) is lab.beat(two, 2) is NONE
    lab.later(1_000)
    unnamed = lab.join()  # of `one`, which does not send its id
    named = lab.join(two)
    lab.later(SESSION_MS - 1)
    assert unnamed.waits
    assert named.waits
    lab.later(1)
    assert unnamed.answer == JoinAnswer(NONE, 3, "g-id3", t(0, 1) if two > "g-id3" else t(2, 3))
    assert named.answer.generation_id == 3
    assert one not in lab.group


def test_the_wait_starts_with_the_first_join_without_an_id() -> None:
    lab = RewriteLab()
    lab.stable_group(1)
    first = lab.join()
    lab.later(SESSION_MS - 1)
    second = lab.join(session_ms=20_000)
    lab.later(1)
    assert first.answer.generation_id == second.answer.generation_id == 2


def test_joins_by_id_let_the_rebalance_proceed_although_a_join_without_an_id_waits() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    new = lab.join()
    lab.later(5)
    lab.join(one)
    assert new.waits
    lab.join(two)
    assert new.answer.generation_id == 3


def test_a_join_without_an_id_after_all_known_consumers_have_joined_does_not_wait() -> None:
    lab = RewriteLab()
    lab.stable_group(1)
    lab.later(SESSION_MS)
    assert lab.state is PREPARE_FOR_REBALANCE  # the only consumer has expired
    assert lab.join().answer.generation_id == 2


def test_an_unknown_id_is_rejected_and_starts_no_rebalance() -> None:
    lab = RewriteLab()
    assert lab.error_of_join("g-id9") is UNKNOWN_CONSUMER
    assert lab.coordinator.group("g") is None
    (one,) = lab.stable_group(1)
    assert lab.error_of_join("g-id9") is UNKNOWN_CONSUMER
    assert lab.state is STEADY
    assert lab.beat(one, 1) is NONE


def test_consumers_of_one_group_need_the_same_strategy() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    assert lab.error_of_join(strategy="roundrobin") is INCONSISTENT_PARTITIONING_STRATEGY
    assert lab.state is STEADY
    assert lab.join(one, strategy="roundrobin").answer.error is NONE  # it is alone
    new = lab.join(strategy="roundrobin")
    assert lab.error_of_join(one, strategy="range") is INCONSISTENT_PARTITIONING_STRATEGY
    lab.join(one, strategy="roundrobin")
    assert new.partitions == t(1, 3)


def test_a_new_consumer_that_waits_determines_the_strategy() -> None:
    lab = RewriteLab()
    lab.held = []
    first = lab.join(strategy="roundrobin")
    assert lab.error_of_join(strategy="range") is INCONSISTENT_PARTITIONING_STRATEGY
    lab.finish_write()
    assert first.answer.error is NONE


def test_the_strategy_has_to_be_known_to_the_brokers() -> None:
    def all_to_the_last(members: RankedMembers, partition_counts: object) -> MemberPartitions:
        return {member_id: [] for member_id, _ in members} | {members[-1][0]: [("t", 0)]}

    lab = RewriteLab()
    assert lab.error_of_join(strategy="sticky") is UNKNOWN_PARTITIONING_STRATEGY
    lab = RewriteLab(RewriteConfig(strategies={"last": all_to_the_last}))
    assert lab.error_of_join(strategy="range") is UNKNOWN_PARTITIONING_STRATEGY
    one, two = lab.stable_group(2, strategy="last")
    assert lab.state is STEADY  # although not all partitions are owned
    assert [each.partitions for each in lab.group.consumers.values()] == [(), t(0)]
    assert [one, two] == list(lab.group.consumers)


@pytest.mark.parametrize(("session_ms", "error"), [(0, True), (-1, True), (1, False), (30_000, False), (30_001, True)])
def test_the_session_timeout_is_positive_and_at_most_the_maximum(session_ms: int, error: bool) -> None:
    lab = RewriteLab(RewriteConfig(max_session_timeout_ms=30_000))
    assert lab.error_of_join(session_ms=session_ms) is (SESSION_TIMEOUT_TOO_HIGH if error else NONE)


def test_another_broker_is_not_the_coordinator() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.current = 2
    assert lab.state is DOWN
    assert lab.error_of_join() is lab.error_of_join(one) is NOT_COORDINATOR_FOR_GROUP


def test_joins_are_illegal_while_the_groups_are_loaded() -> None:
    lab = RewriteLab()
    lab.elect(2)
    assert lab.state is CATCH_UP
    assert lab.error_of_join() is lab.error_of_join("g-id1") is ILLEGAL_PROTOCOL_STATE
    lab.load(2)
    assert lab.error_of_join() is NONE


def test_a_join_replaces_the_waiting_one_of_the_same_consumer() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    old = lab.join(one)
    new = lab.join(one, topics=("t", "u"))
    assert old.answer.error is ILLEGAL_GENERATION
    assert new.waits
    lab.join(two)
    assert new.answer.error is NONE
    assert lab.group.consumers[one].topics == ("t", "u")


def test_a_consumer_that_waits_does_not_expire_and_its_session_restarts_with_the_answer() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    waiting = lab.join(one)
    for _ in range(2):
        lab.later(SESSION_MS / 2)
        assert lab.beat(two, 2) is ILLEGAL_GENERATION
    lab.later(SESSION_MS / 2)
    assert waiting.answer.generation_id == 3  # `two` did not join in time
    lab.later(SESSION_MS - 1)
    assert lab.beat(one, 3) is NONE
    lab.later(SESSION_MS)
    assert lab.state is PREPARE_FOR_REBALANCE


def test_topics_of_all_members_are_assigned_each_to_its_subscribers() -> None:
    lab = RewriteLab(t=2, u=2)
    one = lab.join(topics=("t",)).answer.consumer_id
    new = lab.join(topics=("u", "t", "u"))
    again = lab.join(one, topics=("t",))
    assert again.partitions == t(0)
    assert new.partitions == (("t", 1), ("u", 0), ("u", 1))
    assert lab.group.partition_counts == {"t": 2, "u": 2}


def test_joins_while_the_generation_is_written_wait_for_the_next_one() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.held = []
    first = lab.join(one)
    assert lab.state is REBALANCING
    new, other = lab.join(), lab.join()
    assert lab.beat(one, 1) is lab.commit(one, 1) is ILLEGAL_GENERATION
    lab.finish_write()
    assert first.answer.generation_id == 2
    assert new.waits
    assert other.waits
    assert lab.state is PREPARE_FOR_REBALANCE
    second = lab.join(one)
    lab.finish_write()
    assert [join.answer.generation_id for join in (second, new, other)] == [3, 3, 3]


def test_generation_membership_and_ownership_are_one_write_before_the_answers() -> None:
    lab = RewriteLab()
    lab.held = []
    join = lab.join()
    assert join.waits
    assert lab.stored is None
    lab.finish_write()
    stored = lab.stored
    assert stored is not None
    (consumer,) = stored.consumers
    assert (stored.generation_id, stored.strategy, stored.partition_counts) == (1, "range", {"t": 4})
    assert (consumer.consumer_id, consumer.partitions) == (join.answer.consumer_id, join.partitions)
    assert (consumer.host, consumer.topics, consumer.session_timeout_ms) == ("host", ("t",), SESSION_MS)


def test_a_first_generation_that_cannot_be_stored_leaves_no_group() -> None:
    lab = RewriteLab()
    lab.errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert lab.error_of_join() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert lab.coordinator.group("g") is None
    assert lab.state is READY
    assert lab.join().answer.generation_id == 1


def test_a_generation_that_cannot_be_stored_is_repeated_by_the_next_joins() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    lab.held, lab.errors = [], [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    new, first, second = lab.join(), lab.join(one), lab.join(two)
    late = lab.join()
    lab.finish_write()
    for join in (new, first, second):
        assert join.answer == JoinAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert late.waits
    assert lab.state is PREPARE_FOR_REBALANCE
    assert lab.group.generation_id == 2
    lab.join(one)
    lab.join(two)
    lab.finish_write()
    assert late.answer.generation_id == 3
    assert len(lab.group.consumers) == 3


def test_a_coordinator_that_was_demoted_without_its_knowledge_cannot_write() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.elect(2)
    lab.load(2)
    assert lab.join(one).answer.generation_id == 2
    stored = lab.stored
    lab.current = 1
    assert lab.beat(one, 1) is NONE
    assert lab.error_of_join(one) is NOT_COORDINATOR_FOR_GROUP
    assert lab.state is DOWN
    assert lab.stored == stored
    assert not lab.coordinator.coordinates(SHARD)


def test_a_demoted_coordinator_cannot_create_a_group_either() -> None:
    lab = RewriteLab()
    lab.elect(2)
    lab.load(2)
    lab.stable_group(1)
    lab.current = 1
    assert lab.error_of_join() is NOT_COORDINATOR_FOR_GROUP


def test_every_transition_is_in_the_table_and_others_are_bugs() -> None:
    assert set(TRANSITIONS) == set(CoordinatorState)
    for before in CoordinatorState:
        for after in CoordinatorState:
            machine = StateMachine(before)
            if after in TRANSITIONS[before]:
                machine.enter(after)
                assert machine.state is after
            else:
                with pytest.raises(AssertionError):
                    machine.enter(after)


def test_each_error_of_the_document_has_a_number_of_its_own() -> None:
    assert len(NAMES) == len(set(NAMES.values())) == 8
