"""Partitions move from member to member: Kafka's example, timers, subscriptions, assignors, topics and failovers."""

import pytest
from msgspec.structs import replace

from fakebroker.coordinator.consumer.assignors import Assignment, GroupSpec
from fakebroker.coordinator.consumer.heartbeat import next_assignment
from fakebroker.coordinator.consumer.member import FREE, ConsumerGroupMember, HeartbeatError
from fakebroker.coordinator.consumer.states import (
    STABLE,
    TRANSITIONS,
    UNKNOWN,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    MemberState,
)
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tests.support.coordinator.consumer_group_harness import (
    REBALANCE_MS,
    SESSION_MS,
    ConsumerGroupHarness,
    FakeTopics,
)
from tests.support.subtests import subtest_for_each

TOPIC = b"t" * 16

# The state, epoch, assigned and pending partitions of a member whose target in epoch 5 is {0, 1}; whether partition 1
# belongs to another member. Then the partitions that the member reports, and the expected state, epoch, assigned and
# pending partitions.
Row = tuple[MemberState, int, set[int], set[int], bool, set[int] | None, MemberState, int, set[int], set[int]]
STEPS: list[Row] = [
    (STABLE, 5, {0, 1}, set(), False, None, STABLE, 5, {0, 1}, set()),
    (STABLE, 5, {0, 2}, set(), False, None, STABLE, 5, {0, 2}, set()),
    (STABLE, 4, {0, 1}, set(), False, None, STABLE, 5, {0, 1}, set()),
    (STABLE, 4, {0}, set(), False, None, STABLE, 5, {0, 1}, set()),
    (STABLE, 4, {0}, set(), True, None, UNRELEASED_PARTITIONS, 5, {0}, set()),
    (STABLE, 0, set(), set(), True, set(), UNRELEASED_PARTITIONS, 5, {0}, set()),
    (STABLE, 4, {0, 2}, set(), False, None, UNREVOKED_PARTITIONS, 4, {0}, {2}),
    (STABLE, 4, {0, 2}, set(), False, {0, 2}, UNREVOKED_PARTITIONS, 4, {0}, {2}),
    (STABLE, 4, {0, 2}, set(), False, {0}, STABLE, 5, {0, 1}, set()),
    (UNREVOKED_PARTITIONS, 3, {0}, {2}, False, None, UNREVOKED_PARTITIONS, 3, {0}, {2}),
    (UNREVOKED_PARTITIONS, 3, {0}, {2}, False, {0, 2}, UNREVOKED_PARTITIONS, 3, {0}, {2}),
    (UNREVOKED_PARTITIONS, 3, {0}, {2}, False, {0}, STABLE, 5, {0, 1}, set()),
    (UNREVOKED_PARTITIONS, 3, {0, 3}, {2}, False, {0, 3}, UNREVOKED_PARTITIONS, 3, {0}, {3}),
    (UNREVOKED_PARTITIONS, 5, {0, 3}, {2}, False, {0, 3}, UNREVOKED_PARTITIONS, 5, {0}, {3}),
    (UNREVOKED_PARTITIONS, 3, {0}, {1}, True, {0}, STABLE, 5, {0, 1}, set()),
    (UNREVOKED_PARTITIONS, 3, {0}, {2}, True, {0}, UNRELEASED_PARTITIONS, 5, {0}, set()),
    (UNRELEASED_PARTITIONS, 5, {0}, set(), True, None, UNRELEASED_PARTITIONS, 5, {0}, set()),
    (UNRELEASED_PARTITIONS, 5, {0}, set(), False, None, STABLE, 5, {0, 1}, set()),
    (UNRELEASED_PARTITIONS, 4, {0, 2}, set(), False, None, UNREVOKED_PARTITIONS, 4, {0}, {2}),
    (UNKNOWN, 3, {0, 2}, set(), False, set(), STABLE, 5, {0, 1}, set()),
]


def sets(indexes: set[int]) -> dict[bytes, frozenset[int]]:
    return {TOPIC: frozenset(indexes)} if indexes else {}


