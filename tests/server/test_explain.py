"""Explanations of groups: in each state, without a coordinator, and while the coordinator loads."""

from typing import Any

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.inspect.deadlines import pending_deadlines
from fakebroker.cluster.inspect.explain import explain
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.topics import NO_LEADER
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.group_requests import join_request
from tests.support.wire_client import WireClient


class ExplainedGroup:
    """A cluster with the group "g", and clients of the group. The `name` of a client is its client id."""

    def __init__(self, delay_ms: int = 0, brokers: int = 2) -> None:
        config: dict[str, object] = {
            "group.initial.rebalance.delay.ms": delay_ms,
            "offsets.topic.num.partitions": 1,
        }
        self.harness = ClusterHarness(brokers=brokers, config=config)
        self.ids: dict[str, str] = {}

    @property
    def explanation(self) -> str:
        return explain(self.harness.cluster, "g", self.harness.now_ms)

    def join(self, name: str, version: int = 3, **fields: Any) -> None:
        values: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
        }
        request = JoinGroupRequest(group_id="g", member_id=self.ids.get(name, ""), **values | fields)
        self.harness.send(request, version, client_id=name)
        group = self.harness.cluster.brokers[1].coordinator.groups.classic.get("g")
        assert group is not None
        for member_id in (*group.members, *group.pending_members):
            self.ids.setdefault(member_id[:-37], member_id)

    def sync(self, name: str, generation_id: int = 1) -> None:
        self.harness.send(
            SyncGroupRequest(group_id="g", generation_id=generation_id, member_id=self.ids[name], assignments=[]), 3
        )

    def heartbeat(self, name: str, generation_id: int = 1) -> None:
        request = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=self.ids[name])
        self.harness.ask(request, 3)

    def leave(self, name: str) -> None:
        self.harness.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=self.ids[name])]), 3)

    def commit(self) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
        topic = OffsetCommitRequestTopic(name="news", partitions=[partition])
        self.harness.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 7)

    def stable(self, *names: str) -> None:
        """Make the group stable with these members."""
        for name in names:
            self.join(name)
        self.harness.advance(1_000)
        self.harness.advance(1_000)
        for name in names:
            self.sync(name)
        assert "Stable" in self.explanation


def test_no_group() -> None:
    group = ExplainedGroup()
    assert group.explanation == (
        "g is Dead: there is no such group. No member has joined it, and no offset was committed."
    )  # fmt: skip
    group.commit()
    group.harness.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    group.harness.advance(2_500)
    assert group.explanation == "g is Dead: there is no such group. It was removed 2.5 s ago. Cause: DeleteGroups."


def test_empty() -> None:
    group = ExplainedGroup()
    group.commit()
    group.harness.advance(1_500)
    assert group.explanation == (
        "g has been in Empty for 1.5 s. Cause: first OffsetCommit. It has never had members and has 1 committed "
        "offset. In 6 d 23 h: the group is removed with 1 committed offset, unless it is used before."
    )
    group.stable("a")
    group.leave("a")
    assert group.explanation == (
        "g has been in Empty for 0.0 s. Cause: LeaveGroup of a. It has no members and has 1 committed offset. In 7 d 0 "
        "h: the group is removed with 1 committed offset, unless it is used before."
    )
    group.join("b", version=4)
    assert "b was assigned its member id, and must join with it within 10.0 s." in group.explanation


def test_the_initial_delay() -> None:
    group = ExplainedGroup(delay_ms=3_000)
    group.join("a")
    group.harness.advance(1_000)
    assert group.explanation == (
        "g has been in PreparingRebalance for 1.0 s. Cause: JoinGroup of a, a new member. 1 of 1 members have joined "
        "this rebalance. The group was empty, so it waits for more members for 2.0 s, and up to 57.0 s longer if new "
        "members keep joining."
    )


def test_a_rebalance_waits_for_members() -> None:
    group = ExplainedGroup(delay_ms=1_000)
    group.stable("a", "b")
    group.join("static", 5, group_instance_id="s", session_timeout_ms=30_000)
    group.ids["static"] = group.ids["s"]
    group.join("a")
    group.join("b")
    for name in ("a", "b", "static"):
        group.sync(name, 2)
    group.harness.advance(4_000)
    group.heartbeat("a", 2)
    group.harness.advance(500)
    group.join("c")
    group.join("d", version=4)
    group.join("b")
    group.harness.advance(100)
    assert group.explanation == (
        "g has been in PreparingRebalance for 0.1 s. Cause: JoinGroup of c, a new member. 2 of 4 members have joined "
        "this rebalance. Waiting for a (last request: Heartbeat, 0.6 s ago), which has not rejoined. If it "
        "sends no request, it is removed in 9.4 s: its session expires. Waiting for s (static, last request: "
        "SyncGroup, 4.6 s ago), which has not rejoined. If it sends no request, it is removed in 25.4 s: its "
        "session expires. The join timer does not remove static members. d was assigned its member id, and must join "
        "with it within 9.9 s. The group waits at most 59.9 s longer; then the join timer expires: a is removed unless "
        "it rejoins (heartbeats do not prevent that), and generation 3 starts with 3 members."
    )


