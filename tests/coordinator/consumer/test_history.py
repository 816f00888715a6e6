"""The history of consumer groups: what each moment has. The harness compares all moments with the group."""

from fakebroker.coordinator.group_history import MemberChange
from fakebroker.errors import ErrorCode
from tests.support.coordinator.consumer_group_harness import REBALANCE_MS, SESSION_MS, ConsumerGroupHarness, FakeTopics
from tests.support.coordinator.group_messages import identities


def causes(harness: ConsumerGroupHarness) -> list[str]:
    return [moment.cause for moment in harness.moments()]


def test_a_partition_moves() -> None:
    harness = ConsumerGroupHarness(FakeTopics(news=4))
    for member_id in "ab":
        harness.send(member_id, subscribed_topic_names=("news",))
    harness.stay("a")
    harness.stay("a", {"news": {0, 1}})
    harness.stay("b", {"news": set()})
    found = [(each.state_from, each.state_to, each.generation_id, each.changes) for each in harness.moments()]
    first, second = ("news-0", "news-1"), ("news-2", "news-3")
    assert found == [
        ("Dead", "Stable", 2, (MemberChange("a", "client", 2, "STABLE", first + second, ()),)),
        ("Stable", "Reconciling", 3, (MemberChange("b", "client", 3, "UNRELEASED_PARTITIONS", (), ()),)),
        ("Reconciling", "Reconciling", 3, (MemberChange("a", "client", 2, "UNREVOKED_PARTITIONS", first, second),)),
        ("Reconciling", "Reconciling", 3, (MemberChange("a", "client", 3, "STABLE", first, ()),)),
        ("Reconciling", "Stable", 3, (MemberChange("b", "client", 3, "STABLE", second, ()),)),
    ]
    joins = [(each.joined, each.left, each.members, each.assignment_epoch) for each in harness.moments()[:2]]
    assert joins == [(("a",), (), ("a",), 2), (("b",), (), ("a", "b"), 3)]
    assert [(timer.what, timer.left_ms) for timer in harness.moments()[2].timers] == [("revocation of a", REBALANCE_MS)]
    assert [(timer.what, timer.left_ms) for timer in harness.moments()[0].timers] == [("session of a", SESSION_MS)]


def test_a_heartbeat_that_changes_nothing_is_no_moment() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    harness.stay("a")
    harness.stay("a", rebalance_timeout_ms=7)
    assert harness.batches[1:], "the new timeout is stored"
    assert len(harness.moments()) == 1


def test_an_append_that_fails_is_no_moment() -> None:
    harness = ConsumerGroupHarness()
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.send("a").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_error = None
    harness.send("a")
    harness.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.send("b").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_error = None
    harness.send("c")
    assert causes(harness) == ["heartbeat of a, a new member", "heartbeat of c, a new member"]


def test_causes() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    harness.send("s", instance_id="i")
    harness.settle()
    before = len(harness.moments())
    harness.send("s", -2, instance_id="i")
    harness.send("t", instance_id="i")
    harness.stay("a", subscribed_topic_names=("orders", "news"))
    harness.topics.create("news", 2)
    harness.stay("a")
    assert "g" in harness.coordinator.groups
    harness.coordinator.leave_group("g", identities([("", "i")]), harness.now_ms)
    harness.fail_over()
    harness.send("b")
    harness.advance(SESSION_MS - 1)
    harness.stay("b")
    harness.advance(1)
    harness.send("b", -1)
    harness.coordinator.delete_groups(["g"], harness.now_ms)
    assert causes(harness)[before:] == [
        "heartbeat of s, static 'i', which leaves for a while",
        "heartbeat of t, which replaces s as static 'i'",
        "heartbeat of a, whose subscription has changed",
        "heartbeat of a after a change of topics",
        "LeaveGroup of t",
        "loaded from the log",
        "heartbeat of b, a new member",
        "session of a expired",
        "heartbeat of b, which leaves",
        "DeleteGroups",
    ]
    replaced = harness.moments()[before + 1]
    assert (replaced.joined, replaced.left) == (("t",), ("s",))
    dead = harness.moments()[-1]
    assert (dead.state_from, dead.state_to, dead.members, dead.left, dead.timers) == ("Empty", "Dead", (), (), ())


def test_members_that_expire_at_the_same_time_have_moments_of_their_own() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    harness.send("b", rebalance_timeout_ms=1_000)
    harness.stay("a")
    harness.advance(SESSION_MS)
    found = [(each.cause, each.left, each.state_to, each.generation_id) for each in harness.moments()[-2:]]
    assert found == [
        ("session of a expired", ("a",), "Assigning", 4),
        ("session of b expired", ("b",), "Empty", 5),
    ]


def test_a_member_that_does_not_give_up_partitions() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a", rebalance_timeout_ms=1_000)
    harness.send("b")
    harness.stay("a")
    harness.advance(1_000)
    last = harness.moments()[-1]
    assert (last.cause, last.left) == ("a did not give up partitions in time", ("a",))


def test_a_deleted_topic_keeps_its_name() -> None:
    harness = ConsumerGroupHarness()
    harness.send("a")
    names = dict.fromkeys(harness.member("a").assigned, "orders")
    harness.history.name_of = names.get
    harness.topics.delete("orders")
    harness.stay("a")
    last = harness.moments()[-1].changes[0]
    assert (last.assigned, last.pending_revocation[:2]) == ((), ("orders-0", "orders-1"))


def test_the_sizes_of_moments_count_members_and_partitions() -> None:
    harness = ConsumerGroupHarness(FakeTopics(orders=100))
    harness.send("a")
    harness.send("b")
    harness.stay("a")
    assert [moment.size for moment in harness.moments()] == [101, 2, 102]