def member(state: MemberState, epoch: int, assigned: set[int], pending: set[int]) -> ConsumerGroupMember:
    return ConsumerGroupMember(
        member_id="m",
        state=state,
        member_epoch=epoch,
        previous_epoch=1,
        assigned=sets(assigned),
        pending_revocation=sets(pending),
    )


def after_heartbeat(
    before: ConsumerGroupMember,
    target: set[int],
    owned: set[int] | None,
    *,
    taken: bool = False,
    subscribed: bool = True,
    changed: bool = False,
    release: tuple[int, int] = (4, 4),
) -> ConsumerGroupMember:
    return next_assignment(
        before,
        target=sets(target),
        target_epoch=5,
        subscribed_topic_ids={TOPIC} if subscribed else set(),
        subscription_changed=changed,
        owned=None if owned is None else sets(owned),
        epoch_of=lambda topic_id, index: 3 if taken and index == 1 else FREE,
        release=release,
    )


@subtest_for_each(
    ("state", "epoch", "assigned", "pending", "taken", "owned", "state_after", "epoch_after", "kept", "revoked"), STEPS
)
def test_one_step_of_a_member(
    state: MemberState,
    epoch: int,
    assigned: set[int],
    pending: set[int],
    taken: bool,
    owned: set[int] | None,
    state_after: MemberState,
    epoch_after: int,
    kept: set[int],
    revoked: set[int],
) -> None:
    before = member(state, epoch, assigned, pending)
    after = after_heartbeat(before, {0, 1}, owned, taken=taken)
    assert (after.state, after.member_epoch) == (state_after, epoch_after)
    assert (after.assigned, after.pending_revocation) == (sets(kept), sets(revoked))
    assert after.previous_epoch == (1 if after == before else epoch)


def test_before_4_2_giving_up_partitions_raises_the_epoch() -> None:
    before = member(UNREVOKED_PARTITIONS, 3, {0, 3}, {2})
    after = after_heartbeat(before, {0, 1}, {0, 3}, release=(4, 1))
    assert (after.state, after.member_epoch) == (UNREVOKED_PARTITIONS, 4)


def test_a_member_in_an_unknown_state_has_to_give_up_everything() -> None:
    for owned in (None, {0}):
        with pytest.raises(HeartbeatError) as raised:
            after_heartbeat(member(UNKNOWN, 3, {0}, set()), {0}, owned)
        assert raised.value.error is ErrorCode.FENCED_MEMBER_EPOCH
    with pytest.raises(RuntimeError, match="no transition from STABLE to UNKNOWN"):
        member(STABLE, 1, set(), set()).moved_to(UNKNOWN, 1, {}, {})
    assert TRANSITIONS.keys() == set(MemberState)


def test_topics_without_subscription_are_given_up_before_there_is_a_new_target() -> None:
    for state, pending in ((STABLE, set()), (UNREVOKED_PARTITIONS, {2})):
        before = member(state, 5, {0, 1}, pending)
        after = after_heartbeat(before, {0, 1}, None, subscribed=False, changed=True)
        assert (after.state, after.member_epoch, after.previous_epoch) == (UNREVOKED_PARTITIONS, 5, 5)
        before_4_3 = after_heartbeat(before, {0, 1}, None, subscribed=False, changed=True, release=(4, 2))
        assert before_4_3 == replace(after, previous_epoch=1)
        assert (after.assigned, after.pending_revocation) == ({}, sets({0, 1} | pending))
        assert after_heartbeat(before, {0, 1}, None, subscribed=False, changed=True, release=(4, 0)) == before
        assert after_heartbeat(before, {0, 1}, None, changed=True) == before
    given_up = after_heartbeat(member(STABLE, 5, {0, 1}, set()), {0, 1}, set(), subscribed=False, changed=True)
    assert (given_up.state, given_up.assigned, given_up.member_epoch) == (STABLE, {}, 5)
    assert after_heartbeat(member(STABLE, 4, {0}, set()), {0, 1}, set(), subscribed=False).assigned == {}