def test_a_member_that_sends_heartbeats_but_does_not_rejoin() -> None:
    group = ExplainedGroup(delay_ms=1_000)
    group.stable("a", "b", "stuck")
    group.join("c")
    group.join("a")
    group.join("b")
    left = " longer; then the join timer expires: stuck is removed unless it rejoins"
    for sent in range(19):  # The session of 10 s is extended all the time, but the join timer of 60 s expires.
        waits = group.explanation
        assert f"The group waits at most {60 - 3 * sent}.0 s{left} (heartbeats do not prevent that), and" in waits
        group.heartbeat("stuck")
        is_earlier = 3 * sent + 10 <= 60
        assert ("request, it is removed in 10.0 s: its session expires." in group.explanation) == is_earlier
        group.harness.advance(3_000)
    assert group.explanation == (
        "g has been in PreparingRebalance for 57.0 s. Cause: JoinGroup of c, a new member. 3 of 4 members have joined "
        "this rebalance. Waiting for stuck (last request: Heartbeat, 3.0 s ago), which has not rejoined. It sends a "
        "Heartbeat every 3.0 s, which extends its session, but no JoinGroup. The group waits at most 3.0 s longer; "
        "then the join timer expires: stuck is removed unless it rejoins (heartbeats do not prevent that), and "
        "generation 2 starts with 3 members."
    )
    group.harness.advance(2_999)
    assert "Waiting for stuck" in group.explanation
    group.harness.advance(1)
    assert group.explanation.startswith("g has been in CompletingRebalance for 0.0 s. Cause: join timer expired.")


def test_a_member_is_not_described_by_requests_that_it_did_not_send() -> None:
    group = ExplainedGroup()
    group.harness.cluster.journal.max_calls = 0
    group.stable("a")
    group.join("b")
    assert "Waiting for a (session restarted 0.0 s ago), which has not rejoined." in group.explanation


def test_delayed_requests_and_responses() -> None:
    group = ExplainedGroup()
    group.stable("a")
    faults = group.harness.cluster.faults
    faults.add(Fault(api="JoinGroup", member=group.ids["a"], delay_before_s=8.0), group.harness.now_ms)
    faults.add(Fault(api="LeaveGroup", delay_s=4.0), group.harness.now_ms)
    group.join("b")
    group.join("a")
    group.harness.advance(1_000)
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=group.ids["b"])])
    group.harness.send(request, 3, client_id="b")
    group.harness.advance(500)
    assert group.explanation.endswith(
        "A fault delays the JoinGroup of a: broker 1 handles it in 6.5 s; the request was received 1.5 s ago. A fault "
        "delays the response to the LeaveGroup of b: broker 1 sends it in 3.5 s; the request was received 0.5 s ago."
    )
    delayed = [each for each in pending_deadlines(group.harness.cluster, group.harness.now_ms) if "late" in each.kind]
    assert [(each.in_s, each.kind, each.text) for each in delayed] == [
        (3.5, "late_answer", "Broker 1 sends the response to the LeaveGroup of b, which a fault delays."),
        (6.5, "late_request", "Broker 1 handles the JoinGroup of a, which a fault delays."),
    ]
    group.harness.advance(6_500)
    assert "delays" not in group.explanation


def test_a_throttled_client() -> None:
    group = ExplainedGroup()
    group.stable("a")
    group.harness.cluster.quotas.throttled[1, "a"] = group.harness.now_ms + 1_200
    throttled = "Client a has exceeded a quota: its requests are read again in"
    assert group.explanation.endswith(f"{throttled} 1.2 s.")
    group.harness.advance(1_200)
    assert throttled not in group.explanation


def test_of_many_members_only_some_are_named() -> None:
    group = ExplainedGroup(delay_ms=1_000)
    names = [f"m{number}" for number in range(12)]
    group.stable(*names)
    group.join("m0")
    assert group.explanation.count("Waiting for m") == 8
    assert "Waiting for 3 more members. The group waits at most 60.0 s longer;" in group.explanation
    assert "m6, m7, m8 and 3 more are removed unless they rejoin" in group.explanation


def test_completing() -> None:
    group = ExplainedGroup(delay_ms=1_000)
    group.join("a")
    group.join("b")
    group.harness.advance(1_000)
    group.harness.advance(1_000)
    group.harness.advance(250)
    group.heartbeat("a")
    assert group.explanation == (
        "g has been in CompletingRebalance for 0.2 s. Cause: initial delay is over. Waiting for the SyncGroup of "
        "the leader a (last request: Heartbeat, 0.0 s ago), which has the assignment. If a sends no request, it is "
        "removed in 10.0 s: its session expires. Waiting for the SyncGroup of b. If b sends no request, it is removed "
        "in 9.8 s: its session expires. The group waits at most 59.8 s longer; then the sync "
        "timer expires: a, b are removed unless they send a SyncGroup, and the group becomes Empty."
    )


