"""The control client against a control server: its handles have the results of those of FakeCluster."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio
from confluent_kafka import Producer

from fakebroker import (
    Broker,
    ClusterStopped,
    Condition,
    ConditionNotMet,
    ConfigError,
    FakebrokerError,
    FakeCluster,
    GroupSeed,
    MemberSeed,
    PollError,
    Polling,
    Scaled,
    WaitTimeout,
    actions,
    predicate,
)
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.control import Client
from fakebroker.control.client import client as client_module
from fakebroker.control.client.http import Http, NotFound, Unreachable
from fakebroker.control.routes import records as records_module
from fakebroker.control.server import ControlServer
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.security.acls import AclOperation, ResourceType
from fakebroker.server.fake_cluster import internals
from tests.support.client.wire_producer import WireProducer
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.group_requests import commit_request
from tests.support.trio_runner import in_trio_with_sockets
from tests.support.wire_client import TIMEOUT_S, WireClient, find_coordinator


@pytest.fixture(scope="module")
def control() -> Iterator[ControlHarness]:
    with controlled_cluster(3, {"orders": 4}, clock="manual", token="secret") as harness:
        yield harness


@pytest.fixture
def client(control: ControlHarness) -> Client:
    client = Client(control.server.url, "secret")
    client.reset()
    return client


def test_only_given_options_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []

    def request_json(self: Http, method: str, path: str, body: dict[str, Any], **options: Any) -> None:
        assert method == "POST"
        sent.append((path.removeprefix("/v1/clusters/default"), body))

    monkeypatch.setattr(Http, "request_json", request_json)
    client = Client("http://127.0.0.1:1")
    client.broker(1).stop(elect=False, load_ms=5, zombie=True)
    client.group("g").move_coordinator(to=None, lose_tail=3)
    client.brokers.rolling_restart(stale_ms=1)
    client.broker(2).set_network(accept="refuse")
    assert sent == [
        ("/brokers/1/stop", {"elect": False, "load_ms": 5, "zombie": True}),
        ("/groups/g/move_coordinator", {"to": None, "lose_tail": 3}),
        ("/brokers/rolling_restart", {"stale_ms": 1}),
        ("/brokers/2/set_network", {"accept": "refuse"}),
    ]


def test_pending_offsets_are_in_the_views_of_groups(control: ControlHarness, client: Client) -> None:
    producer = WireProducer(control.cluster, "payments")
    producer.init()
    assert producer.add_offsets("g") == 0
    assert producer.commit_offset("g", ("orders", 1), 5) == 0
    (pending,) = client.group("g").describe().pending_offsets
    assert (pending.producer_id, pending.topic, pending.partition, pending.offset) == (0, "orders", 1, 5)
    assert client.group("g").describe() == control.cluster.group("g").describe() == client.groups()[0]


def test_views_equal_those_of_the_cluster(control: ControlHarness, client: Client) -> None:
    client.group("g").seed(
        ["a", MemberSeed(instance_id="i")], offsets={("orders", 1): 5}, lag={("orders", 1): 2}, topics=["orders"]
    )
    cluster = control.cluster
    assert list(client.brokers) == list(cluster.brokers)
    assert client.brokers.describe() == cluster.brokers.describe()
    assert client.broker(2).describe() == cluster.broker(2).describe() == client.brokers[1]
    assert client.bootstrap_servers == cluster.bootstrap_servers == client.bootstrap_servers_of("PLAINTEXT")
    with pytest.raises(ConfigError, match=r"^listener='PLAIN': expected one of PLAINTEXT; did you mean 'PLAINTEXT'"):
        client.bootstrap_servers_of("PLAIN")
    assert client.group("g").coordinator() == cluster.group("g").coordinator()
    assert client.group("g").describe() == cluster.group("g").describe()
    assert client.group("g").describe().timeline() == cluster.group("g").describe().timeline()
    assert client.group("g").offsets() == cluster.group("g").offsets()
    assert client.group("g").lag() == cluster.group("g").lag() == {("orders", 1): 2}
    assert client.group("g").timeline() == cluster.group("g").timeline()
    assert client.group("g").explain() == cluster.group("g").explain()
    assert client.deadlines() == cluster.deadlines()
    assert client.deadlines(limit=1) == cluster.deadlines(limit=1) != []
    assert client.topics() == cluster.topics()
    assert client.topic("orders").describe() == cluster.topic("orders").describe()
    partition = client.topic("orders").partition(3)
    assert partition.describe() == cluster.topic("orders").partition(3).describe()
    assert client.report().startswith(cluster.report())
    assert [(row["group_id"], row["lag"]) for row in client.group_rows(state="Stable")] == [("g", 2)]
    assert client.overview()["members"] == 2


def test_dropped_changes_are_those_of_the_cluster(control: ControlHarness, client: Client) -> None:
    history = internals(control.cluster).cluster.history
    history.max_moments_of_one = 1
    client.group("g").seed(["a", "b"], topics=["orders"])
    client.group("g").rebalance()
    assert client.group("g").timeline().dropped == client.groups()[0].timeline().dropped == history.dropped_of("g")
    assert history.dropped_of("g").count > 0
    history.max_moments, history.max_without_moments = 0, 0
    client.group("h").seed(["a"], topics=["orders"])
    assert client.group("h").timeline().dropped == history.dropped_of("h")
    assert not client.group("h").timeline().dropped.is_exact
    assert client.group("never").explain().endswith("existed: earlier changes may have been dropped.")


def test_views_of_a_missing_group_equal_those_of_the_cluster(control: ControlHarness, client: Client) -> None:
    theirs, ours = client.group("none"), control.cluster.group("none")
    assert theirs.describe() == ours.describe()
    assert theirs.describe().state == "Dead"
    assert theirs.coordinator() == ours.coordinator()
    assert theirs.offsets() == ours.offsets() == {}
    assert theirs.lag() == ours.lag() == {}
    assert theirs.timeline() == ours.timeline()
    assert theirs.explain() == ours.explain()


def test_groups_are_read_in_pages(control: ControlHarness, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_GROUPS_PER_REQUEST", 10)
    client.seed_groups([GroupSeed(group_id=f"g{number}", members=1, topics=["orders"]) for number in range(25)])
    expected = sorted(control.cluster.groups(), key=lambda group: group.group_id)
    groups = client.groups()
    assert groups == expected
    assert [group.timeline() for group in groups] == [group.timeline() for group in expected]


def test_any_group_id_can_be_used(client: Client, subtests: pytest.Subtests) -> None:
    for group_id in (
        "",
        ".",
        "..",
        "...",
        "~",
        "~2E",
        "~7E.",
        "a~b",
        "a/b",
        "%2E",
        "?x=1",
        "#",
        " ",
        "\n",
        "日本",
        "seed",
    ):
        with subtests.test(group_id=group_id):
            client.reset()
            client.group(group_id).seed(offsets={"orders-0": 3}, lag={"orders-0": 0})
            assert client.group(group_id).describe().group_id == group_id
            assert client.group(group_id).offsets()["orders", 0].offset == 3
            assert client.group(group_id).timeline().group_id == group_id
            assert [group.group_id for group in client.groups()] == [group_id]


def test_commands_for_brokers_topics_and_coordinators(control: ControlHarness, client: Client) -> None:
    cluster = internals(control.cluster).cluster
    client.broker(1).stop(elect=False)
    assert not client.brokers[0].up
    client.broker(1).start()
    client.broker(2).restart(load_ms=0)
    client.brokers.rolling_restart()
    client.broker(3).upgrade("2.8")
    assert client.brokers.add(Broker(as_version="3.0")).node_id == 4
    client.broker(4).set_network(accept="refuse")
    client.broker(4).remove()
    client.topic("t").create(2, configs={"retention.ms": 5000, "cleanup.policy": "compact,delete"})
    created = cluster.topics.get("t")
    assert created is not None
    assert created.configs == {"retention.ms": "5000", "cleanup.policy": "compact,delete"}
    client.topic("t").create_partitions(3)
    client.topic("t").delete()
    client.group("g").seed(1, topics=["orders"])
    to = client.group("g").coordinator().node_id % 3 + 1
    client.group("g").move_coordinator(to, load_ms=None)
    client.brokers.finish_loading()
    assert client.group("g").coordinator().node_id == to
    client.topic("__consumer_offsets").partition(cluster.offsets_partition_of("g").index).move_leader(None)
    client.brokers.stop_zombies()
    with pytest.raises(ConfigError, match=r"^no group 'g': expected a group that has a coordinator now$"):
        client.group("g").coordinator()


def test_records_that_are_committed(control: ControlHarness, client: Client) -> None:
    """A transaction was aborted, one was committed, and one is open; a wait sees when it ends."""
    cluster = control.cluster
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payments", "linger.ms": 0}
    )
    producer.init_transactions(10)
    orders, remote = cluster.topic("orders"), client.topic("orders")
    for value, end in (("a", producer.abort_transaction), ("b", producer.commit_transaction), ("c", None)):
        producer.begin_transaction()
        producer.produce("orders", value, partition=0)
        producer.flush(10)
        if end is not None:
            end(10)
    for each in (orders, remote):
        assert [record.value for record in each.records()] == [b"a", b"b", b"c"]
        assert [record.value for record in each.records(committed=True)] == [b"b"]
    assert "  orders-0   3 (1 aborted, an open transaction from 4 on)" in cluster.report()
    for holds, topic in ((cluster.holds, orders), (client.holds, remote)):
        assert holds(topic.has(3))
        assert not holds(topic.has(2, committed=True))
    producer.commit_transaction(10)
    assert [record.value for record in client.wait(remote.has(2, committed=True))] == [b"b", b"c"]
    with pytest.raises(ConfigError, match=r"committed='yes': expected true or false"):
        orders.records(committed="yes")  # type: ignore[arg-type]  # wrong on purpose


def test_records_equal_those_of_the_cluster(
    control: ControlHarness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "MAX_RECORDS_BYTES", 10)
    headers = [("h", b"\xff"), ("h", None)]
    assert client.topic("orders").produce(["a", b"\xff", None], partition=1, headers=headers) == [
        (1, 0),
        (1, 1),
        (1, 2),
    ]
    client.topic("orders").produce([b"%09d" % number for number in range(20)], key="k")
    assert client.topic("orders").records() == control.cluster.topic("orders").records()
    assert [each.value for each in client.topic("orders").records(partition=1)][:3] == [b"a", b"\xff", None]
    with pytest.raises(ConfigError, match=r"values\[0\]=5: expected a string or bytes or none"):
        client.topic("orders").produce([5])  # type: ignore[list-item]  # The type is wrong on purpose.
    with pytest.raises(ConfigError, match="no topic 'x': expected one of"):
        client.topic("x").records()


def test_commands_for_reassignments(control: ControlHarness, client: Client) -> None:
    cluster = internals(control.cluster).cluster
    topic = client.topic("__consumer_offsets")

    def move(to: int) -> tuple[int, ...]:
        partition = cluster.topics.offsets_partition(0)
        internals(control.cluster).run(lambda: cluster.controller.reassign(partition, [to], cluster.now_ms, Failover()))
        return partition.adding

    move(1)
    with topic.hold_reassignments():
        assert move(2) == (2,)
    assert move(2) == ()
    topic.hold_reassignments()
    assert move(3) == (3,)
    topic.release_reassignments()
    with pytest.raises(ConfigError, match="expected a topic whose reassignments are held, but there is none"):
        topic.release_reassignments()
    topic.hold_reassignments()
    assert move(1) == (1,)
    topic.finish_reassignments()
    assert cluster.topics.offsets_partition(0).replicas == (1,)


def test_commands_for_groups(client: Client) -> None:
    client.seed_groups([GroupSeed(group_id="g", members=["a", MemberSeed(client_id="s", instance_id="i")])])
    with client.group("g").hold("PreparingRebalance"):
        client.group("g").rebalance()
        assert client.group("g").describe().state == "PreparingRebalance"
        client.group("g").choose_leader("a")
        client.group("g").release("PreparingRebalance")
    client.group("g").delay_sync("a", 5)
    client.group("g").release_sync("a")
    client.group("g").fence_instance("i")
    client.group("g").evict("i")
    client.group("g").expire("a")
    assert client.group("g").describe().members == ()


def test_faults_and_the_requests_that_they_matched(control: ControlHarness, client: Client) -> None:
    with client.inject_fault("Heartbeat", error="NOT_COORDINATOR", group="g") as fault:
        with WireClient(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
            wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        (view,) = client.faults()
        assert view == fault.describe() == control.cluster.faults()[0]
        assert view.rule == {"api": "Heartbeat", "error": "NOT_COORDINATOR", "group": "g"}
    assert client.faults() == []
    assert fault.hits == 1
    fault.remove()
    client.inject_fault(None, drop=True)
    client.clear_faults()
    assert client.faults() == []
    kept = client.inject_fault(api="Heartbeat", error=ErrorCode.NOT_COORDINATOR, delay_s=(1, 2))
    assert client.faults() == control.cluster.faults()
    kept.remove()
    assert (client.faults(), kept.hits) == ([], 0)
    assert client.journal.count("Heartbeat", error="NOT_COORDINATOR") == 1
    client.journal.assert_order("FindCoordinator", "Heartbeat")
    (call,) = client.wait(client.requested("Heartbeat", error=ErrorCode.NOT_COORDINATOR))
    assert (call.api.name, call.errors) == ("Heartbeat", (ErrorCode.NOT_COORDINATOR,))
    assert [each.group_ids for each in client.journal.requests("Heartbeat")] == [call.group_ids] == [("g",)]


def test_faults_that_act_on_the_cluster(control: ControlHarness, client: Client) -> None:
    fault = client.inject_fault("Heartbeat", nth=2, then=actions.broker(1).start(), delay_before_s=0)
    with WireClient(control.cluster.brokers[0]) as wire:
        for _ in range(2):
            wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
    (error,) = fault.errors
    assert (client.action_errors(), client.faults()[0].errors) == ([error], (error,))
    assert client.journal.requests("Heartbeat")[1].action_errors == (error,)
    assert client.faults() == control.cluster.faults()
    fault.remove()
    assert (client.faults(), fault.errors) == ([], (error,))
    client.inject_fault("Heartbeat", then={"do": "broker.start", "node_id": 1})
    assert client.faults()[0].rule["then"] == actions.broker(1).start()
    with pytest.raises(ConfigError, match=r"then=<function .*: expected actions or events: functions cannot be"):
        client.inject_fault("Heartbeat", then=lambda call: None)
    with pytest.raises(ConfigError, match=r"then\.do='stop': expected one of "):
        client.inject_fault("Heartbeat", then={"do": "stop"})


def test_permissions(control: ControlHarness, client: Client) -> None:
    def may_read() -> bool:
        acls = internals(control.cluster).cluster.acls
        return acls is None or acls.allows("User:alice", "h", AclOperation.READ, ResourceType.GROUP, "g")

    with client.acls.deny("alice", "READ", group="g"):
        assert not may_read()
    assert may_read()
    with client.acls.deny("alice", "ALL", group="g", prefixed=True):
        client.acls.remove("alice", "ALL", "deny", group="g", prefixed=True)
        assert may_read()
    client.acls.remove("*", "ALL", "allow", group="*")
    assert not may_read()
    client.acls.allow("alice", "READ", group="g")
    assert may_read()
    with pytest.raises(ConfigError, match="expected an ACL that exists"):
        client.acls.remove("alice", "WRITE", "allow", topic="x")
    with pytest.raises(ConfigError, match="no resource: expected one of"):
        client.acls.deny("alice", "READ")


def test_appends_fail(control: ControlHarness, client: Client) -> None:
    with client.group("g").fail_append(ErrorCode.KAFKA_STORAGE_ERROR, times=2) as failure:
        assert failure.describe().error == "KAFKA_STORAGE_ERROR"
        with WireClient(control.cluster.group("g").coordinator()) as wire:
            response = wire.ask(commit_request(7), OffsetCommitResponse, 8)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert failure.hits == 1
    failures = internals(control.cluster).cluster.append_failures
    assert failures.active == []
    failure.remove()
    assert failure.hits == 1
    with pytest.raises(ConfigError, match=r"error='X': expected an error of an append, one of NOT_ENOUGH_REPLICAS, "):
        client.group("g").fail_append("X")
    kept = client.group("g").fail_append(times=None)
    assert kept.id != failure.id
    client.clear_faults()
    assert failures.active == []


def test_a_reset_removes_faults_and_failures_before_their_handles_do(client: Client) -> None:
    with client.inject_fault("Heartbeat", drop=True) as fault, client.group("g").fail_append() as failure:
        client.reset()
    with pytest.raises(NotFound, match=rf"^no fault '{fault.id}': expected "):
        fault.remove()
    with pytest.raises(NotFound, match=rf"^no append_failure '{failure.id}': expected "):
        failure.remove()


def test_handles_of_a_deleted_cluster_say_so(client: Client) -> None:
    other = client.create_cluster("other", brokers=1)
    fault, failure = other.inject_fault("Heartbeat", drop=True, may_miss=True), other.group("g").fail_append()
    other.delete_cluster()
    uses = (lambda: fault.hits, lambda: fault.errors, fault.remove, lambda: failure.hits, failure.remove)
    for use in uses:
        with pytest.raises(ConfigError, match=r"^no cluster 'other'"):
            use()


def test_clock_and_snapshots(client: Client) -> None:
    client.group("g").seed(1, topics=["orders"], lag=0)
    client.advance(1.5)
    kept = client.snapshot()
    expired = client.advance_to_next_deadline()
    assert expired is not None
    assert [deadline.kind for deadline in expired] == ["session"]
    client.restore(kept)
    assert len(client.group("g").describe().members) == 1


def test_waits_return_what_was_waited_for_or_time_out(control: ControlHarness, client: Client) -> None:
    group = client.group("g")
    group.seed(2, topics=["orders"], offsets={"orders-0": 5}, lag={"orders-0": 0})
    client.group("consumer").seed(["m"], topics=["orders"], type="consumer")
    client.transaction("t").seed(records={"orders-1": 1})
    with WireClient(control.cluster.brokers[0]) as wire:
        wire.ask(find_coordinator("g"), FindCoordinatorResponse)
    assert client.wait(group.stable(members=2)) == group.describe()
    assert client.wait(group.state(above=0)).generation_id == 1
    assert client.wait(client.group("consumer").member("m", "STABLE", above=0)) == client.group("consumer").describe()
    assert client.wait(group.committed("orders-0", at_least=5)) == group.offsets()["orders", 0]
    assert client.wait(client.transaction("t").state("Ongoing")) == client.transaction("t").describe()
    assert client.wait(client.topic("orders").has(6)) == client.topic("orders").records()
    assert client.wait(client.topic("orders").partition(1).has(1)) == client.topic("orders").records(1)
    assert client.wait(client.topic("orders").exists(4)) == client.topic("orders").describe()
    assert client.wait(client.broker(1).up()) == client.brokers[0]
    assert [str(call) for call in client.wait(client.requested())] == list(map(str, client.journal.requests()))
    both = client.wait(group.stable() & client.broker(1).up() & ~client.broker(9).up())
    assert both == (group.describe(), client.brokers[0], None)
    assert client.wait(group.stable() | client.broker(9).up()) is None
    with pytest.raises(
        WaitTimeout, match=r"^not reached within 0 s: group\('g'\)\.state\(state='Empty'\)\ng has been in"
    ):
        client.wait(group.state("Empty"), timeout_s=0)


def test_waits_longer_than_the_limit_of_a_request_are_repeated(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_WAIT_S", 0.01)
    with pytest.raises(WaitTimeout, match=r"^not reached within 0\.03 s: group\('g'\)\.state\(state='Empty'\)\n"):
        client.wait(client.group("g").state("Empty"), timeout_s=0.03)
    monkeypatch.undo()
    client.group("g").seed(1, topics=["orders"])
    assert client.wait(client.group("g").stable(), timeout_s=100).state == "Stable"


def test_a_timeout_has_fields(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_WAIT_S", 0.01)
    with pytest.raises(WaitTimeout) as caught:
        client.wait(client.group("within 0.01 s: ").state(above=3), timeout_s=0.02)
    error = caught.value
    assert (error.condition, error.timeout_s) == ("group('within 0.01 s: ').state(above=3)", 0.02)
    assert "there is no such group" in error.state
    assert str(error) == f"not reached within 0.02 s: {error.condition}\n{error.state}"


def pass_through_stable(cluster: FakeCluster) -> None:
    """Make a group that is Stable for a moment, within one step of the cluster."""

    def steps() -> None:
        cluster.group("g").seed(1, topics=["orders"], generation=5)
        cluster.group("g").evict(cluster.group("g").describe().members[0].member_id)

    internals(cluster).run(steps)
    assert cluster.group("g").describe().state == "Empty"


def test_a_state_between_two_requests_of_a_wait_is_not_missed(
    control: ControlHarness, client: Client, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    request_json = Http.request_json
    requests: list[str] = []

    def request_and_change(self: Http, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        requests.append(path)
        try:
            return request_json(self, method, path, *arguments, **options)
        finally:
            if len(requests) == 1:
                pass_through_stable(control.cluster)

    monkeypatch.setattr(Http, "request_json", request_and_change)
    monkeypatch.setattr(client_module, "MAX_WAIT_S", 0.01)
    group = client.group("g")
    conditions: list[Condition[Any]] = [group.stable(members=1), group.state(above=4)]
    for condition in (*conditions, conditions[0] & conditions[1]):
        for polling in (None, [list]):
            with subtests.test(condition=str(condition), polling=polling):
                control.cluster.reset()
                requests.clear()
                found = client.wait(condition, TIMEOUT_S, polling=polling)
                view = found[0] if isinstance(found, tuple) else found
                assert (view.state, view.generation_id, len(view.members)) == ("Stable", 5, 1)
                assert set(requests[:2]) == {"/v1/clusters/default/wait"}


def test_waits_poll(control: ControlHarness, client: Client) -> None:
    def seed() -> str:
        client.group("g").seed(1, topics=["orders"], offsets={"orders-0": 0})
        return "record"

    polled = Polling([seed])
    group = client.wait(client.group("g").stable(members=1), polling=polled)
    assert (group, polled.records) == (control.cluster.group("g").describe(), ["record"])
    assert client.wait(client.group("g").committed("orders-0", at_least=0), polling=polled).offset == 0
    assert polled.records == ["record"]
    polled = Polling([lambda: 1])
    with pytest.raises(WaitTimeout) as late:
        client.wait(client.group("g").state("Empty"), polling=polled, timeout_s=0.01)
    assert (polled.records[0], late.value.timeout_s) == (1, 0.01)
    polled = Polling([lambda: 1, lambda: 1 // 0])
    with pytest.raises(PollError, match="ZeroDivisionError"):
        client.wait(client.requested("Heartbeat"), polling=polled)
    assert polled.records == [1]


def test_conditions_are_looked_at_once_or_for_some_time(control: ControlHarness, client: Client) -> None:
    group, broker = client.group("g"), client.broker(1)
    assert not client.holds(group.stable())
    with pytest.raises(ConditionNotMet, match=r"^group\('g'\)\.stable\(\): it does not hold\ng is Dead: "):
        client.expect(group.stable())
    group.seed(1, topics=["orders"])
    assert client.holds(group.stable() & broker.up())
    client.expect(group.stable() & ~client.topic("orders").has(1))
    client.stays(group.stable(), for_s=0.01)
    with pytest.raises(ConditionNotMet, match=r"^it did not hold for 60 s: ~broker\(1\)\.up\(\)\nbroker 1 is up$"):
        client.stays(~broker.up(), for_s=60)


def test_predicates_are_called_by_the_client(control: ControlHarness, client: Client) -> None:
    calls: list[int] = []

    def is_third_call() -> str:
        calls.append(1)
        return "third" if len(calls) == 3 else ""

    third = predicate("the third call", is_third_call)
    assert client.wait(third) == "third"
    calls.clear()
    assert client.wait(client.broker(1).up() & third) == (client.brokers[0], "third")
    assert client.holds(predicate("true", lambda: True) & client.broker(1).up())
    never = predicate("never", lambda: False)
    client.stays(~never, for_s=0.01)
    with pytest.raises(WaitTimeout, match=r"^not reached within 0\.01 s: never & broker\(1\)\.up\(\)\nbroker 1 is up"):
        client.wait(never & client.broker(1).up(), timeout_s=0.01)
    with pytest.raises(ConfigError, match="condition='never': expected a condition without predicates"):
        client.expect(never)


@in_trio_with_sockets
async def test_tasks_wait_without_blocking_their_loop() -> None:
    async with FakeCluster(1, {"orders": 1}) as cluster:
        with ControlServer(cluster) as server:
            client = Client(server.url)
            with pytest.raises(FakebrokerError, match=r"wait\(\) would block .*: use wait_async\(\)$"):
                client.wait(client.group("g").stable())
            with trio.fail_after(TIMEOUT_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.wait_async, client.group("g").stable())
                    nursery.start_soon(client.stays_async, client.broker(1).up(), 0.01)
                    cluster.group("g").seed(1)


def test_a_wait_ends_when_the_cluster_is_deleted(client: Client) -> None:
    other = client.create_cluster("other", brokers=1)
    polls: list[int] = []

    def delete() -> int:
        other.delete_cluster()
        polls.append(1)
        return len(polls)

    polled = Polling([delete])
    with pytest.raises(ClusterStopped, match=r"^the cluster stopped during a wait: no cluster 'other'"):
        other.wait(other.group("g").stable(), polling=polled)
    assert polled.records == [1]
    with pytest.raises(ConfigError, match=r"^no cluster 'other'"):
        other.wait(other.group("g").stable(), polling=polled)
    assert polls == [1]


def test_a_group_id_must_be_a_string(client: Client) -> None:
    wrong: Any = b"g"
    with pytest.raises(ConfigError, match=r"^group_id=b'g': expected a string$"):
        client.group(wrong)


def test_further_clusters_are_created_and_deleted(client: Client) -> None:
    other = client.create_cluster("other", brokers=[Broker(as_version="2.8")], clock=Scaled(10))
    assert len(other.brokers) == 1
    assert other.overview()["clock"]["kind"] == "scaled"
    other.delete_cluster()
    with pytest.raises(ConfigError, match=r"^no cluster 'other': expected one of default$"):
        other.group("g").describe()
    with pytest.raises(ConfigError, match=r"^no cluster 'other': expected one of default$"):
        other.group("g").timeline()


def test_errors_name_the_argument_and_what_was_expected(control: ControlHarness, client: Client) -> None:
    with pytest.raises(NotFound, match=r"^no broker 9: expected one of 1, 2, 3$") as caught:
        client.broker(9).stop()
    assert (caught.value.field, caught.value.value, caught.value.expected) == ("broker", 9, "one of 1, 2, 3")
    with pytest.raises(ConfigError, match=r"^node_id=1: expected a broker that is down: there is none$"):
        client.broker(1).start()
    with pytest.raises(ConfigError, match=r"^load_ms=-1: expected "):
        client.broker(1).stop(load_ms=-1)
    with pytest.raises(ConfigError, match=r"^url='localhost': expected a URL such as"):
        Client("localhost")
    with pytest.raises(ConfigError, match=r"^token: expected printable characters of Latin-1$"):
        Client(control.server.url, "geheim\N{KEY}")
    with pytest.raises(FakebrokerError, match="invalid token"):
        Client(control.server.url, "wrong").reset()


def test_a_server_that_does_not_respond_is_an_error_with_its_url() -> None:
    with controlled_cluster(1) as control:
        url = control.server.url
    with pytest.raises(Unreachable, match=rf"^no response from {url}: Connection refused$"):
        Client(url).reset()


def test_filters_of_requests(control: ControlHarness, client: Client) -> None:
    broker = control.cluster.brokers[0]
    with WireClient(broker, "app") as wire, client.inject_fault("OffsetCommit", error="NOT_COORDINATOR", times=1):
        wire.ask(commit_request(1, partition=1), OffsetCommitResponse, 8)
        static = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
        wire.ask(static, HeartbeatResponse)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("OffsetCommit", {"topic": "orders"}),
        ("OffsetCommit", {"partition": "orders-1"}),
        ("OffsetCommit", {"topic": "orders", "partition": 1}),
        ("OffsetCommit", {"fault": True}),
        ("OffsetCommit", {"version": 8}),
        ("Heartbeat", {"instance_id": "i"}),
        ("Heartbeat", {"member": "i"}),
        ("Heartbeat", {"member": "app"}),
    ]
    for api, filters in cases:
        assert [call.api.name for call in client.journal.requests(**filters)] == [api], filters
        assert client.journal.count(**filters) == 1
        client.journal.assert_never("JoinGroup", **filters)
        client.wait(client.requested(api, **filters), timeout_s=0)
