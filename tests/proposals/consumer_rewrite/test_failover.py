"""The section "Co-ordinator failure during rebalance" of the rewrite design: a failure in each of the five phases."""

from fakebroker.proposals.consumer_rewrite.errors import (
    ILLEGAL_GENERATION,
    NONE,
    NOT_COORDINATOR_FOR_GROUP,
    UNKNOWN_CONSUMER,
)
from fakebroker.proposals.consumer_rewrite.states import DOWN, PREPARE_FOR_REBALANCE, READY, STEADY
from tests.support.coordinator.rewrite_lab import SESSION_MS, RewriteLab


def test_a_failover_without_a_rebalance_disturbs_nobody() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    lab.fail_over()
    assert lab.state is READY
    assert lab.beat(one, 2) is lab.beat(two, 2) is NONE
    assert lab.commit(one, 2) is NONE
    assert lab.state is STEADY
    assert lab.group.generation_id == 2
    assert lab.coordinators[1].state_of("g") is DOWN


def test_without_groups_the_new_coordinator_waits_for_the_first_consumer() -> None:
    lab = RewriteLab()
    lab.fail_over()
    assert lab.coordinator.queue.next_deadline() is None
    assert lab.join().answer.generation_id == 1


def test_sessions_start_at_the_new_coordinator() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    lab.later(SESSION_MS - 1)
    lab.fail_over()
    lab.later(SESSION_MS - 1)
    assert lab.beat(one, 2) is NONE
    lab.later(1)
    assert list(lab.group.expired) == [two]
    assert lab.beat(one, 2) is ILLEGAL_GENERATION


# Phase 1: the coordinator fails after it was notified of a change, before it has acted


def test_phase_1_changed_topics_are_found_by_comparing_them_with_the_ownership() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.topics["t"] = 5
    lab.fail_over()
    assert lab.state is PREPARE_FOR_REBALANCE
    assert lab.beat(one, 1) is ILLEGAL_GENERATION
    assert len(lab.join(one).partitions) == 5


def test_phase_1_a_subscribed_topic_that_was_created_is_found_too() -> None:
    lab = RewriteLab()
    lab.stable_group(1, topics=("t", "new"))
    lab.fail_over()
    assert lab.state is READY
    lab.topics["new"] = 1
    lab.fail_over()
    assert lab.state is PREPARE_FOR_REBALANCE


def test_phase_1_other_consumers_than_those_of_the_generation_start_a_rebalance() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.fail_over()
    lab.join()
    assert lab.beat(one, 1) is ILLEGAL_GENERATION


def test_phase_1_a_dead_consumer_is_noticed_by_its_session() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    lab.fail_over()
    lab.later(SESSION_MS / 2)
    assert lab.beat(one, 2) is NONE
    lab.later(SESSION_MS / 2)
    assert lab.beat(one, 2) is ILLEGAL_GENERATION
    assert lab.join(one).answer.generation_id == 3
    assert lab.beat(two, 2) is UNKNOWN_CONSUMER


# Phase 2: some consumers got IllegalGeneration


def test_phase_2_a_consumer_that_has_recovered_causes_no_rebalance() -> None:
    lab = RewriteLab()
    one, two, three = lab.stable_group(3)
    lab.later(SESSION_MS / 2)
    assert lab.beat(two, 3) is lab.beat(three, 3) is NONE
    lab.later(SESSION_MS / 2)
    assert lab.beat(two, 3) is ILLEGAL_GENERATION  # and crashes before its join
    lab.fail_over()
    assert lab.beat(one, 3) is lab.beat(three, 3) is NONE
    assert lab.beat(two, 3) is NONE
    assert lab.state is STEADY


def test_phase_2_a_join_by_id_or_with_an_empty_id_starts_a_rebalance_for_the_group() -> None:
    for empty in (False, True):
        lab = RewriteLab()
        one, two = lab.stable_group(2)
        lab.set_topic("t", 5)
        assert lab.beat(one, 2) is ILLEGAL_GENERATION
        lab.topics["t"] = 4
        lab.fail_over()
        assert lab.state is READY
        join = lab.join("" if empty else one)
        assert join.waits
        assert lab.beat(two, 2) is ILLEGAL_GENERATION


def test_phase_2_a_join_with_an_unknown_id_is_rejected() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.fail_over()
    assert lab.error_of_join("g-unknown") is UNKNOWN_CONSUMER
    assert lab.beat(one, 1) is NONE


# Phase 3: some consumers have sent JoinGroup