def test_stable() -> None:
    group = ExplainedGroup(delay_ms=1_000)
    group.join("a")
    group.join("b")
    group.harness.advance(1_000)
    group.harness.advance(1_000)
    group.sync("a")
    assert group.explanation == (
        "g has been in Stable for 0.0 s. Cause: SyncGroup of the leader a. Generation 1 with protocol 'range' has 2 "
        "members. The leader is a. Waiting for the SyncGroup of b. If b sends no request, it is removed in "
        "10.0 s: its session expires. The group waits at most 60.0 s longer; then the sync timer expires: b is "
        "removed unless it sends a SyncGroup, and a rebalance starts with the other member."
    )
    group.sync("b")
    assert group.explanation.endswith("The leader is a.")
    group.harness.advance(4_000)
    group.heartbeat("a")
    group.harness.advance(2_000)
    assert group.explanation.endswith(
        "In 4.0 s: if b sends no request, its session expires: it is removed, and a rebalance starts with the other "
        "member."
    )


def test_after_a_move_it_is_stable_because_it_was_loaded() -> None:
    group = ExplainedGroup(brokers=3)
    group.stable("a")
    controller, partition = group.harness.cluster.controller, group.harness.cluster.offsets_partition_of("g")
    controller.set_leader(partition, 2, group.harness.now_ms, Failover(zombie=True))
    group.leave("a")  # at the zombie
    assert group.explanation == (
        "g has been in Stable for 0.0 s. Cause: loaded from the log. Generation 1 with protocol 'range' has 1 member. "
        "The leader is a. Broker 1 also acts as its coordinator: it is a zombie."
    )
    controller.set_leader(partition, 3, group.harness.now_ms, Failover(zombie=True))
    assert group.explanation.endswith("The leader is a. Brokers 1, 2 also act as its coordinator: they are zombies.")


@pytest.mark.parametrize(
    ("failover", "explanation"),
    [
        (
            Failover(load_ms=3_000),
            "g is being loaded: broker 2 loads __consumer_offsets-0 for 2.0 s more. Requests fail with "
            "COORDINATOR_LOAD_IN_PROGRESS.",
        ),
        (
            Failover(load_ms=None),
            "g is being loaded: broker 2 loads __consumer_offsets-0 until finish_loading() is called. Requests fail "
            "with COORDINATOR_LOAD_IN_PROGRESS.",
        ),
        (
            Failover(load_fails=True),
            "g is not available: broker 2 failed to load __consumer_offsets-0. Requests fail with NOT_COORDINATOR "
            "until the partition has another leader.",
        ),
    ],
)
def test_loading(failover: Failover, explanation: str) -> None:
    group = ExplainedGroup()
    group.stable("a")
    controller, partition = group.harness.cluster.controller, group.harness.cluster.offsets_partition_of("g")
    controller.set_leader(partition, 2, group.harness.now_ms, failover)
    group.harness.advance(1_000)
    assert group.explanation == explanation


def test_no_coordinator() -> None:
    group = ExplainedGroup()
    cluster = group.harness.cluster
    cluster.controller.set_leader(cluster.offsets_partition_of("g"), NO_LEADER, group.harness.now_ms, Failover())
    assert group.explanation == (
        "g has no coordinator: __consumer_offsets-0 has no leader. Its replicas are on brokers 1, 2. "
        "FindCoordinator fails with COORDINATOR_NOT_AVAILABLE."
    )
    cluster.controller.stop_broker(cluster.brokers[2], group.harness.now_ms, Failover(), elect=False)
    assert "on brokers 1, 2; down: 2. Find" in group.explanation


@pytest.mark.fake_cluster(topics={"orders": 6})
@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            "PreparingRebalance",  # Without an initial delay, its timer has expired at once.
            "It is held in this state until it is released: then the state ends at once, because its timer has "
            "expired. 1 of 1 members have joined this",
        ),
        ("CompletingRebalance", "It is held in this state until it is released. The SyncGroup of the leader app"),
    ],
)
def test_held(fake_cluster: FakeCluster, state: str, sentence: str) -> None:
    with fake_cluster.group("g").hold(state), WireClient(fake_cluster.group("g").coordinator(), "app") as wire:
        member_id = wire.ask(join_request("g"), JoinGroupResponse).member_id
        wire.send(join_request("g", member_id))
        fake_cluster.wait(fake_cluster.group("g").state(state, members=1))
        if state == "CompletingRebalance":
            wire.receive()
            wire.send(SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[]), 3)
            fake_cluster.wait(fake_cluster.requested("SyncGroup"))
        assert sentence in fake_cluster.group("g").explain()
