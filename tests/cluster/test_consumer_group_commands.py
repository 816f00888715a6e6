"""Commands for consumer groups (KIP-848): holds, forced and chosen assignments, eviction, expiry, fencing."""

from collections.abc import Callable
from typing import Any

import pytest

from fakebroker.cluster.handles.cluster import ClusterHandle
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.inspect.journal_queries import view_journal
from fakebroker.cluster.inspect.views import GroupView, MemberView, view_group
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment
from tests.support.cluster.consumer_group_requests import assigned, beat

REBALANCE_MS = 60_000


class Lab:
    """A cluster with topic "news" of four partitions, its commands, and the heartbeats of members of group "g"."""

    def __init__(self, *members: str, **options: Any) -> None:
        self.harness = ClusterHarness({"news": 4}, **options)
        self.commands = ClusterHandle(
            Local(
                self.harness.cluster,
                ClusterHarnessEnvironment(self.harness),
                new_cluster=lambda: ClusterHarness({"news": 4}).cluster,
            )
        )
        for member_id in members:
            self.join(member_id)
        for _ in range(3):
            for member_id in members:
                self.report(member_id)
        assert not members or self.view().state == "Stable"

    def join(self, member_id: str, **fields: Any) -> Any:
        return beat(self.harness, member_id, broker=self.coordinator, client_id=f"client-{member_id[0]}", **fields)

    def stay(self, member_id: str, **fields: Any) -> Any:
        """Send a heartbeat in the epoch of the member that reports nothing."""
        epoch = self.member(member_id).member_epoch
        return beat(
            self.harness, member_id, epoch or 0, broker=self.coordinator, client_id=f"client-{member_id[0]}", **fields
        )

    def report(self, member_id: str) -> Any:
        """Send a heartbeat that reports exactly the partitions that the member may use."""
        return self.stay(member_id, owned=self.has(member_id))

    @property
    def coordinator(self) -> int:
        broker = self.harness.cluster.coordinator_of("g")
        assert broker is not None
        return broker.node_id

    def view(self) -> GroupView:
        return view_group(self.harness.cluster, "g", self.harness.now_ms)

    def member(self, member_id: str) -> MemberView:
        return next(each for each in self.view().members if each.member_id == member_id)

    def has(self, member_id: str) -> set[int]:
        return {index for _, index in self.member(member_id).assigned_partitions or ()}

    def explanation(self) -> str:
        return explain(self.harness.cluster, "g", self.harness.now_ms)


# Holds


def test_a_revocation_is_not_acknowledged_while_it_is_held() -> None:
    lab = Lab("a")
    with lab.commands.group("g").hold("Reconciling"):
        lab.join("b")
        lab.stay("a")
        lab.report("a")  # Its client has given up two partitions, and reports it once.
        assert (lab.member("a").state, lab.has("b")) == ("UNREVOKED_PARTITIONS", set())
        assert assigned(lab.stay("b")) is None
        assert "What a must give up is held until it is released." in lab.explanation()
    assert "is held" not in lab.explanation()
    lab.stay("a")  # Reports nothing: the report during the hold counts.
    assert lab.member("a").state == "STABLE"
    assert len(assigned(lab.stay("b")) or ()) == 2
    assert lab.view().state == "Stable"


def test_the_revocation_of_one_member_is_held() -> None:
    lab = Lab("a", "b")
    hold = lab.commands.group("g").hold("Reconciling", member="client-a")
    lab.commands.group("g").choose_assignment({"client-c": ["news-0", "news-1", "news-2", "news-3"]})
    lab.join("c")
    for member_id in "abab":
        lab.report(member_id)
    lab.stay("c")
    assert (lab.member("a").state, lab.member("b").state) == ("UNREVOKED_PARTITIONS", "STABLE")
    assert {each.holder_id for each in lab.member("c").awaited} == {"a"}
    with hold:
        pass
    lab.stay("a")
    lab.stay("c")
    assert lab.has("c") == {0, 1, 2, 3}


def test_the_hold_of_a_member_survives_its_failover_and_does_not_stop_its_timer() -> None:
    lab = Lab("a", brokers=2)
    lab.commands.group("g").hold("Reconciling", member="a")
    lab.join("b")
    lab.stay("a")
    lab.harness.cluster.controller.stop_broker(
        lab.harness.cluster.brokers[lab.coordinator], lab.harness.now_ms, Failover()
    )
    lab.report("a")
    assert lab.member("a").state == "UNREVOKED_PARTITIONS"
    for _ in range(2):
        lab.harness.advance(REBALANCE_MS / 2)
        lab.stay("b")
    assert [each.member_id for each in lab.view().members] == ["b"]
    assert lab.has("b") == {0, 1, 2, 3}