def test_the_example_of_the_kip() -> None:
    harness = ConsumerGroupHarness(FakeTopics(orders=6, news=3))
    names = ("orders", "news")
    for member_id in ("a", "b"):
        harness.send(member_id, subscribed_topic_names=names)
    harness.settle()
    before = {each: harness.assigned(each) for each in "ab"}
    assert harness.group.group_epoch == 3

    joined = harness.send("c", subscribed_topic_names=names)
    assert (joined.member_epoch, harness.assignment(joined)) == (4, {})
    assert harness.member("c").state is UNRELEASED_PARTITIONS
    shrunk = harness.stay("a")
    assert (shrunk.member_epoch, harness.member("a").state) == (3, UNREVOKED_PARTITIONS)
    kept = harness.assignment(shrunk)
    assert kept is not None
    assert sum(map(len, kept.values())) == 3
    assert harness.stay("c").assignment is None, "nothing was released"
    assert harness.stay("a", before["a"]).assignment is None, "a has not confirmed"

    confirmed = harness.stay("a", kept)
    assert (confirmed.member_epoch, confirmed.assignment) == (4, None)
    assert harness.member("a").state is STABLE
    released = harness.stay("c")
    assert harness.assignment(released) == harness.assigned("c") != {}
    assert harness.group.state.value == "Reconciling"
    harness.stay("b")
    harness.settle()
    assert {sum(map(len, harness.assigned(each).values())) for each in "abc"} == {3}


def test_the_records_of_a_join_are_in_the_order_of_kafka() -> None:
    harness = ConsumerGroupHarness()
    result = harness.send()
    assert result.member_id == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert [type(record.key) for record in harness.keyed(0)] == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]
    harness.send(result.member_id or "", 2)
    assert len(harness.batches) == 1, "a heartbeat without news is not stored"
    harness.send(result.member_id or "", -1)
    assert [type(record.key) for record in harness.keyed(1)] == [
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
    ]


def test_an_assignment_is_sent_when_it_changes_and_in_answer_to_full_requests() -> None:
    harness = ConsumerGroupHarness()
    everything = {"orders": set(range(6))}
    assert harness.assignment(harness.send("a")) == everything
    assert harness.stay("a").assignment is None
    assert harness.stay("a", everything).assignment is None
    full = harness.stay("a", everything, rebalance_timeout_ms=1, subscribed_topic_names=("orders",))
    assert harness.assignment(full) == everything
    assert harness.assignment(harness.send("b", subscribed_topic_names=())) == {}


def test_members_leave() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    harness.send("b")
    left = harness.send("a", -1)
    assert left.error_code is ErrorCode.NONE
    assert (left.member_id, left.member_epoch, left.heartbeat_interval_ms) == ("a", -1, 0)
    assert harness.group.state.value == "Assigning"
    harness.settle("b")
    assert harness.assigned("b") == {"orders": set(range(6))}
    harness.send("b", -1)
    assert (harness.group.state.value, harness.group.group_epoch) == ("Empty", 5)
    assert harness.group.deadline_ms > harness.now_ms
    harness.advance(10 * SESSION_MS)


def test_a_silent_member_is_removed_after_its_session() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    harness.advance(SESSION_MS - 1)
    harness.send("b")
    harness.advance(1)
    assert list(harness.group.members) == ["b"]
    result = harness.send("a", 1)
    assert result.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    harness.settle("b")
    assert harness.assigned("b") == {"orders": set(range(6))}


def test_a_failed_append_changes_nothing_and_an_expired_session_is_tried_again() -> None:
    harness = ConsumerGroupHarness()
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.send("a").error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.coordinator.groups.consumer.get("g") is None
    harness.append_error = None
    harness.send("a")
    harness.append_error = ErrorCode.NOT_COORDINATOR
    harness.advance(SESSION_MS)
    assert "a" in harness.group.members
    harness.append_error = None
    harness.advance(500)
    assert "a" not in harness.group.members


def test_a_member_that_does_not_give_up_partitions_is_removed_after_the_rebalance_timeout() -> None:
    harness = ConsumerGroupHarness(session_timeout_ms=1_000_000)
    harness.send("a")
    harness.send("b")
    harness.stay("a")
    assert harness.member("a").state is UNREVOKED_PARTITIONS
    harness.advance(REBALANCE_MS - 1)
    assert "a" in harness.group.members
    harness.fail_over()  # The timer starts again.
    harness.advance(REBALANCE_MS - 1)
    assert "a" in harness.group.members
    harness.advance(1)
    assert list(harness.group.members) == ["b"]


