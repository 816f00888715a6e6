"""Heartbeats, commits, slow consumers and topic changes in the rewrite design; "Slow consumers" by sentences."""

import pytest

from fakebroker.proposals.consumer_rewrite.errors import (
    COORDINATOR_STARTUP_NOT_COMPLETE,
    ILLEGAL_GENERATION,
    NONE,
    NOT_COORDINATOR_FOR_GROUP,
    UNKNOWN_CONSUMER,
)
from fakebroker.proposals.consumer_rewrite.states import PREPARE_FOR_REBALANCE, READY, REBALANCING, STEADY
from fakebroker.topic_partition import TopicPartition
from tests.support.coordinator.rewrite_lab import SESSION_MS, RewriteLab


def expire_first_of(size: int, lab: RewriteLab) -> list[str]:
    """Let the first consumer of a new group expire; the others have sent heartbeats before."""
    ids = lab.stable_group(size)
    lab.later(SESSION_MS / 2)
    for each in ids[1:]:
        assert lab.beat(each, size) is NONE
    lab.later(SESSION_MS / 2)
    assert lab.state is PREPARE_FOR_REBALANCE
    return ids


# Heartbeats and commits


def test_heartbeats_keep_a_session_alive() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    for _ in range(3):
        lab.later(SESSION_MS - 1)
        assert lab.beat(one, 1) is NONE
    lab.later(SESSION_MS)
    assert lab.state is PREPARE_FOR_REBALANCE


def test_commits_do_not_keep_a_session_alive() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.later(SESSION_MS - 1)
    assert lab.commit(one, 1) is NONE
    lab.later(1)
    assert lab.state is PREPARE_FOR_REBALANCE


def test_consumers_may_have_different_session_timeouts() -> None:
    lab = RewriteLab()
    short = lab.join(session_ms=1_000).answer.consumer_id
    long = lab.join(session_ms=5_000)
    lab.join(short, session_ms=1_000)
    lab.later(1_000)
    assert list(lab.group.expired) == [short]
    assert list(lab.group.consumers) == [long.answer.consumer_id]


@pytest.mark.parametrize(("generation_id", "error"), [(-1, True), (1, True), (2, False), (3, True)])
def test_heartbeats_and_commits_need_the_present_generation(generation_id: int, error: bool) -> None:
    lab = RewriteLab()
    one, _ = lab.stable_group(2)
    expected = ILLEGAL_GENERATION if error else NONE
    assert lab.beat(one, generation_id) is lab.commit(one, generation_id) is expected
    assert lab.state is STEADY  # the rebalance starts with the JoinGroup


def test_an_unknown_consumer_is_told_so_before_its_generation_is_checked() -> None:
    lab = RewriteLab()
    assert lab.beat("g-id1", 1) is lab.commit("g-id1", 1) is UNKNOWN_CONSUMER
    lab.stable_group(1)
    assert lab.beat("g-id2", 7) is lab.commit("g-id2", 7) is UNKNOWN_CONSUMER
    assert lab.beat("", -1) is lab.commit("", -1) is UNKNOWN_CONSUMER


def test_consumers_without_group_management_may_commit_for_a_group_that_does_not_exist() -> None:
    assert RewriteLab().commit("", -1) is NONE


def test_commits_are_accepted_during_a_rebalance_until_the_generation_is_incremented() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    new = lab.join()
    assert lab.beat(one, 1) is ILLEGAL_GENERATION
    assert lab.commit(one, 1) is NONE
    lab.held = []
    lab.join(one)
    assert lab.state is REBALANCING
    assert lab.commit(one, 1) is lab.commit(one, 2) is ILLEGAL_GENERATION
    lab.finish_write()
    assert lab.commit(one, 2) is lab.commit(new.answer.consumer_id, 2) is NONE
    assert lab.commit(one, 1) is ILLEGAL_GENERATION


def test_the_answers_before_the_groups_are_loaded_and_after_the_coordinator_has_moved() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.current = 2
    assert lab.beat(one, 1) is lab.commit(one, 1) is NOT_COORDINATOR_FOR_GROUP
    lab.elect(2)
    assert lab.beat(one, 1) is lab.commit(one, 1) is COORDINATOR_STARTUP_NOT_COMPLETE
    lab.load(2)
    assert lab.beat(one, 1) is lab.commit(one, 1) is NONE


def test_a_consumer_that_pauses_before_its_join_is_left_out_of_the_generation() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    new = lab.join()
    assert lab.beat(one, 2) is lab.beat(two, 2) is ILLEGAL_GENERATION
    again = lab.join(one)
    lab.later(SESSION_MS)
    assert again.answer.generation_id == new.answer.generation_id == 3
    assert two not in lab.group


def test_a_consumer_that_pauses_after_its_join_has_a_session_timeout_from_the_answer_on() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    first = lab.join(one)
    lab.later(SESSION_MS / 2)
    lab.join(two)
    assert not first.waits
    lab.later(SESSION_MS - 1)
    assert lab.beat(one, 3) is NONE


