"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in consumer groups: checks in order, timers."""

from typing import Any

from fakebroker.coordinator.consumer.config import MigrationPolicy
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from tests.support.coordinator.commits import commit, commit_in_transaction
from tests.support.coordinator.consumer_group_harness import GROUP, SESSION_MS, FakeTopics
from tests.support.coordinator.mixed_group_harness import (
    CLASSIC_REBALANCE_MS,
    CLASSIC_SESSION_MS,
    MixedGroupHarness,
    places,
)
from tests.support.subtests import subtest_for_each

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
FENCED, ILLEGAL = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION
INCONSISTENT, REBALANCE = ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.REBALANCE_IN_PROGRESS
SUBSCRIPTION = encode_subscription(["orders"])


def mixed(**config: Any) -> tuple[MixedGroupHarness, str]:
    """Return a stable group of "a", which uses the consumer protocol, and a classic member, and the latter's id."""
    harness = MixedGroupHarness(**config)
    harness.send("a")
    joined = harness.joined()
    assert places(harness.sync(joined.member_id, joined.generation_id)) == {}, "nothing is free yet"
    harness.settle()
    assert len(harness.assigned(joined.member_id)["orders"]) == 3
    return harness, joined.member_id


def static() -> tuple[MixedGroupHarness, str]:
    """Return a group of "a" and a static classic member "i", and the latter's id."""
    harness = MixedGroupHarness()
    harness.send("a")
    return harness, harness.joined(instance_id="i").member_id