def test_release_names_what_is_held() -> None:
    lab = Lab("a", "b")
    lab.commands.group("g").hold("Reconciling", member="a")
    lab.commands.group("g").hold("Reconciling", member="b")
    with pytest.raises(ConfigError, match=r"^group 'g': member='c': expected one of a, b$"):
        lab.commands.group("g").release(member="c")
    lab.commands.group("g").release(member="client-a")
    with pytest.raises(ConfigError, match=r"^group 'g': member='a': expected one of b$"):
        lab.commands.group("g").release(member="a")
    with pytest.raises(ConfigError, match="a group that is held in Assigning, one of 'g' in Reconciling"):
        lab.commands.group("g").release("Assigning")
    lab.commands.group("g").release()
    with pytest.raises(ConfigError, match="a group that is held, but there is none"):
        lab.commands.group("g").release()


def test_members_are_held_in_reconciling_only() -> None:
    lab = Lab("a")
    with pytest.raises(
        ConfigError, match=r"^state='Assigning': expected one of Reconciling, in which members are held$"
    ):
        lab.commands.group("g").hold("Assigning", member="a")
    with pytest.raises(ConfigError, match=r"^group 'g': member='z': expected one of a$"):
        lab.commands.group("g").hold("Reconciling", member="z")
    lab.commands.group("classic").seed(["a"], topics=["news"])
    with pytest.raises(ConfigError, match=r"^group_id='classic': expected a consumer group \(KIP-848\), not a classic"):
        lab.commands.group("classic").hold("Reconciling", member="a")


def test_the_assignor_does_not_run_while_it_is_held() -> None:
    lab = Lab("a")
    with lab.commands.group("g").hold("Assigning"):
        joined = lab.join("b")
        assert (joined.member_epoch, assigned(joined)) == (2, [])
        assert assigned(lab.stay("a")) is None
        assert (lab.view().state, lab.view().generation_id, lab.view().assignment_epoch) == ("Assigning", 3, 2)
        assert "The assignor is held until it is released." in lab.explanation()
        lab.harness.advance(40_000)
        lab.stay("a")
        lab.stay("b")
    assert "The next heartbeat of a member runs the assignor." in lab.explanation()
    assert len(assigned(lab.stay("a")) or ()) == 2
    assert (lab.view().state, lab.view().assignment_epoch) == ("Reconciling", 3)


def test_before_4_3_the_first_assignment_is_not_held() -> None:
    for release, first in (("4.2", [0, 1, 2, 3]), (None, [])):
        lab = Lab(as_version=release)
        lab.commands.group("g").hold("Assigning")
        assert (lab.join("a").member_epoch, lab.has("a")) == (1, {*first}), release
        assert assigned(lab.join("b")) == []
        assert lab.view().state == "Assigning"


# Assignments


def test_a_forced_rebalance_starts_the_next_epoch() -> None:
    lab = Lab("a", "b")
    lab.commands.group("g").rebalance()
    assert (lab.view().state, lab.view().generation_id) == ("Assigning", 4)
    with pytest.raises(ConfigError, match="a group in state Reconciling or Stable, not Assigning"):
        lab.commands.group("g").rebalance()
    assert (lab.stay("a").member_epoch, lab.stay("b").member_epoch) == (4, 4)
    assert lab.view().state == "Stable"
    assert [each.cause for each in lab.view().timeline().moments][-3] == "an assignment was forced"


def test_an_assignment_is_chosen_once() -> None:
    lab = Lab("a", "b")
    lab.join("s", instance_id="i")
    lab.commands.group("g").choose_assignment(
        {"client-a": ["news-3"], "i": ["news-0"], "nobody": ["news-1"], "b": ["none-0", "news-9"]}
    )
    lab.commands.group("g").rebalance()
    for _ in range(3):
        for member_id in "ab":
            lab.report(member_id)
        lab.stay("s")
    assert (lab.has("a"), lab.has("b"), lab.has("s")) == ({3}, set(), {0})
    lab.commands.group("g").rebalance()
    lab.stay("a")
    targets = [len(member.target) for member in lab.view().members]
    assert sorted(targets) == [1, 1, 2], "the assignor's own result"


def test_a_chosen_assignment_has_one_member_for_each_partition() -> None:
    lab = Lab()
    for assignment, error in (
        ({"a": ["news"]}, "assignment='news': expected a topic and a number, such as 'orders-0'"),
        (
            {"a": ["news-0"], "b": ["news-0"]},
            "assignment='news-0': expected one member for each partition, not a and b",
        ),
    ):
        with pytest.raises(ConfigError, match=error):
            lab.commands.group("g").choose_assignment(assignment)


# Members