def test_heartbeats_after_the_first_one_do_not_defer_a_rebalance() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    new = lab.join(session_ms=1_000)
    for _ in range(3):
        assert lab.beat(one, 1) is ILLEGAL_GENERATION
        lab.later(SESSION_MS / 3 + 1)
    assert new.answer.generation_id == 2


# Slow consumers


def test_a_consumer_without_heartbeats_is_marked_dead_and_its_connection_is_broken() -> None:
    lab = RewriteLab()
    one = lab.join(connection="socket 1").answer.consumer_id
    lab.later(SESSION_MS - 1)
    assert lab.beat(one, 1, connection="socket 2") is NONE
    lab.later(SESSION_MS)
    assert lab.broken == ["socket 2"]
    assert list(lab.group.expired) == [one]


def test_the_connection_on_which_a_join_waits_is_not_broken() -> None:
    lab = RewriteLab()
    lab.join(connection="socket")
    unnamed = lab.join(connection="socket")
    lab.later(SESSION_MS)
    assert lab.broken == []
    assert unnamed.answer.generation_id == 2


def test_the_rest_of_the_consumers_get_illegal_generation() -> None:
    lab = RewriteLab()
    _, two, three = expire_first_of(3, lab)
    assert lab.beat(two, 3) is lab.beat(three, 3) is ILLEGAL_GENERATION


def test_a_late_heartbeat_before_that_of_any_other_consumer_cancels_the_rebalance() -> None:
    lab = RewriteLab()
    one, two, three = expire_first_of(3, lab)
    assert lab.beat(one, 3, connection="new socket") is NONE
    assert lab.state is STEADY
    assert lab.beat(two, 3) is lab.beat(three, 3) is lab.beat(one, 3) is NONE
    assert lab.group.consumers[one].connection == "new socket"
    lab.later(SESSION_MS - 1)
    assert lab.state is STEADY  # its session has started again


def test_a_late_heartbeat_after_that_of_another_consumer_gets_illegal_generation_as_well() -> None:
    lab = RewriteLab()
    one, two, _ = expire_first_of(3, lab)
    assert lab.beat(two, 3) is ILLEGAL_GENERATION
    assert lab.beat(one, 3) is ILLEGAL_GENERATION
    assert lab.state is PREPARE_FOR_REBALANCE


def test_a_late_heartbeat_of_another_generation_or_after_a_join_cancels_nothing() -> None:
    lab = RewriteLab()
    one, two = expire_first_of(2, lab)
    assert lab.beat(one, 1) is ILLEGAL_GENERATION
    lab.join()
    assert lab.beat(one, 2) is ILLEGAL_GENERATION
    assert lab.join(two).answer.generation_id == 3


def test_a_late_heartbeat_does_not_cancel_a_rebalance_with_another_cause() -> None:
    lab = RewriteLab()
    one, _ = expire_first_of(2, lab)
    lab.set_topic("t", 5)
    assert lab.beat(one, 2) is ILLEGAL_GENERATION


def test_a_rebalance_is_canceled_only_when_all_expired_consumers_have_returned() -> None:
    lab = RewriteLab()
    ids = lab.stable_group(3)
    lab.later(1)
    assert lab.beat(ids[2], 3) is NONE
    lab.later(SESSION_MS - 1)
    assert list(lab.group.expired) == ids[:2]
    assert lab.beat(ids[0], 3) is NONE
    assert list(lab.group.expired) == ids[1:2]
    assert lab.state is PREPARE_FOR_REBALANCE
    assert lab.beat(ids[1], 3) is NONE
    assert lab.state is STEADY
    assert [lab.beat(each, 3) for each in ids] == [NONE] * 3


def test_a_consumer_that_has_returned_is_one_of_the_rest_for_those_that_have_not() -> None:
    lab = RewriteLab()
    ids = lab.stable_group(2)
    lab.later(SESSION_MS)
    assert list(lab.group.expired) == ids
    assert lab.beat(ids[0], 2) is NONE
    assert lab.beat(ids[0], 2) is ILLEGAL_GENERATION
    assert lab.beat(ids[1], 2) is ILLEGAL_GENERATION
    assert lab.join(ids[0]).answer.generation_id == 3


def test_a_rebalance_of_a_group_without_consumers_waits_for_one() -> None:
    lab = RewriteLab()
    (one,) = lab.stable_group(1)
    lab.later(10 * SESSION_MS)
    assert lab.state is PREPARE_FOR_REBALANCE
    assert lab.coordinator.queue.next_deadline() is None
    assert lab.beat(one, 1) is NONE
    assert lab.state is STEADY
    lab.later(SESSION_MS)
    assert lab.join().answer.generation_id == 2
    assert lab.beat(one, 1) is UNKNOWN_CONSUMER


def test_the_rebalance_is_complete_when_the_other_consumers_have_joined() -> None:
    lab = RewriteLab()
    one, two, three = expire_first_of(3, lab)
    lab.join(two)
    assert lab.join(three).answer.generation_id == 4
    assert lab.beat(one, 3) is lab.commit(one, 3) is lab.error_of_join(one) is UNKNOWN_CONSUMER


