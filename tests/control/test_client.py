"""The control client against a control server: its methods are those of FakeCluster and have the same results."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakebroker import (
    Broker,
    ClusterStopped,
    ConfigError,
    FakebrokerError,
    FakeCluster,
    GroupSeed,
    IncompleteHistoryError,
    MemberSeed,
    PollError,
    Scaled,
    WaitTimeout,
)
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.control import Client
from fakebroker.control.client import client as client_module
from fakebroker.control.client.http import Unreachable
from fakebroker.control.routes import records as records_module
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.security.acls import AclOperation, ResourceType
from tests.support.client.wire_producer import WireProducer
from tests.support.control.control_server import ControlHarness, controlled_cluster
from tests.support.group_requests import commit_request
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


WITHOUT_CLIENT_METHOD = {
    # These need the process of the cluster, or more than one request. Other methods need a method of `Client`.
    "call", "call_async", "clock", "cluster", "connections", "is_cluster_thread",
    "journal_dropped", "report", "response_times", "start_task", "tls", "wait_until", "watch", "when_stopped",
}  # fmt: skip


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


def test_methods_and_signatures_are_those_of_the_cluster() -> None:
    names = {name for name in dir(FakeCluster) if not name.startswith("_") and not name.endswith("_async")}
    assert names - WITHOUT_CLIENT_METHOD <= set(dir(Client))
    for name in sorted(names & set(dir(Client))):
        of_client, of_cluster = getattr(Client, name), getattr(FakeCluster, name)
        assert inspect.isfunction(of_client) == inspect.isfunction(of_cluster), name
        if inspect.isfunction(of_client):
            assert parameters(of_client) == parameters(of_cluster), name


def test_only_given_options_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    client = Client("http://127.0.0.1:1")

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        sent.append(body)
        return {"result": None}

    monkeypatch.setattr(client, "post", post)
    client.stop_broker(1, elect=False, load_ms=5, zombie=True)
    client.move_coordinator("g", to=None, lose_tail=3)
    client.rolling_restart(stale_ms=1)
    client.set_broker(2, accept="refuse")
    assert sent == [
        {"do": "stop_broker", "node_id": 1, "elect": False, "load_ms": 5, "zombie": True},
        {"do": "move_coordinator", "group_id": "g", "to": None, "lose_tail": 3},
        {"do": "rolling_restart", "stale_ms": 1},
        {"do": "set_broker", "node_id": 2, "accept": "refuse"},
    ]


def test_pending_offsets_are_in_the_views_of_groups(control: ControlHarness, client: Client) -> None:
    producer = WireProducer(control.cluster, "payments")
    producer.init()
    assert producer.add_offsets("g") == 0
    assert producer.commit_offset("g", ("orders", 1), 5) == 0
    (pending,) = client.group("g").pending_offsets
    assert (pending.producer_id, pending.topic, pending.partition, pending.offset) == (0, "orders", 1, 5)
    assert client.group("g") == control.cluster.group("g") == client.groups()[0]


def test_views_equal_those_of_the_cluster(control: ControlHarness, client: Client) -> None:
    client.seed_group(
        "g", ["a", MemberSeed(instance_id="i")], offsets={("orders", 1): 5}, lag={("orders", 1): 0}, topics=["orders"]
    )
    cluster = control.cluster
    assert client.brokers == cluster.brokers
    assert client.bootstrap_servers == cluster.bootstrap_servers == client.bootstrap_servers_of("PLAINTEXT")
    with pytest.raises(ConfigError, match=r"^listener='PLAIN': expected one of PLAINTEXT; did you mean 'PLAINTEXT'"):
        client.bootstrap_servers_of("PLAIN")
    assert client.coordinator_of("g") == cluster.coordinator_of("g")
    assert client.group("g") == cluster.group("g")
    assert client.group("g").timeline() == cluster.group("g").timeline()
    assert client.offsets("g") == cluster.offsets("g")
    assert client.timeline("g") == cluster.timeline("g")
    assert client.explain("g") == cluster.explain("g")
    assert client.pending_deadlines() == cluster.pending_deadlines()
    assert client.group("none") == cluster.group("none")
    assert client.timeline("none").moments == ()
    assert [row["group_id"] for row in client.group_rows(state="Stable")] == ["g"]
    assert client.overview()["members"] == 2


def test_dropped_changes_are_those_of_the_cluster(control: ControlHarness, client: Client) -> None:
    history = control.cluster.cluster.history
    history.max_moments_of_one = 1
    client.seed_group("g", ["a", "b"], topics=["orders"])
    client.force_rebalance("g")
    assert client.timeline("g").dropped == client.groups()[0].timeline().dropped == history.dropped_of("g")
    assert history.dropped_of("g").count > 0
    with pytest.raises(IncompleteHistoryError, match=r"^not decided: group g in Stable since its first 0 changes: "):
        client.post("wait/state", {"group_id": "g", "state": "Stable", "timeout_s": 0, "seen_changes": 0})
    history.max_moments, history.max_without_moments = 0, 0
    client.seed_group("h", ["a"], topics=["orders"])
    assert client.timeline("h").dropped == history.dropped_of("h")
    assert not client.timeline("h").dropped.is_exact
    assert client.explain("never").endswith("existed: earlier changes may have been dropped.")


def test_views_of_a_missing_group_equal_those_of_the_cluster(control: ControlHarness, client: Client) -> None:
    assert client.coordinator_of("none") == control.cluster.coordinator_of("none")
    assert client.offsets("none") == control.cluster.offsets("none") == {}
    assert client.explain("none") == control.cluster.explain("none")


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
            client.seed_group(group_id, offsets={"orders-0": 3}, lag={"orders-0": 0})
            assert client.group(group_id).group_id == group_id
            assert client.offsets(group_id)["orders", 0].offset == 3
            assert client.timeline(group_id).group_id == group_id
            assert [group.group_id for group in client.groups()] == [group_id]


def test_commands_for_brokers_topics_and_coordinators(control: ControlHarness, client: Client) -> None:
    client.stop_broker(1, elect=False)
    assert not client.brokers[0].up
    client.start_broker(1)
    client.restart_broker(2, load_ms=0)
    client.rolling_restart()
    client.upgrade_broker(3, "2.8")
    assert client.add_broker(Broker(as_version="3.0")).node_id == 4
    client.set_broker(4, accept="refuse")
    client.remove_broker(4)
    client.create_topic("t", 2, configs={"retention.ms": 5000, "cleanup.policy": "compact,delete"})
    created = control.cluster.cluster.topics.get("t")
    assert created is not None
    assert created.configs == {"retention.ms": "5000", "cleanup.policy": "compact,delete"}
    client.create_partitions("t", 3)
    client.delete_topic("t")
    client.seed_group("g", 1, topics=["orders"])
    to = client.coordinator_of("g").node_id % 3 + 1
    client.move_coordinator("g", to, load_ms=None)
    client.finish_loading()
    assert client.coordinator_of("g").node_id == to
    client.move_offsets_partition(control.cluster.cluster.offsets_partition_of("g").index, None)
    client.stop_zombies()
    with pytest.raises(ConfigError, match=r"^group_id='g': expected a group that has a coordinator now$"):
        client.coordinator_of("g")


def test_records_equal_those_of_the_cluster(
    control: ControlHarness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "MAX_RECORDS_BYTES", 10)
    headers = [("h", b"\xff"), ("h", None)]
    assert client.produce("orders", ["a", b"\xff", None], partition=1, headers=headers) == [(1, 0), (1, 1), (1, 2)]
    client.produce("orders", [b"%09d" % number for number in range(20)], key="k")
    assert client.records("orders") == control.cluster.records("orders")
    assert [each.value for each in client.records("orders", partition=1)][:3] == [b"a", b"\xff", None]
    with pytest.raises(ConfigError, match=r"values\[0\]=5: expected a string or bytes or none"):
        client.produce("orders", [5])  # type: ignore[list-item]  # The type is wrong on purpose.
    with pytest.raises(ConfigError, match="no topic 'x': expected one of"):
        client.records("x")


def test_commands_for_reassignments(control: ControlHarness, client: Client) -> None:
    cluster = control.cluster.cluster

    def move(to: int) -> tuple[int, ...]:
        partition = cluster.topics.offsets_partition(0)
        control.cluster.call(lambda: cluster.controller.reassign(partition, [to], cluster.now_ms, Failover()))
        return partition.adding

    move(1)
    with client.hold_reassignments():
        assert move(2) == (2,)
    assert move(2) == ()
    client.hold_reassignments("__consumer_offsets")
    assert move(3) == (3,)
    client.release_reassignments("__consumer_offsets")
    with pytest.raises(ConfigError, match="expected what hold_reassignments was given, but none is held"):
        client.release_reassignments("__consumer_offsets")
    client.hold_reassignments()
    assert move(1) == (1,)
    client.finish_reassignments()
    assert cluster.topics.offsets_partition(0).replicas == (1,)


def test_commands_for_groups(client: Client) -> None:
    client.seed_groups([GroupSeed(group_id="g", members=["a", MemberSeed(client_id="s", instance_id="i")])])
    with client.hold("g", "PreparingRebalance"):
        client.force_rebalance("g")
        assert client.group("g").state == "PreparingRebalance"
        client.choose_leader("g", "a")
        client.release("g", "PreparingRebalance")
    client.delay_sync("g", "a", 5)
    client.release_sync("g", "a")
    client.fence("g", "i")
    client.evict("g", "i")
    client.expire("g", "a")
    assert client.group("g").members == ()


def test_faults_and_the_requests_that_they_matched(control: ControlHarness, client: Client) -> None:
    with client.fail("Heartbeat", error="NOT_COORDINATOR", group="g") as fault:
        with WireClient(control.cluster.brokers[0]) as wire:
            wire.ask(find_coordinator("g"), FindCoordinatorResponse)
            wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
        assert [(each.id, each.fault) for each in client.faults] == [(fault.id, fault.fault)]
    assert client.faults == []
    assert fault.hits == 1
    fault.remove()
    client.fail(None, drop=True)
    client.clear_faults()
    assert client.faults == []
    kept = client.add_fault(Fault(api="Heartbeat", error=ErrorCode.NOT_COORDINATOR, delay_s=(1, 2)))
    assert client.faults[0].fault == control.cluster.faults[0].fault
    client.remove_fault(kept)
    assert (client.faults, kept.hits) == ([], 0)
    assert client.count("Heartbeat", error="NOT_COORDINATOR") == 1
    client.assert_order("FindCoordinator", "Heartbeat")
    (call,) = client.wait_for_request("Heartbeat", error=ErrorCode.NOT_COORDINATOR)
    assert (call.api.name, call.errors) == ("Heartbeat", (ErrorCode.NOT_COORDINATOR,))
    assert [each.group_ids for each in client.requests("Heartbeat")] == [call.group_ids] == [("g",)]


def test_faults_that_act_on_the_cluster(control: ControlHarness, client: Client) -> None:
    fault = client.fail("Heartbeat", nth=2, then={"do": "start_broker", "node_id": 1}, delay_before_s=0)
    with WireClient(control.cluster.brokers[0]) as wire:
        for _ in range(2):
            wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), HeartbeatResponse)
    (error,) = fault.errors
    assert (client.action_errors, client.faults[0].errors) == ((error,), (error,))
    assert client.requests("Heartbeat")[1].action_errors == (error,)
    assert client.faults[0].fault == control.cluster.faults[0].fault
    fault.remove()
    assert fault.errors == ()
    with pytest.raises(ConfigError, match=r"then=<function .*: expected events: functions cannot be sent to another"):
        client.fail("Heartbeat", then=lambda call: None)
    with pytest.raises(ConfigError, match=r"then\.do='stop': expected one of "):
        client.fail("Heartbeat", then={"do": "stop"})


def test_permissions(control: ControlHarness, client: Client) -> None:
    def may_read() -> bool:
        acls = control.cluster.cluster.acls
        return acls is None or acls.allows("User:alice", "h", AclOperation.READ, ResourceType.GROUP, "g")

    with client.deny("alice", "READ", group="g"):
        assert not may_read()
    assert may_read()
    with client.deny("alice", "ALL", group="g", prefixed=True):
        client.remove_acl("alice", "ALL", "deny", group="g", prefixed=True)
        assert may_read()
    client.remove_acl("*", "ALL", "allow", group="*")
    assert not may_read()
    client.allow("alice", "READ", group="g")
    assert may_read()
    with pytest.raises(ConfigError, match="expected an ACL that exists"):
        client.remove_acl("alice", "WRITE", "allow", topic="x")
    with pytest.raises(ConfigError, match="no resource: expected one of"):
        client.deny("alice", "READ")


def test_appends_fail(control: ControlHarness, client: Client) -> None:
    with client.fail_append("g", ErrorCode.KAFKA_STORAGE_ERROR, times=2) as failure:
        assert client.get(f"append_failures/{failure.id}")["error"] == "KAFKA_STORAGE_ERROR"
        with WireClient(control.cluster.coordinator_of("g")) as wire:
            response = wire.ask(commit_request(7), OffsetCommitResponse, 8)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert failure.hits == 1
    assert client.get("append_failures") == {"append_failures": []}
    failure.remove()
    assert failure.hits == 1
    with pytest.raises(ConfigError, match=r"error='X': expected an error of an append, one of NOT_ENOUGH_REPLICAS, "):
        client.fail_append("g", "X")
    kept = client.fail_append("g", times=None)
    assert kept.id != failure.id
    client.clear_faults()
    assert client.get("append_failures") == {"append_failures": []}


def test_handles_of_a_deleted_cluster_say_so(client: Client) -> None:
    other = client.create_cluster("other", brokers=1)
    fault, failure = other.fail("Heartbeat", drop=True), other.fail_append("g")
    other.delete_cluster()
    uses = (lambda: fault.hits, lambda: fault.errors, fault.remove, lambda: failure.hits, failure.remove)
    for use in uses:
        with pytest.raises(ConfigError, match=r"^no cluster 'other'"):
            use()


def test_clock_and_snapshots(client: Client) -> None:
    client.seed_group("g", 1, topics=["orders"], lag=0)
    client.advance(1.5)
    kept = client.snapshot()
    expired = client.advance_to_next_deadline()
    assert expired is not None
    assert [deadline.kind for deadline in expired] == ["session"]
    client.restore(kept)
    assert len(client.group("g").members) == 1


def test_waits_return_what_was_waited_for_or_time_out(client: Client) -> None:
    client.seed_group("g", 2, topics=["orders"], offsets={"orders-0": 5}, lag={"orders-0": 0})
    assert client.wait_for_state("g", "Stable", members=2) == client.group("g")
    assert client.wait_for_generation("g", above=0).generation_id == 1
    client.seed_group("consumer", ["m"], topics=["orders"], type="consumer")
    assert client.wait_for_member("consumer", "m", "STABLE", above=0) == client.group("consumer")
    assert client.wait_for_commit("g", "orders-0", at_least=5).offset == 5
    with pytest.raises(WaitTimeout, match=r"^not reached within 0 s: group g in Empty"):
        client.wait_for_state("g", "Empty", timeout_s=0)


def test_waits_longer_than_the_limit_of_a_request_are_repeated(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_WAIT_S", 0.01)
    with pytest.raises(WaitTimeout, match=r"^not reached within 0\.03 s: group g in Empty\n"):
        client.wait_for_state("g", "Empty", timeout_s=0.03)
    monkeypatch.undo()
    client.seed_group("g", 1, topics=["orders"])
    assert client.wait_for_state("g", "Stable", timeout_s=100).state == "Stable"


def test_a_timeout_has_fields(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_WAIT_S", 0.01)
    with pytest.raises(WaitTimeout) as caught:
        client.wait_for_generation("within 0.01 s: ", above=3, timeout_s=0.02)
    error = caught.value
    assert (error.condition, error.timeout_s) == ("group within 0.01 s:  in a generation above 3", 0.02)
    assert "there is no such group" in error.state
    assert str(error) == f"not reached within 0.02 s: {error.condition}\n{error.state}"


def pass_through_stable(cluster: FakeCluster) -> None:
    """Make a group that is Stable for a moment, within one step of the cluster."""

    def steps() -> None:
        cluster.seed_group("g", 1, topics=["orders"], generation=5)
        cluster.evict("g", cluster.group("g").members[0].member_id)

    cluster.call(steps)
    assert cluster.group("g").state == "Empty"


def test_a_state_between_two_requests_of_a_wait_is_not_missed(
    control: ControlHarness, client: Client, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    post = client.post
    requests: list[Any] = []

    def post_and_change(path: str, body: Any = None, **options: Any) -> Any:
        requests.append(path)
        try:
            return post(path, body, **options)
        finally:
            if len(requests) == 1:
                pass_through_stable(control.cluster)

    monkeypatch.setattr(client, "post", post_and_change)
    monkeypatch.setattr(client_module, "MAX_WAIT_S", 0.01)
    waits: dict[str, Callable[..., Any]] = {
        "state": lambda **how: client.wait_for_state("g", "Stable", members=1, **how),
        "generation": lambda **how: client.wait_for_generation("g", above=4, **how),
    }
    for name, wait in waits.items():
        for polling in (None, [list]):
            with subtests.test(wait=name, polling=polling):
                control.cluster.reset()
                requests.clear()
                found = wait(timeout_s=TIMEOUT_S, polling=polling)
                group, records = (found, []) if polling is None else found
                assert (group.state, group.generation_id, len(group.members)) == ("Stable", 5, 1)
                assert (records, len(requests)) == ([], 2)


def test_waits_poll(control: ControlHarness, client: Client) -> None:
    def seed() -> str:
        client.seed_group("g", 1, topics=["orders"], offsets={"orders-0": 0})
        return "record"

    group, records = client.wait_for_state("g", "Stable", members=1, polling=[seed])
    assert (group, records) == (control.cluster.group("g"), ["record"])
    assert client.wait_for_commit("g", "orders-0", at_least=0, polling=[seed]).records == []
    with pytest.raises(WaitTimeout) as late:
        client.wait_for_state("g", "Empty", polling=[lambda: 1], timeout_s=0)
    assert (late.value.records, late.value.timeout_s) == ([1], 0)
    with pytest.raises(PollError, match="ZeroDivisionError") as failed:
        client.wait_for_request("Heartbeat", polling=[lambda: 1, lambda: 1 // 0])
    assert failed.value.records == [1]


def test_a_wait_ends_when_the_cluster_is_deleted(client: Client) -> None:
    other = client.create_cluster("other", brokers=1)
    polls: list[int] = []

    def delete() -> int:
        other.delete_cluster()
        polls.append(1)
        return len(polls)

    with pytest.raises(ClusterStopped, match=r"^the cluster stopped during a wait: no cluster 'other'") as caught:
        other.wait_for_state("g", "Stable", polling=[delete])
    assert caught.value.records == [1]
    with pytest.raises(ConfigError, match=r"^no cluster 'other'"):
        other.wait_for_state("g", "Stable", polling=[delete])
    assert polls == [1]


def test_a_group_id_must_be_a_string(client: Client, subtests: pytest.Subtests) -> None:
    wrong: Any = b"g"
    uses: dict[str, Callable[[], object]] = {
        "group": lambda: client.group(wrong),
        "offsets": lambda: client.offsets(wrong),
        "timeline": lambda: client.timeline(wrong),
        "explain": lambda: client.explain(wrong),
        "coordinator_of": lambda: client.coordinator_of(wrong),
        "wait_for_state": lambda: client.wait_for_state(wrong, "Dead"),
        "wait_for_generation": lambda: client.wait_for_generation(wrong, above=0),
        "wait_for_member": lambda: client.wait_for_member(wrong, "m"),
        "wait_for_commit": lambda: client.wait_for_commit(wrong, "orders-0", at_least=0),
    }
    for name, use in uses.items():
        with subtests.test(method=name), pytest.raises(ConfigError, match=r"^group_id=b'g': expected a string$"):
            use()


def test_further_clusters_are_created_and_deleted(client: Client) -> None:
    other = client.create_cluster("other", brokers=[Broker(as_version="2.8")], clock=Scaled(10))
    assert len(other.brokers) == 1
    assert other.overview()["clock"]["kind"] == "scaled"
    other.delete_cluster()
    with pytest.raises(ConfigError, match=r"^no cluster 'other': expected one of default$"):
        other.group("g")
    with pytest.raises(ConfigError, match=r"^no cluster 'other': expected one of default$"):
        other.timeline("g")


def test_errors_name_the_argument_and_what_was_expected(control: ControlHarness, client: Client) -> None:
    with pytest.raises(ConfigError, match=r"^node_id=9: expected one of 1, 2, 3$"):
        client.stop_broker(9)
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
    with WireClient(broker, "app") as wire, client.fail("OffsetCommit", error="NOT_COORDINATOR", times=1):
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
        assert [call.api.name for call in client.requests(**filters)] == [api], filters
        assert client.count(**filters) == 1
        client.assert_never("JoinGroup", **filters)
        client.wait_for_request(api, timeout_s=0, **filters)