def test_a_member_is_evicted() -> None:
    lab = Lab("a", "b")
    lab.commands.group("g").evict("client-b")
    assert beat(lab.harness, "b", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert assigned(lab.stay("a")) == [0, 1, 2, 3]


def test_a_session_is_expired() -> None:
    lab = Lab("a", "b")
    lab.commands.group("g").expire("b")
    assert beat(lab.harness, "b", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    last = lab.view().timeline().moments[-1]
    assert (last.cause, last.left) == ("session of b expired", ("b",))


def test_the_epoch_of_a_member_is_fenced() -> None:
    lab = Lab("a", "b")
    former = lab.has("a")
    lab.commands.group("g").fence_epoch("a")
    assert (lab.view().state, lab.has("a")) == ("Reconciling", set())
    assert "a was fenced, and is removed in 45.0 s unless it rejoins." in lab.explanation()
    fenced = beat(lab.harness, "a", 3)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    joined = lab.join("a")
    assert (joined.error_code, joined.member_epoch, {*(assigned(joined) or ())}) == (0, 3, former)
    assert lab.view().state == "Stable"


def test_the_epoch_of_a_static_member_is_fenced() -> None:
    lab = Lab()
    lab.join("s", instance_id="i")
    lab.commands.group("g").fence_epoch("i")
    assert lab.has("s") == {0, 1, 2, 3}, "it keeps them, as while it is away"
    assert beat(lab.harness, "s", 2, instance_id="i").error_code == ErrorCode.FENCED_MEMBER_EPOCH
    joined = lab.join("s", instance_id="i")
    assert (joined.error_code, joined.member_epoch, assigned(joined)) == (0, 2, [0, 1, 2, 3])


def test_a_static_member_is_fenced() -> None:
    lab = Lab()
    lab.join("s", instance_id="i")
    lab.commands.group("g").fence_instance("i")
    assert beat(lab.harness, "s", 2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    (member,) = lab.view().members
    assert (member.instance_id, member.subscribed_topics, lab.has(member.member_id)) == ("i", ("news",), {0, 1, 2, 3})
    with pytest.raises(ConfigError, match=r"^group 'g': member='other': expected one of i$"):
        lab.commands.group("g").fence_instance("other")


def test_commands_of_classic_groups_say_so() -> None:
    lab = Lab("a")
    calls: list[Callable[[], object]] = [
        lambda: lab.commands.group("g").choose_leader("a"),
        lambda: lab.commands.group("g").delay_sync("a"),
        lambda: lab.commands.group("g").release_sync("a"),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"^group_id='g': expected a classic group, not a consumer group"):
            call()
    lab.commands.group("classic").seed(["a"], topics=["news"])
    with pytest.raises(ConfigError, match=r"^group_id='classic': expected a consumer group"):
        lab.commands.group("classic").fence_epoch("a")
    with pytest.raises(ConfigError, match="one of classic, g"):
        lab.commands.group("missing").evict("a")


# Faults and the journal


def test_faults_of_one_member_and_of_one_group() -> None:
    lab = Lab("a", "b")
    lab.commands.inject_fault("ConsumerGroupHeartbeat", error="UNRELEASED_INSTANCE_ID", member="a", times=1)
    assert (lab.stay("b").error_code, lab.stay("a").error_code) == (0, ErrorCode.UNRELEASED_INSTANCE_ID)
    assert lab.stay("a").error_code == 0
    lab.commands.inject_fault("ConsumerGroupDescribe", error="NOT_COORDINATOR", group="g")
    request = ConsumerGroupDescribeRequest(group_ids=["other", "g"], include_authorized_operations=False)
    other, group = lab.harness.ask(request, 1).groups
    assert (other.error_code, group.error_code) == (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)
    with pytest.raises(ConfigError, match="'REBALANCE_IN_PROGRESS'"):
        lab.commands.inject_fault("ConsumerGroupHeartbeat", error="REBALANCE_IN_PROGRESS")


def test_the_journal_filters_by_member_and_epoch() -> None:
    lab = Lab("a", "b")
    lab.harness.ask(
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="b", member_epoch=-1), 1, client_id="client-b"
    )
    journal = view_journal(lab.harness.cluster)

    def epochs(**filters: Any) -> list[int]:
        return [call.request.member_epoch for call in journal.requests("ConsumerGroupHeartbeat", **filters)]

    assert epochs(member="b") == [0, 3, 3, 3, -1]
    assert epochs(member="a", generation=2) == [2, 2]
    assert epochs(generation=-1) == [-1]
    summaries = [call.summarize().generations for call in journal.requests("ConsumerGroupHeartbeat", member="b")]
    assert summaries == [(0,), (3,), (3,), (3,), (-1,)]
    assert journal.requests("JoinGroup", generation=2) == []
    with pytest.raises(ConfigError, match="generation=-3: expected an integer >= -2"):
        journal.requests(generation=-3)
