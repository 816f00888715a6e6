"""The proposal `rewrite` over TCP: three consumers through joins, a crash, a pause, topic changes and failovers."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fakebroker import FakeCluster
from fakebroker.client.member.effects import Assigned, Fatal, Revoked
from fakebroker.client.member.rewrite.states import RewriteMemberState as State
from fakebroker.errors import ErrorCode
from fakebroker.proposals.consumer_rewrite.rewrite_broker import coordinator_at
from fakebroker.proposals.consumer_rewrite.states import READY, STEADY, CoordinatorState
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from fakebroker.server.fake_cluster import internals
from fakebroker.server.journal_files import read_journal
from tests.support.client.rewrite_over_tcp import ConsumersOverTcp
from tests.support.wire_client import WireClient

SESSION_MS = 9_000
NAMES = ("one", "two", "three")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(3, {"t": 6}, seed=1, proposals=["rewrite"], clock="manual") as running:
        yield running


@pytest.fixture
def group(cluster: FakeCluster) -> Iterator[ConsumersOverTcp]:
    with closing(ConsumersOverTcp(cluster, NAMES, topics=("t",))) as consumers:
        yield consumers


def state_at_coordinator(cluster: FakeCluster) -> CoordinatorState:
    def state() -> CoordinatorState:
        broker = internals(cluster).cluster.coordinator_of("g")
        assert broker is not None
        return coordinator_at(broker).state_of("g")

    return internals(cluster).run(state)


def check_ownership(group: ConsumersOverTcp, partitions: int, *names: str) -> None:
    """Check that these consumers, and no others, own all partitions of the topic, each of them one consumer."""
    owners = group.owners()
    assert sorted(owners) == [("t", index) for index in range(partitions)]
    assert all(len(each) == 1 for each in owners.values())
    assert sorted({name for each in owners.values() for name in each}) == sorted(names)
    for name in names:
        assert group[name].member.state is State.PART_OF_GROUP
        assert group[name].member.is_in_generation


def start_all(group: ConsumersOverTcp) -> None:
    for name in NAMES:
        group.start(name)
    group.advance(SESSION_MS)
    check_ownership(group, 6, *NAMES)


def test_three_consumers_through_every_scenario(cluster: FakeCluster, group: ConsumersOverTcp) -> None:
    start_all(group)
    assert len(group.generations()) == 1

    # A crash is noticed after a session timeout; the others take the partitions over.
    group["three"].crash(group.now_ms)
    group.advance(2 * SESSION_MS)
    check_ownership(group, 6, "one", "two")
    before = group["one"].member.generation_id

    # A slow consumer: its connection is broken, the other one gets all partitions, and it joins as a new consumer.
    slow_id = group["two"].member.member_id
    group.paused.add("two")
    group.advance(2 * SESSION_MS)
    assert group["one"].member.generation_id == before + 1
    assert len(group["one"].partitions) == 6
    group.paused.clear()
    group.advance(SESSION_MS)
    check_ownership(group, 6, "one", "two")
    assert group["two"].member.member_id != slow_id
    assert [each.lost for each in group["two"].events if isinstance(each, Revoked)][-1]

    # New partitions.
    cluster.topic("t").create_partitions(8)
    group.advance(SESSION_MS)
    check_ownership(group, 8, "one", "two")

    # The coordinator fails over: the generation survives, and consumption is not interrupted.
    generations = group.generations()
    coordinator = internals(cluster).run(lambda: internals(cluster).cluster.coordinator_of("g"))
    assert coordinator is not None
    assigned = sum(isinstance(each, Assigned) for each in group["one"].events)
    cluster.broker(coordinator.node_id).stop()
    group.advance(SESSION_MS)
    assert group.generations() == generations
    assert sum(isinstance(each, Assigned) for each in group["one"].events) == assigned
    check_ownership(group, 8, "one", "two")
    assert state_at_coordinator(cluster) is STEADY
    assert not [each for name in NAMES for each in group[name].events if isinstance(each, Fatal)]


def test_a_short_pause_is_forgiven_if_no_other_consumer_has_noticed(
    cluster: FakeCluster, group: ConsumersOverTcp
) -> None:
    start_all(group)
    generations = group.generations()
    group.paused.update(NAMES)
    group.advance(SESSION_MS + 1)  # all of them have expired, and their connections are broken
    group.paused.clear()
    group.advance(SESSION_MS)
    assert group.generations() == generations
    assert state_at_coordinator(cluster) is STEADY
    check_ownership(group, 6, *NAMES)


def test_one_slow_consumer_returns_before_the_others_send_heartbeats(
    cluster: FakeCluster, group: ConsumersOverTcp
) -> None:
    group.start("one")
    group.start("two")
    group.advance(SESSION_MS)
    generation_id = group["one"].member.generation_id
    group.paused.add("two")
    left_ms = 0.0
    broker = internals(cluster).run(lambda: internals(cluster).cluster.coordinator_of("g"))
    assert broker is not None
    found = internals(cluster).run(lambda: coordinator_at(broker).group("g"))
    assert found is not None
    consumer = found.consumers[group["two"].member.member_id]
    left_ms = consumer.deadline_ms - group.now_ms
    group.advance(round(left_ms) - 1)
    group.paused.add("one")
    group.advance(1)
    assert list(consumer.group.expired) == [group["two"].member.member_id]
    group.paused.discard("two")
    group.advance(200)  # it notices that its connection is broken, and finds the coordinator again
    group.paused.clear()
    group.advance(SESSION_MS)
    assert group.generations() == {generation_id}
    assert state_at_coordinator(cluster) is STEADY


@pytest.mark.parametrize("phase", ["announced", "joining"])
def test_the_coordinator_fails_during_a_rebalance(cluster: FakeCluster, group: ConsumersOverTcp, phase: str) -> None:
    group.start("one")
    group.start("two")
    group.advance(SESSION_MS)
    group.start("three")  # its JoinGroup waits
    if phase == "joining":
        group.paused.add("two")
        group.advance(SESSION_MS // 3)
        assert group["one"].member.state is State.STOPPED
    coordinator = internals(cluster).run(lambda: internals(cluster).cluster.coordinator_of("g"))
    assert coordinator is not None
    cluster.broker(coordinator.node_id).stop()
    group.paused.clear()
    group.advance(3 * SESSION_MS)
    check_ownership(group, 6, *NAMES)
    assert len(group.generations()) == 1


def test_a_coordinator_that_loads_is_retried(cluster: FakeCluster, group: ConsumersOverTcp) -> None:
    group.start("one")
    group.advance(100)
    before = internals(cluster).run(lambda: internals(cluster).cluster.coordinator_of("g"))
    assert before is not None
    to = next(broker.node_id for broker in cluster.brokers if broker.node_id != before.node_id)
    cluster.group("g").move_coordinator(to=to, load_ms=None)
    group.start("two")
    group.advance(SESSION_MS // 2)
    assert group["one"].member.is_in_generation
    assert group["two"].member.state is State.DISCOVERING
    cluster.brokers.finish_loading()
    assert state_at_coordinator(cluster) is READY
    group.advance(SESSION_MS)
    check_ownership(group, 6, "one", "two")


def test_a_wildcard_subscription_follows_the_topics_of_the_cluster(cluster: FakeCluster) -> None:
    with closing(ConsumersOverTcp(cluster, ["wild"], pattern="t.*")) as group:
        group.start("wild")
        assert len(group["wild"].partitions) == 6
        cluster.topic("t2").create(2)
        cluster.topic("other").create(2)
        group.advance(SESSION_MS)
        assert len(group["wild"].partitions) == 6  # the coordinator does not know the pattern
        group["wild"].member.metadata({"t": 6, "t2": 2, "other": 2}, group.now_ms)
        group.settle()
        assert {topic for topic, _ in group["wild"].partitions} == {"t", "t2"}


def test_offsets_are_committed_before_a_rebalance_and_found_by_the_next_owner(
    cluster: FakeCluster, group: ConsumersOverTcp
) -> None:
    group.start("one")
    for index in range(6):
        group["one"].member.positions["t", index] = 100 + index
    group.start("two")
    group.advance(SESSION_MS)
    check_ownership(group, 6, "one", "two")
    for name in ("one", "two"):
        member = group[name].member
        assert member.positions == {("t", index): 100 + index for _, index in member.assigned}


def test_an_unknown_strategy_stops_the_consumer(cluster: FakeCluster) -> None:
    with closing(ConsumersOverTcp(cluster, ["one"], topics=("t",), strategy="sticky")) as group:
        group.start("one")
        (fatal,) = group["one"].events
        assert isinstance(fatal, Fatal)
        assert fatal.error is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_brokers_advertise_the_versions_of_the_proposal_and_reject_others(cluster: FakeCluster) -> None:
    with WireClient(cluster.brokers[0]) as wire:
        answer = wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert (ranges[8], ranges[10], ranges[11], ranges[12]) == ((0, 10), (0, 6), (0, 0), (0, 0))
        assert not ranges.keys() & {13, 14}
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
        wire.send(sync, 0)
        assert wire.is_closed_by_broker()


def test_explanations_name_the_consumers_that_a_rebalance_waits_for(
    cluster: FakeCluster, group: ConsumersOverTcp
) -> None:
    group.start("one")
    member_id = group["one"].member.member_id
    node_id = internals(group.cluster).run(lambda: internals(cluster).cluster.coordinator_of("g").node_id)  # type: ignore[union-attr]  # up
    assert cluster.group("g").explain() == (
        f"g is in state 'Steady' at broker {node_id}, generation 1. Its consumers are {member_id}."
    )
    group.start("two")
    assert cluster.group("g").explain() == (
        f"g is in state 'Prepare for rebalance' at broker {node_id}, generation 1. Its consumers are {member_id}. "
        f"The rebalance waits for the JoinGroup of {member_id}, whose session expires in 9 s. "
        "JoinGroups without a consumer id that wait: 1."
    )
    group.advance(SESSION_MS)
    group.paused.update(NAMES)
    group.advance(2 * SESSION_MS)
    assert "have expired. A late heartbeat cancels the rebalance" in cluster.group("g").explain()
    cluster.group("g").move_coordinator(to=3 if node_id != 3 else 2)
    assert "It has been loaded, and waits for the first heartbeat of " in cluster.group("g").explain()


def test_the_journal_of_the_proposal_can_be_exported(
    cluster: FakeCluster, group: ConsumersOverTcp, tmp_path: pytest.TempPathFactory
) -> None:
    group.start("one")
    file = f"{tmp_path}/journal.jsonl"
    cluster.journal.export(file)
    (join,) = read_journal(file).requests("JoinGroup")
    assert join.api.proposal == "rewrite"
    assert (join.group_ids, join.member_ids) == (("g",), (group["one"].member.member_id,))
    assert join.request.topics == ["t"]
    assert [each.topic_name for each in join.response.partitions_to_own] == ["t"]