# Fields of a JoinGroup to a full group of "a" and a classic member, and the error. Each also has the faults of later
# checks.
REJECTED: list[tuple[str, dict[str, Any], ErrorCode]] = [
    ("", {"session_timeout_ms": 1, "protocols": ()}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ("", {"protocols": ()}, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ("unknown", {"protocols": ()}, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ("member", {"protocol_type": "connect", "protocols": (("range", b""),)}, INCONSISTENT),
    ("member", {"protocols": ()}, INCONSISTENT),
    ("member", {"protocols": (("sticky", b""),)}, INCONSISTENT),
    ("member", {"protocols": (("range", b""),), "instance_id": "i"}, UNKNOWN),
    ("member", {"protocols": (("range", b"\xff\xff"),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ("member", {"protocols": (("range", b"\0\3\0\0"),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
]


@subtest_for_each(("member_id", "fields", "error"), REJECTED)
def test_rejected_joins(member_id: str, fields: dict[str, Any], error: ErrorCode) -> None:
    harness, classic = mixed(max_size=2)
    log, before = len(harness.log), dict(harness.group.members)
    answer = harness.join(classic if member_id == "member" else member_id, **fields)
    assert answer is not None
    assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (error, -1, "", [])
    assert answer.member_id == (member_id if error is ErrorCode.INVALID_SESSION_TIMEOUT else "")
    assert (len(harness.log), harness.group.members) == (log, before)


def test_a_member_without_id_gets_one_that_the_group_does_not_remember() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    answer = harness.join(two_step=True, protocols=(("range", b""),))
    assert answer is not None
    assert (answer.error_code, len(answer.member_id)) == (ErrorCode.MEMBER_ID_REQUIRED, 22)
    assert [*harness.group.members] == ["a"]
    assert harness.joined("of a client's choice", two_step=True).member_id == "of a client's choice"
    assert len(harness.joined(instance_id="i", two_step=True).member_id) == 22, "static members do not need one"


def test_a_join_is_answered_without_a_leader() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    protocols = ("range", SUBSCRIPTION), ("roundrobin", b"not read")
    joined = harness.joined("m", protocols=protocols)
    assert (joined.generation_id, joined.protocol_type, joined.protocol_name) == (3, "consumer", "range")
    assert (joined.leader, joined.members, joined.skip_assignment) == ("", [], False)
    assert (harness.group.group_epoch, harness.group.assignment_epoch) == (3, 3)
    member = harness.member("m")
    assert member.classic is not None
    assert (member.classic.session_timeout_ms, member.classic.protocols) == (CLASSIC_SESSION_MS, protocols)
    assert (member.client_id, member.rebalance_timeout_ms) == ("classic", CLASSIC_REBALANCE_MS)
    # Each classic member has to support a protocol that all others support.
    refused = harness.join("n", protocols=(("sticky", SUBSCRIPTION),))
    assert refused is not None
    assert refused.error_code == INCONSISTENT
    assert harness.joined("n", protocols=(("roundrobin", SUBSCRIPTION), ("sticky", SUBSCRIPTION))).generation_id == 4


def test_a_join_reports_owned_partitions_as_a_heartbeat_does() -> None:
    harness, classic = mixed()
    mine = harness.assigned(classic)
    harness.send("b")
    assert harness.beat(classic, 3) is REBALANCE
    given_up = harness.joined(classic, owned={**mine, "no such topic": {1}})
    assert given_up.generation_id == 3, "it has to give up a partition first"
    kept = places(harness.sync(classic, 3))
    assert (len(kept["orders"]), harness.pending(classic)) == (2, {"orders": mine["orders"] - kept["orders"]})
    assert harness.beat(classic, 3) is REBALANCE, "until it has"
    assert harness.joined(classic, owned=kept).generation_id == 4
    assert places(harness.sync(classic, 4)) == kept
    assert harness.beat(classic, 4) is NONE


def test_a_member_with_an_eager_assignor_owns_nothing_when_it_joins() -> None:
    harness, classic = mixed()
    harness.send("b")
    assert harness.joined(classic).generation_id == 4
    assert len(places(harness.sync(classic, 4))["orders"]) == 2
    harness.settle()
    assert len(harness.assigned("b")["orders"]) == 2


def test_a_member_that_waits_for_partitions_rejoins_when_all_are_free() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    joined = harness.joined("m")
    harness.sync("m", joined.generation_id)
    assert harness.beat("m", 3) is NONE
    harness.stay("a")
    assert harness.beat("m", 3) is NONE
    harness.stay("a", harness.assigned("a"))
    assert harness.beat("m", 3) is REBALANCE
    assert len(places(harness.sync("m", 3))) == 0, "SyncGroup alone changes nothing"
    assert harness.joined("m").generation_id == 3
    assert len(places(harness.sync("m", 3))["orders"]) == 3
    assert harness.beat("m", 3) is NONE


# A request as member id, instance id and generation, in a group with the classic member "m" with instance id "i" in
# epoch 3, and "a"; the errors of SyncGroup and Heartbeat.
IDENTITIES: list[tuple[str, str | None, int, ErrorCode, ErrorCode]] = [
    ("unknown", None, 0, UNKNOWN, UNKNOWN),
    ("", None, 0, UNKNOWN, UNKNOWN),
    ("m", "j", 0, UNKNOWN, UNKNOWN),
    ("a", "i", 0, FENCED, FENCED),
    ("a", None, 2, UNKNOWN, UNKNOWN),
    ("m", None, 2, ILLEGAL, ILLEGAL),
    ("m", "i", 4, ILLEGAL, ILLEGAL),
    ("m", "i", 3, NONE, NONE),
    ("m", None, 3, NONE, NONE),
]


@subtest_for_each(("member_id", "instance_id", "generation_id", "of_sync", "of_heartbeat"), IDENTITIES)
def test_members_are_checked(
    member_id: str, instance_id: str | None, generation_id: int, of_sync: ErrorCode, of_heartbeat: ErrorCode
) -> None:
    harness, classic = static()
    member_id = classic if member_id == "m" else member_id
    answer = harness.sync(member_id, generation_id, instance_id=instance_id)
    assert answer is not None
    assert answer.error_code == of_sync
    assert harness.beat(member_id, generation_id, instance_id) is of_heartbeat


@subtest_for_each(
    ("protocol_type", "protocol_name", "error"),
    [
        (None, None, NONE),
        ("consumer", "range", NONE),
        ("consumer", None, NONE),
        ("connect", "range", INCONSISTENT),
        ("consumer", "roundrobin", INCONSISTENT),
    ],
)
def test_a_sync_has_the_protocol_of_the_join(
    protocol_type: str | None, protocol_name: str | None, error: ErrorCode
) -> None:
    harness, classic = mixed()
    harness.send("b")  # Then the member would have to rejoin, which is checked later.
    answer = harness.sync(classic, 3, protocol_type=protocol_type, protocol_name=protocol_name)
    assert answer is not None
    assert answer.error_code == (error or REBALANCE)
    harness.joined(classic)
    answer = harness.sync(classic, 4, protocol_type=protocol_type, protocol_name=protocol_name)
    assert answer is not None
    assert (answer.error_code, bool(answer.assignment)) == (error, not error)
    if not error:
        assert (answer.protocol_type, answer.protocol_name) == (protocol_type, protocol_name), "as in the request"


@subtest_for_each("version", range(5))
def test_an_assignment_has_the_version_of_the_subscription(version: int) -> None:
    harness = MixedGroupHarness()
    harness.send("a", subscribed_topic_names=())
    metadata = version.to_bytes(2, "big") + encode_subscription(["orders"])[2:]
    joined = harness.joined("m", protocols=(("range", metadata),))
    answer = harness.sync("m", joined.generation_id)
    assert answer is not None
    assert answer.assignment[:2] == min(version, 3).to_bytes(2, "big")
    assert places(answer) == {"orders": {0, 1, 2, 3, 4, 5}}


def test_partitions_of_deleted_topics_are_not_in_the_assignment() -> None:
    harness = MixedGroupHarness(FakeTopics(orders=1, news=1))
    harness.send("a", subscribed_topic_names=())
    joined = harness.joined("m", ("news", "orders"))
    harness.topics.delete("news")
    assert places(harness.sync("m", joined.generation_id)) == {"orders": {0}}


def test_the_session_is_that_of_the_join() -> None:
    harness, classic = mixed()
    harness.advance(CLASSIC_SESSION_MS - 1)
    assert harness.beat(classic, 3) is NONE
    harness.advance(CLASSIC_SESSION_MS)
    assert [*harness.group.members] == ["a"]
    assert harness.beat(classic, 3) is UNKNOWN


def test_after_a_failover_the_session_is_that_of_the_group_until_the_next_heartbeat() -> None:
    harness, classic = mixed()
    harness.fail_over()
    harness.advance(SESSION_MS - 1)
    harness.stay("a")
    assert harness.beat(classic, 3) is NONE
    harness.advance(CLASSIC_SESSION_MS)
    assert [*harness.group.members] == ["a"]


def test_a_member_that_has_joined_has_to_sync_in_time() -> None:
    harness, classic = mixed()
    keep_alive(harness, classic, 3, CLASSIC_REBALANCE_MS)
    harness.joined(classic)
    keep_alive(harness, classic, 3, CLASSIC_REBALANCE_MS - 1)
    harness.advance(1)
    assert [*harness.group.members] == ["a"]


def test_a_member_that_was_told_to_rejoin_has_to_join_in_time() -> None:
    harness, classic = mixed()
    harness.send("b")
    assert harness.beat(classic, 3) is REBALANCE
    keep_alive(harness, classic, 3, CLASSIC_REBALANCE_MS - 1)
    answer = harness.sync(classic, 3)
    assert answer is not None
    assert answer.error_code == REBALANCE
    harness.advance(1)
    assert [*harness.group.members] == ["a", "b"], "the timer has started with the first answer"


def test_a_join_stops_the_join_timer() -> None:
    harness, classic = mixed()
    harness.send("b")
    assert harness.beat(classic, 3) is REBALANCE
    keep_alive(harness, classic, 3, CLASSIC_REBALANCE_MS - 1)
    joined = harness.joined(classic)
    harness.sync(classic, joined.generation_id)
    keep_alive(harness, classic, joined.generation_id, CLASSIC_REBALANCE_MS)
    assert classic in harness.group.members


def test_a_member_gives_up_partitions_in_time() -> None:
    harness, classic = mixed()
    harness.send("b")
    owned = harness.assigned(classic)
    assert harness.joined(classic, owned=owned).generation_id == 3
    harness.sync(classic, 3)
    keep_alive(harness, classic, 3, CLASSIC_REBALANCE_MS - 1)
    harness.joined(classic, owned=owned)
    harness.sync(classic, 3)
    harness.advance(1)
    assert classic not in harness.group.members


def keep_alive(harness: MixedGroupHarness, classic: str, generation_id: int, ms: int) -> None:
    """Let time pass while the members send heartbeats."""
    while ms:
        step = min(ms, CLASSIC_SESSION_MS - 1)
        harness.advance(step)
        ms -= step
        for member_id in [*harness.group.members]:
            if member_id == classic:
                harness.beat(classic, generation_id)
            elif harness.member(member_id).classic is None:
                harness.stay(member_id)


def test_members_of_both_protocols_leave_in_one_epoch() -> None:
    harness, classic = static()
    harness.joined("n")
    result = harness.leave((classic, None), ("", "i"), ("x", "i"), ("unknown", None), ("a", None))
    assert result == (NONE, [NONE, NONE, FENCED, UNKNOWN, NONE])
    assert (harness.is_classic, harness.classic.generation_id) == (True, 4), "only classic members are left"
    harness, classic = mixed()
    harness.leave((classic, None))
    assert (harness.group.group_epoch, [*harness.group.members]) == (4, ["a"])


# Epoch, member and the errors of OffsetCommit, TxnOffsetCommit and OffsetFetch; the epoch of "a" and of the classic "m"
# is 3. The partition belongs to "a" since epoch 2.
COMMITS = [
    (3, "m", NONE, NONE, NONE),
    (2, "m", ILLEGAL, ILLEGAL, ILLEGAL),
    (4, "m", ILLEGAL, ILLEGAL, ILLEGAL),
    (-1, "m", ILLEGAL, ILLEGAL, ILLEGAL),
    (2, "a", NONE, NONE, ErrorCode.STALE_MEMBER_EPOCH),
    (1, "a", ErrorCode.STALE_MEMBER_EPOCH, ILLEGAL, ErrorCode.STALE_MEMBER_EPOCH),
    (3, "unknown", UNKNOWN, UNKNOWN, UNKNOWN),
    (-1, "", UNKNOWN, NONE, UNKNOWN),
]


@subtest_for_each(("epoch", "member_id", "error", "in_transaction", "of_fetch"), COMMITS)
def test_commits_and_fetches_have_the_generation(
    epoch: int, member_id: str, error: ErrorCode, in_transaction: ErrorCode, of_fetch: ErrorCode
) -> None:
    harness, classic = mixed()
    member_id = classic if member_id == "m" else member_id
    wanted = harness.coordinator, [("orders", 0, 7)], harness.now_ms, epoch, member_id
    assert (commit(*wanted), commit_in_transaction(*wanted)) == ([error], [in_transaction])
    assert harness.coordinator.offsets.check_fetch(GROUP, member_id, epoch) is of_fetch
    assert harness.coordinator.groups.consumer.is_consumer(GROUP, member_id) == (member_id == "a")


def test_a_commit_does_not_extend_the_session() -> None:
    harness, classic = mixed()
    harness.advance(CLASSIC_SESSION_MS - 1)
    errors = commit(harness.coordinator, [("orders", 0, 7)], harness.now_ms, 3, classic)
    harness.advance(1)
    assert (errors, [*harness.group.members]) == ([NONE], ["a"])


def test_a_static_member_is_replaced_and_keeps_its_target() -> None:
    harness, classic = static()
    harness.settle()
    mine = places(harness.sync(classic, 3))
    again = harness.joined(instance_id="i")
    assert (again.generation_id, again.member_id in harness.group.members, classic in harness.group.members) == (
        3,
        True,
        False,
    )
    assert places(harness.sync(again.member_id, 3, instance_id="i")) == mine
    assert harness.beat(classic, 3, "i") is FENCED
    answer = harness.join(classic, instance_id="i")
    assert answer is not None
    assert answer.error_code == FENCED
    harness.fail_over()


@subtest_for_each("policy", list(MigrationPolicy))
def test_classic_members_join_consumer_groups_unless_the_policy_is_disabled(policy: MigrationPolicy) -> None:
    harness = MixedGroupHarness(migration_policy=policy)
    harness.send("a")
    answer = harness.join("b")
    assert answer is not None
    assert (answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL) == (policy is MigrationPolicy.DISABLED)
    before = MixedGroupHarness(migration_policy=policy, release=(4, 1))
    before.send("a")
    assert before.joined("b").generation_id == 2


@subtest_for_each("policy", [MigrationPolicy.DOWNGRADE, MigrationPolicy.UPGRADE])
def test_static_members_change_the_protocol_in_place(policy: MigrationPolicy) -> None:
    harness = MixedGroupHarness(migration_policy=policy)
    harness.send("a")
    harness.send("b", instance_id="i")
    harness.settle()
    mine, epoch = harness.assigned("b"), harness.group.group_epoch
    joined = harness.joined(instance_id="i")
    assert (joined.generation_id, places(harness.sync(joined.member_id, epoch))) == (epoch, mine)
    assert [*harness.group.members] == ["a", joined.member_id]
    back = harness.send("c", instance_id="i")
    assert (back.error_code, back.member_epoch, harness.assignment(back)) == (NONE, epoch, mine)
    assert harness.member("c").classic is None
    refused = harness.send("d", instance_id="i")
    assert refused.error_code is ErrorCode.UNRELEASED_INSTANCE_ID, "both use the consumer protocol"


def test_a_dynamic_member_changes_the_protocol_under_its_id() -> None:
    harness = MixedGroupHarness()
    harness.send("a")
    joined = harness.joined("a")
    assert (joined.generation_id, harness.group.classic_count) == (2, 1)
    assert harness.group.group_epoch == 2, "the same subscription"
    assert harness.stay("a", {}).error_code is NONE
    assert (harness.group.classic_count, harness.member("a").classic) == (0, None)


def test_failed_appends_change_nothing() -> None:
    harness, classic = mixed()
    before = dict(harness.group.members)
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = harness.join("n")
    assert answer is not None
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.leave((classic, None)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    assert (harness.send("a", -1).error_code, harness.group.members) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, before)


def test_consumer_members_wait_for_classic_ones() -> None:
    harness, classic = mixed()
    harness.send("b")
    harness.stay("a")
    harness.stay("a", harness.assigned("a"))
    harness.advance(CLASSIC_SESSION_MS)
    assert classic not in harness.group.members
    harness.settle()
    assert (len(harness.assigned("a")["orders"]), len(harness.assigned("b")["orders"])) == (3, 3)
