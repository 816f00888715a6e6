"""Explanations of groups in each state, while loading, and without a coordinator."""

from typing import Any

import pytest

from fakebroker import FakeCluster
from fakebroker.cluster.controller import Failover
from fakebroker.cluster.inspect.explain import explain
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
    """The group "g" of a cluster without sockets. Members are named by their client ids."""

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
        group = self.harness.cluster.brokers[1].coordinator.group("g")
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
        """Join and sync all members."""
        for name in names:
            self.join(name)
        self.harness.advance(1_000)
        self.harness.advance(1_000)
        for name in names:
            self.sync(name)
        assert "Stable" in self.explanation


def test_a_group_that_does_not_exist() -> None:
    group_g = ExplainedGroup()
    assert group_g.explanation == (
        "g is Dead: there is no such group. Nobody has joined it, and nothing was committed to it."
    )  # fmt: skip
    group_g.commit()
    group_g.harness.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    group_g.harness.advance(2_500)
    assert group_g.explanation == "g is Dead: there is no such group. It was there until 2.5 s ago: DeleteGroups."


def test_an_empty_group() -> None:
    group_g = ExplainedGroup()
    group_g.commit()
    group_g.harness.advance(1_500)
    assert group_g.explanation == (
        "g has been in Empty for 1.5 s: first OffsetCommit. It has never had members, and has 1 committed offset."
    )
    group_g.stable("a")
    group_g.leave("a")
    assert group_g.explanation == (
        "g has been in Empty for 0.0 s: LeaveGroup of a. It has no members, and has 1 committed offset."
    )
    group_g.join("b", version=4)
    assert group_g.explanation.endswith("b was told its id and has not joined with it; it has 10.0 s more to do so.")


def test_the_initial_rebalance_delay() -> None:
    group_g = ExplainedGroup(delay_ms=3_000)
    group_g.join("a")
    group_g.harness.advance(1_000)
    assert group_g.explanation == (
        "g has been in PreparingRebalance for 1.0 s: JoinGroup of a, a new member. 1 of 1 members have joined the "
        "round. It is the first round of an empty group: others may join for 2.0 s more, and for up to 57.0 s on top "
        "of that if new members go on coming."
    )


def test_a_rebalance_waits_for_members() -> None:
    group_g = ExplainedGroup(delay_ms=1_000)
    group_g.stable("a", "b")
    group_g.join("static", 5, group_instance_id="s", session_timeout_ms=30_000)
    group_g.ids["static"] = group_g.ids["s"]
    group_g.join("a")
    group_g.join("b")
    for name in ("a", "b", "static"):
        group_g.sync(name, 2)
    group_g.harness.advance(4_000)
    group_g.heartbeat("a", 2)
    group_g.harness.advance(500)
    group_g.join("c")
    group_g.join("d", version=4)
    group_g.join("b")
    group_g.harness.advance(100)
    assert group_g.explanation == (
        "g has been in PreparingRebalance for 0.1 s: JoinGroup of c, a new member. 2 of 4 members have joined the "
        "round. Waiting for a (last heard of 0.6 s ago), which has not rejoined; it will be dropped in 9.4 s. Waiting "
        "for s (static, last heard of 4.6 s ago), which has not rejoined; the round ends without it in 59.9 s, and "
        "being static it is dropped when its session ends, in 25.4 s. d was told its id and has not joined with it; "
        "it has 9.9 s more to do so."
    )


def test_only_some_of_many_members_are_named() -> None:
    group_g = ExplainedGroup(delay_ms=1_000)
    names = [f"m{number}" for number in range(12)]
    group_g.stable(*names)
    group_g.join("m0")
    assert group_g.explanation.count("Waiting for m") == 8
    assert group_g.explanation.endswith("Waiting for 3 more members.")


def test_completing_rebalance() -> None:
    group_g = ExplainedGroup(delay_ms=1_000)
    group_g.join("a")
    group_g.join("b")
    group_g.harness.advance(1_000)
    group_g.harness.advance(1_000)
    group_g.harness.advance(250)
    group_g.heartbeat("a")
    assert group_g.explanation == (
        "g has been in CompletingRebalance for 0.2 s: initial delay is over. Waiting for the SyncGroup of the leader "
        "a (last heard of 0.0 s ago), which assigns. No SyncGroup of this generation has come from b. Who has not "
        "sent one in 59.8 s is dropped."
    )