def test_phase_3_waiting_joins_are_refused_and_start_the_rebalance_again() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    old, new = lab.join(one), lab.join()
    lab.fail_over()
    assert old.answer.error is new.answer.error is NOT_COORDINATOR_FOR_GROUP
    assert lab.beat(two, 2) is NONE  # it does not know of the rebalance yet
    again, unnamed = lab.join(one), lab.join()
    assert lab.beat(two, 2) is ILLEGAL_GENERATION
    lab.join(two)
    assert again.answer.generation_id == unnamed.answer.generation_id == 3


# Phase 4: the generation is written, and no JoinGroup was answered


def test_phase_4_consumers_with_the_older_generation_join_again() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    first, second = lab.join(one), None
    lab.held = []
    second = lab.join(two)
    write = lab.held.pop()
    lab.coordinators[1].resign(0, lab.now_ms)  # while the write is on its way
    write()
    lab.held = None
    assert first.answer.error is second.answer.error is NOT_COORDINATOR_FOR_GROUP
    lab.elect(2)
    lab.load(2)
    assert lab.group.generation_id == 3
    assert lab.beat(one, 2) is lab.beat(two, 2) is ILLEGAL_GENERATION
    first = lab.join(one)
    assert first.waits
    assert lab.join(two).answer.generation_id == first.answer.generation_id == 4


def test_phase_4_a_write_that_was_lost_leaves_the_previous_generation() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.held = []
    lab.join(one)
    lab.held = None
    lab.fail_over()
    assert lab.beat(one, 1) is NONE


def test_phase_4_a_write_on_its_way_is_rejected_when_the_next_coordinator_has_read_the_registry() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.held = []
    old = lab.join(one)
    late_write = lab.held.pop()
    lab.held = None
    lab.elect(2)  # the former coordinator does not notice
    lab.load(2)
    late_write()
    assert old.answer.error is NOT_COORDINATOR_FOR_GROUP
    assert lab.group.generation_id == 1
    assert lab.beat(one, 1) is NONE
    assert lab.join(one).answer.generation_id == 2


def test_phase_4_a_write_on_its_way_is_rejected_when_its_coordinator_was_elected_again() -> None:
    lab = RewriteLab()
    lab.held = []
    old = lab.join()
    late_write = lab.held.pop()
    lab.held = None
    lab.fail_over()
    lab.fail_over()
    assert lab.current == 1
    late_write()
    assert old.answer.error is NOT_COORDINATOR_FOR_GROUP
    assert lab.stored is None
    new = lab.join()
    assert new.answer.generation_id == 1
    assert lab.beat(new.answer.consumer_id, 1) is NONE


def test_phase_4_a_new_consumer_that_did_not_get_its_id_expires() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    new = lab.join()
    lab.held = []
    lab.join(one)
    write = lab.held.pop()
    lab.coordinators[1].resign(0, lab.now_ms)
    write()
    lab.held = None
    assert new.answer.error is NOT_COORDINATOR_FOR_GROUP
    lab.elect(2)
    lab.load(2)
    assert len(lab.group.consumers) == 2
    new, old = lab.join(), lab.join(one)
    lab.later(SESSION_MS - 1)
    assert new.waits  # for the id that was never told
    lab.later(1)
    assert new.answer.generation_id == old.answer.generation_id == 3
    assert len(lab.group.consumers) == 2


# Phase 5: some JoinGroups were answered


def test_phase_5_consumers_with_an_answer_go_on_and_others_start_a_rebalance() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    lab.join(one)
    lab.join(two)
    lab.fail_over()
    assert lab.beat(one, 3) is NONE
    again = lab.join(two)  # its answer was lost
    assert lab.beat(one, 3) is ILLEGAL_GENERATION
    assert lab.join(one).answer.generation_id == again.answer.generation_id == 4


def test_the_coordinator_may_come_back() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.fail_over()
    assert lab.join(one).answer.generation_id == 2
    lab.fail_over()
    assert lab.current == 1
    assert lab.beat(one, 2) is NONE
    assert lab.join(one).answer.generation_id == 3


def test_groups_are_kept_apart_by_shard_and_name() -> None:
    lab = RewriteLab()
    names = ["a/b", "a%2Fb", "a", "%", "/"]
    ids = [lab.join(group_id=name).answer.consumer_id for name in names]
    assert ids[:2] == ["a/b-id1", "a%2Fb-id2"]
    lab.fail_over()
    for name, consumer_id in zip(names, ids, strict=True):
        assert lab.coordinator.heartbeat(name, 1, consumer_id, lab.now_ms) is NONE