def test_a_rebalance_timer_ends_when_the_member_has_given_up_its_partitions() -> None:
    harness = ConsumerGroupHarness(session_timeout_ms=1_000_000)
    harness.send("a")
    harness.send("b")
    harness.stay("a")
    harness.settle()
    harness.advance(2 * REBALANCE_MS)
    assert list(harness.group.members) == ["a", "b"]


def test_a_changed_subscription_starts_an_epoch_but_a_rack_does_not() -> None:
    harness = ConsumerGroupHarness(FakeTopics(orders=6, news=2))
    harness.send("a")
    harness.stay("a", rack_id="r", rebalance_timeout_ms=7)
    assert harness.group.group_epoch == 2
    assert (harness.member("a").rack_id, harness.member("a").rebalance_timeout_ms) == ("r", 7)
    harness.stay("a", subscribed_topic_names=("news", "orders"))
    assert harness.group.group_epoch == 3
    harness.settle()
    assert harness.assigned("a") == {"orders": set(range(6)), "news": {0, 1}}
    harness.stay("a", subscribed_topic_names=("news",))
    assert harness.pending("a") == {"orders": set(range(6))}
    harness.settle()
    assert harness.assigned("a") == {"news": {0, 1}}


def test_changes_of_subscribed_topics_start_an_epoch() -> None:
    harness = ConsumerGroupHarness(FakeTopics(orders=2))
    harness.send("a", subscribed_topic_names=("orders", "later"))
    harness.topics.create("other", 1)
    harness.stay("a")
    assert harness.group.group_epoch == 2
    harness.topics.grow("orders", 3)
    harness.topics.create("later", 1)
    harness.stay("a")
    assert harness.group.group_epoch == 3, "one heartbeat bumps once"
    assert harness.assigned("a") == {"orders": {0, 1, 2}, "later": {0}}
    harness.topics.delete("orders")
    harness.stay("a")
    harness.settle()
    assert (harness.assigned("a"), harness.group.group_epoch) == ({"later": {0}}, 4)


def test_the_first_heartbeat_after_loading_looks_for_changes_of_topics() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    harness.topics.grow("orders", 7)
    harness.fail_over()
    harness.stay("a")
    assert harness.assigned("a") == {"orders": set(range(7))}
    harness.fail_over()
    harness.stay("a")
    assert harness.group.group_epoch == 3


def test_the_assignor_with_the_most_votes_runs() -> None:
    calls: list[str] = []

    def named(name: str) -> object:
        def assign(spec: GroupSpec) -> dict[str, Assignment]:
            calls.append(name)
            return {member_id: {} for member_id in spec.members}

        return assign

    harness = ConsumerGroupHarness(assignors={name: named(name) for name in ("uniform", "range")})
    harness.send("a")
    harness.send("b", server_assignor="range")
    harness.send("c", server_assignor="uniform")
    harness.send("d", server_assignor="range")
    assert calls == ["uniform", "range", "uniform", "range"]
    calls.clear()
    for member_id in ("b", "d"):  # A member that changes its vote and its subscription votes once.
        harness.stay(member_id, server_assignor="uniform", subscribed_topic_names=())
    harness.stay("c", server_assignor="range", subscribed_topic_names=())
    assert calls == ["uniform", "uniform", "uniform"]
    for member_id in ("b", "d"):
        harness.stay(member_id, server_assignor="range", subscribed_topic_names=("orders",))
    assert calls[3:] == ["range", "range"]


def test_groups_have_their_own_timeouts() -> None:
    own = {"consumer.session.timeout.ms": 50_000, "consumer.heartbeat.interval.ms": 7_000}
    harness = ConsumerGroupHarness(group_config=lambda group_id, name: own.get(name))
    assert harness.send("a").heartbeat_interval_ms == 7_000
    harness.advance(49_999)
    assert "a" in harness.group.members
    harness.advance(1)
    assert "a" not in harness.group.members