def test_a_stable_group() -> None:
    group_g = ExplainedGroup(delay_ms=1_000)
    group_g.join("a")
    group_g.join("b")
    group_g.harness.advance(1_000)
    group_g.harness.advance(1_000)
    group_g.sync("a")
    assert group_g.explanation == (
        "g has been in Stable for 0.0 s: SyncGroup of the leader a. Generation 1 with protocol 'range' has 2 members; "
        "a leads. No SyncGroup of this generation has come from b. Who has not sent one in 60.0 s is dropped."
    )
    group_g.sync("b")
    assert group_g.explanation.endswith("a leads.")


def test_a_moved_group_was_loaded_from_the_log() -> None:
    group_g = ExplainedGroup(brokers=3)
    group_g.stable("a")
    controller, partition = group_g.harness.cluster.controller, group_g.harness.cluster.offsets_partition_of("g")
    controller.set_leader(partition, 2, group_g.harness.now_ms, Failover(zombie=True))
    group_g.leave("a")  # at the zombie
    assert group_g.explanation == (
        "g has been in Stable for 0.0 s: loaded from the log. Generation 1 with protocol 'range' has 1 member; a "
        "leads. Broker 1 answers for it as well: it is a zombie."
    )
    controller.set_leader(partition, 3, group_g.harness.now_ms, Failover(zombie=True))
    assert group_g.explanation.endswith("leads. Brokers 1, 2 answer for it as well: they are zombies.")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            Failover(load_ms=3_000),
            "g is being loaded: broker 2 reads __consumer_offsets-0 for 2.0 s more. Requests get "
            "COORDINATOR_LOAD_IN_PROGRESS.",
        ),
        (
            Failover(load_ms=None),
            "g is being loaded: broker 2 reads __consumer_offsets-0 until finish_loading(). Requests get "
            "COORDINATOR_LOAD_IN_PROGRESS.",
        ),
        (
            Failover(load_fails=True),
            "g cannot be had: broker 2 failed to read __consumer_offsets-0. Requests get NOT_COORDINATOR until it has "
            "another leader.",
        ),
    ],
)
def test_a_group_being_loaded(how: Failover, words: str) -> None:
    group_g = ExplainedGroup()
    group_g.stable("a")
    controller, partition = group_g.harness.cluster.controller, group_g.harness.cluster.offsets_partition_of("g")
    controller.set_leader(partition, 2, group_g.harness.now_ms, how)
    group_g.harness.advance(1_000)
    assert group_g.explanation == words


def test_a_group_without_a_coordinator() -> None:
    group_g = ExplainedGroup()
    cluster = group_g.harness.cluster
    cluster.controller.set_leader(cluster.offsets_partition_of("g"), NO_LEADER, group_g.harness.now_ms, Failover())
    assert group_g.explanation == (
        "g has no coordinator: no broker leads __consumer_offsets-0, which is on 1, 2. Who looks for it is told "
        "COORDINATOR_NOT_AVAILABLE."
    )
    cluster.controller.stop_broker(cluster.brokers[2], group_g.harness.now_ms, Failover(), elect=False)
    assert "which is on 1, 2; down: 2. Who" in group_g.explanation


@pytest.mark.fake_cluster(topics={"orders": 6})
@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("PreparingRebalance", "It is held in this state. 1 of 1 members have joined the round."),
        ("CompletingRebalance", "It is held in this state. The SyncGroup of the leader app"),
    ],
)
def test_a_held_group(fake_cluster: FakeCluster, state: str, words: str) -> None:
    with fake_cluster.hold("g", state), WireClient(fake_cluster.coordinator_of("g"), "app") as wire:
        member_id = wire.ask(join_request("g"), JoinGroupResponse).member_id
        wire.send(join_request("g", member_id))
        fake_cluster.wait_for_state("g", state, members=1)
        if state == "CompletingRebalance":
            wire.receive()
            wire.send(SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[]), 3)
            fake_cluster.wait_for_request("SyncGroup")
        assert words in fake_cluster.explain("g")