def test_a_slow_consumer_may_commit_until_the_rebalance_is_complete() -> None:
    lab = RewriteLab()
    one, two = expire_first_of(2, lab)
    assert lab.commit(one, 2) is NONE
    lab.join(two)
    assert lab.commit(one, 2) is UNKNOWN_CONSUMER


def test_the_join_of_a_slow_consumer_is_included_if_the_rebalance_is_not_complete() -> None:
    lab = RewriteLab()
    one, two, three = expire_first_of(3, lab)
    slow = lab.join(one)
    first = lab.join(two)
    assert slow.waits
    lab.join(three)
    assert slow.answer.generation_id == first.answer.generation_id == 4
    assert slow.answer.consumer_id == one


def test_a_join_without_an_id_by_a_slow_consumer_is_included_too() -> None:
    lab = RewriteLab()
    _, two = expire_first_of(2, lab)
    slow = lab.join()
    assert slow.waits
    lab.join(two)
    assert slow.answer.generation_id == 3


def test_the_join_of_a_slow_consumer_after_the_others_were_complete_starts_a_rebalance_right_after() -> None:
    lab = RewriteLab()
    one, two = expire_first_of(2, lab)
    lab.held = []
    other = lab.join(two)
    slow = lab.join(one)
    lab.finish_write()
    assert other.answer.generation_id == 3
    assert other.partitions == tuple(("t", each) for each in range(4))
    assert lab.state is PREPARE_FOR_REBALANCE
    assert slow.waits
    other = lab.join(two)
    lab.finish_write()
    assert slow.answer.generation_id == other.answer.generation_id == 4
    assert slow.answer.consumer_id == one


def test_the_join_that_a_slow_consumer_sends_again_replaces_the_first_one() -> None:
    lab = RewriteLab()
    one, two = expire_first_of(2, lab)
    lab.held = []
    lab.join(two)
    first, second = lab.join(one), lab.join(one)
    lab.finish_write()
    assert first.answer.error is ILLEGAL_GENERATION
    assert second.waits
    lab.join(two)
    lab.finish_write()
    assert second.answer.generation_id == 4


# Topics and partitions


def owned(lab: RewriteLab) -> list[TopicPartition]:
    return sorted(each for consumer in lab.group.consumers.values() for each in consumer.partitions)


def test_new_partitions_start_a_rebalance_of_the_groups_that_subscribe() -> None:
    lab = RewriteLab(t=1, u=1)
    (one,) = lab.stable_group(1)
    other = lab.join(topics=("u",), group_id="other").answer
    lab.set_topic("t", 2)
    assert lab.beat(one, 1) is ILLEGAL_GENERATION
    assert lab.coordinator.heartbeat("other", 1, other.consumer_id, lab.now_ms) is NONE
    assert lab.join(one).partitions == (("t", 0), ("t", 1))


def test_topics_may_be_subscribed_before_they_are_created() -> None:
    lab = RewriteLab(t=1)
    (one,) = lab.stable_group(1, topics=("t", "new"))
    assert owned(lab) == [("t", 0)]
    lab.set_topic("unrelated", 3)
    assert lab.state is STEADY
    lab.set_topic("new", 1)
    assert lab.state is PREPARE_FOR_REBALANCE
    lab.join(one, topics=("t", "new"))
    assert owned(lab) == [("new", 0), ("t", 0)]
    lab.set_topic("new", 0)  # deleted
    lab.join(one, topics=("t", "new"))
    assert owned(lab) == [("t", 0)]


def test_a_topic_that_nobody_subscribes_to_any_more_starts_no_rebalance() -> None:
    lab = RewriteLab(t=1, u=1)
    (one,) = lab.stable_group(1, topics=("t", "u"))
    lab.join(one, topics=("u",))
    lab.set_topic("t", 2)
    assert lab.state is STEADY
    lab.set_topic("u", 2)
    assert lab.state is PREPARE_FOR_REBALANCE


def test_a_change_while_the_generation_is_written_starts_a_rebalance_right_after() -> None:
    lab = RewriteLab(t=1)
    lab.held = []
    join = lab.join()
    lab.set_topic("t", 2)
    assert lab.state is REBALANCING
    lab.finish_write()
    assert join.partitions == (("t", 0),)
    assert lab.state is PREPARE_FOR_REBALANCE


def test_a_change_that_is_undone_in_time_costs_nothing() -> None:
    lab = RewriteLab(t=1)
    (one,) = lab.stable_group(1)
    lab.topics["t"] = 2
    lab.set_topic("t", 1)
    assert lab.beat(one, 1) is NONE


def test_ready_lasts_until_all_consumers_of_the_generation_are_connected() -> None:
    lab = RewriteLab()
    one, two = lab.stable_group(2)
    lab.fail_over()
    assert lab.state is READY
    assert lab.beat(one, 2) is lab.beat(one, 2) is NONE
    assert lab.beat(two, 1) is ILLEGAL_GENERATION
    assert lab.state is READY
    assert lab.beat(two, 2) is NONE
    assert lab.state is STEADY
