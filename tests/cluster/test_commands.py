"""The commands of a cluster without sockets: their definitions, effects, validation and calls of the environment."""

import inspect
import re
from collections.abc import Callable
from functools import partial
from math import inf, isfinite, nan
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from fakebroker import actions
from fakebroker.cluster.acl_rules import ALLOW_EVERYTHING, AclRule
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.emulation import Broker
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.handles.cluster import LocalCluster
from fakebroker.cluster.handles.definition import DEFINITIONS, checked, commands, perform
from fakebroker.cluster.handles.environment import NetworkConditions
from fakebroker.cluster.handles.faults import FaultView
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.handles.topic import PartitionView, TopicView
from fakebroker.cluster.replication.coordinator_moves import Failover
from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed
from fakebroker.cluster.seeding.transaction_seed import TransactionSeed
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ConditionNotMet, ConfigError, ErrorCode, shown
from fakebroker.security.acls import AclOperation, ResourceType
from fakebroker.server import seed_tables
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment
from tests.support.cluster.method_arguments import event_of
from tests.support.group_requests import commit_of, offset_to_commit


@pytest.fixture
def harness() -> ClusterHarness:
    return ClusterHarness({"orders": 6}, brokers=3)


@pytest.fixture
def cluster(harness: ClusterHarness) -> LocalCluster:
    return local_cluster(harness, ClusterHarnessEnvironment(harness))


def local_cluster(harness: ClusterHarness, environment: ClusterHarnessEnvironment) -> LocalCluster:
    def new_cluster() -> Cluster:
        return ClusterHarness({"orders": 6}, brokers=3).cluster

    return LocalCluster(Local(harness.cluster, environment, new_cluster=new_cluster))


# Definitions


def documented_arguments(text: str) -> list[str]:
    """Return the names in the section `Args` of a docstring."""
    _, _, section = text.partition("\nArgs:\n")
    return re.findall(r"^ {4}(\w+): ", section.partition("\n\n")[0], re.MULTILINE)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_each_definition_and_each_of_its_arguments_is_documented(name: str) -> None:
    definition = DEFINITIONS[name]
    text = inspect.getdoc(definition.method)
    assert text is not None
    assert documented_arguments(text) == list(definition.signature.parameters)[1:]
    assert definition.arguments.__doc__ == definition.event.__doc__ == text.partition("\n")[0]


NOT_DEFINED = {
    "BrokersHandle": {"count", "index"},
    "FaultHandle": {"wait", "wait_async"},
    "TopicHandle": {"partition"},
    "ClusterHandle": {"broker", "group", "topic", "transaction"},
}
"""Public methods of handles that return other handles, wait, or are those of a sequence."""


def test_all_other_methods_of_handles_are_defined() -> None:
    for handle in {each.handle for each in DEFINITIONS.values()}:
        methods = {name for name, _ in inspect.getmembers(handle, inspect.isfunction) if not name.startswith("_")}
        defined = {each.method.__name__ for each in DEFINITIONS.values() if each.handle is handle}
        others = NOT_DEFINED.get(handle.__name__, set())
        assert methods - defined <= others, handle


def test_each_command_is_an_event() -> None:
    assert commands() == {name: each for name, each in sorted(DEFINITIONS.items()) if each.kind == "command"}
    for name, definition in commands().items():
        event = event_of(definition)
        assert checked({"do": name, **event})[1].keys() == event.keys()


def test_an_event_has_the_key_of_a_handle_and_the_arguments_of_a_command() -> None:
    event = {"do": "partition.move_leader", "topic": "orders", "partition": 1, "to": "none", "lose_tail": 2}
    assert checked(event) == ("partition.move_leader", {"topic": "orders", "partition": 1, "to": None, "lose_tail": 2})
    assert actions.topic("orders").partition(1).move_leader(None, lose_tail=2) == {**event, "to": None}
    for missing in ("topic", "partition", "to"):
        with pytest.raises(ConfigError, match=missing):
            checked({name: value for name, value in event.items() if name != missing})


def test_options_are_the_fields_of_a_struct_without_keys_and_arguments() -> None:
    without: dict[str, tuple[type[msgspec.Struct], set[str]]] = {
        "acls.deny": (AclRule, {"permission"}),
        "broker.start": (Failover, set()),
        "inject_fault": (Fault, set()),
        "group.seed": (GroupSeed, {"group_id"}),
        "transaction.seed": (TransactionSeed, {"transactional_id"}),
    }
    for name, (struct, others) in without.items():
        assert {*DEFINITIONS[name].arguments.__struct_fields__} == {*struct.__struct_fields__} - others, name


def test_columns_of_seed_tables_are_fields_of_group_seeds() -> None:
    types = get_type_hints(GroupSeed)
    for column, kind in seed_tables.COLUMNS_OF_GROUPS.items():
        kinds = [get_origin(each) or each for each in (types[column], *get_args(types[column]))]
        kinds += [type(each) for each in kinds if isinstance(each, str)]  # the values of a Literal
        assert any(isinstance(each, type) and issubclass(kind, each) for each in kinds), column
    assert set(seed_tables.COLUMNS_OF_MEMBERS) <= set(get_type_hints(MemberSeed))


# Effects


def may_read(harness: ClusterHarness, principal: str, group: str = "g", host: str = "1.2.3.4") -> bool:
    acls = harness.cluster.acls
    return acls is None or acls.allows(principal, host, AclOperation.READ, ResourceType.GROUP, group)


def test_deny_takes_one_permission_from_one_client(harness: ClusterHarness, cluster: LocalCluster) -> None:
    with cluster.acls.deny("alice", "READ", group="g"):
        assert not may_read(harness, "User:alice")
        assert may_read(harness, "User:bob")
        assert may_read(harness, "User:alice", "h")
    assert may_read(harness, "User:alice")
    assert list(harness.cluster.acls or ()) == list(ALLOW_EVERYTHING)


def test_allow_removes_the_same_denial_only(harness: ClusterHarness, cluster: LocalCluster) -> None:
    cluster.acls.deny("alice", "READ", group="g")
    cluster.acls.deny("alice", "ALL", group="h")
    cluster.acls.allow("alice", "READ", group="g")
    cluster.acls.allow("alice", "READ", group="h")
    assert may_read(harness, "User:alice", "g")
    assert not may_read(harness, "User:alice", "h")


def test_allow_is_needed_if_nothing_is_allowed() -> None:
    harness = ClusterHarness(config={"authorizer.class.name": "StandardAuthorizer"})
    cluster = local_cluster(harness, ClusterHarnessEnvironment(harness))
    with (
        cluster.acls.allow("alice", "READ", group="g", host="1.2.3.4"),
        cluster.acls.allow("Group:x", "ALL", group="p", prefixed=True),
    ):
        assert may_read(harness, "User:alice")
        assert not may_read(harness, "User:alice", host="1.2.3.5")
        assert may_read(harness, "Group:x", "person")
    assert not may_read(harness, "User:alice")
    cluster.acls.allow("*", "READ", group="*")
    assert may_read(harness, "User:alice")
    cluster.acls.remove("*", "READ", "allow", group="*")
    assert not may_read(harness, "User:alice")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            {"do": "acls.allow", "group": "g"},
            "authorizer.class.name='': expected an authorizer, because without one everything",
        ),
        ({"do": "acls.deny"}, "no resource: expected one of topic, group, transactional_id and cluster"),
        ({"do": "acls.deny", "group": "g", "cluster": True}, "group and cluster: expected one of topic, group"),
        ({"do": "acls.deny", "topic": ""}, "topic='': expected a name"),
        (
            {"do": "acls.deny", "group": "g", "operation": "Read"},
            "operation='Read': expected one of .*did you mean 'READ'",
        ),
        (
            {"do": "acls.remove", "group": "g", "permission": "deny"},
            "principal='alice': expected an ACL that exists: none of the 0 is equal",
        ),
    ],
)
def test_invalid_permissions(cluster: LocalCluster, event: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        perform(cluster, {"principal": "alice", "operation": "READ", **event})


def test_permissions_in_events(harness: ClusterHarness, cluster: LocalCluster) -> None:
    perform(cluster, {"do": "acls.deny", "principal": "alice", "operation": "READ", "group": "g"})
    assert not may_read(harness, "User:alice")
    perform(
        cluster, {"do": "acls.remove", "principal": "alice", "operation": "READ", "permission": "deny", "group": "g"}
    )
    assert may_read(harness, "User:alice")


def test_calls_of_the_environment(subtests: pytest.Subtests) -> None:
    cases: list[tuple[list[dict[str, Any]], list[tuple[Any, ...]]]] = [
        ([{"do": "broker.stop", "node_id": 2}], [("close", 2, True)]),
        ([{"do": "broker.restart", "node_id": 2}], [("close", 2, True), ("open", 2)]),
        ([{"do": "broker.upgrade", "node_id": 2, "as_version": "2.8"}], [("close", 2, True), ("open", 2)]),
        (
            [{"do": "broker.stop", "node_id": 1}, {"do": "brokers.rolling_restart"}],
            [("close", 1, True), ("close", 2, True), ("open", 2), ("close", 3, True), ("open", 3)],
        ),
        ([{"do": "brokers.add"}], [("open", 4)]),
        ([{"do": "broker.remove", "node_id": 1}], [("close", 1, False)]),
        (
            [{"do": "broker.set_network", "node_id": 1, "accept": "slow", "accept_delay_s": 2, "round_trip_s": 0.5}],
            [("network", 1, NetworkConditions("slow", 2000.0, 500.0))],
        ),
        ([{"do": "brokers.renew_certificates"}], [("certificates", False)]),
        ([{"do": "brokers.renew_certificates", "expired": True}], [("certificates", True)]),
        ([{"do": "reset"}], [("replace", (1, 2, 3), True)]),
    ]
    for events, calls in cases:
        with subtests.test(events=events):
            harness = ClusterHarness({"orders": 6}, brokers=3)
            environment = ClusterHarnessEnvironment(harness)
            cluster = local_cluster(harness, environment)
            for event in events:
                perform(cluster, event)
            assert environment.calls == calls


def test_a_listener_is_closed_before_leaders_move(harness: ClusterHarness) -> None:
    leaders: list[int] = []
    partition = harness.cluster.offsets_partition_of("g")

    class LeaderRecordingEnvironment(ClusterHarnessEnvironment):
        def close_listener(self, *_: Any, **__: Any) -> None:
            leaders.append(partition.leader_id)

    leader_id = partition.leader_id
    local_cluster(harness, LeaderRecordingEnvironment(harness)).broker(leader_id).stop()
    assert leaders == [leader_id]
    assert partition.leader_id != leader_id


def test_a_seeded_group_is_held_and_released(cluster: LocalCluster, harness: ClusterHarness) -> None:
    cluster.group("g").seed(["a", "b"], topics=["orders"])
    with cluster.group("g").hold("PreparingRebalance"):
        cluster.group("g").rebalance()
        harness.advance(600_000)
        group = harness.cluster.coordinator_of("g").coordinator.groups.classic.get("g")  # type: ignore[union-attr]
        assert group is not None
        assert group.state.value == "PreparingRebalance"
    with pytest.raises(ConfigError, match=r"^group_id='g': expected a group that is held, but there is none$"):
        cluster.group("g").release()


def test_a_fault_that_misses_is_an_error_at_its_end(cluster: LocalCluster) -> None:
    cluster.group("billing").seed(1, topics=["orders"])
    expected = (
        r"^inject_fault\(api='Heartbeat', group='biling', drop=True\) was applied to no request; 0 requests matched "
        r"its filters; nearest group: 'billing'\. With may_miss=True, that is no error$"
    )
    with pytest.raises(ConditionNotMet, match=expected), cluster.inject_fault("Heartbeat", group="biling", drop=True):
        pass
    assert cluster.faults() == []
    with pytest.raises(ZeroDivisionError), cluster.inject_fault("Heartbeat", group="biling", drop=True):
        raise ZeroDivisionError  # may be the reason why the fault missed
    with cluster.inject_fault("Heartbeat", group="biling", drop=True, may_miss=True):
        pass
    nearest = pytest.raises(ConditionNotMet, match="nearest topic: 'orders'")
    with nearest, cluster.inject_fault("Fetch", topic="order", drop=True):
        pass


def test_a_fault_handle_removes_its_fault(cluster: LocalCluster) -> None:
    with cluster.inject_fault("Heartbeat", error="NOT_COORDINATOR", may_miss=True) as handle:
        assert cluster.faults() == [handle.describe()]
        rule = {"api": "Heartbeat", "may_miss": True, "error": "NOT_COORDINATOR"}
        assert handle.describe() == FaultView(handle.id, rule, 0, False, ())
        assert (handle.hits, handle.errors) == (0, ())
    assert cluster.faults() == []
    assert handle.hits == 0, "known also after its end"
    handle.remove()
    with pytest.raises(ConfigError, match=r"^id='9': expected one of 1$"):
        perform(cluster, {"do": "fault.remove", "id": "9"})


def test_advance_to_the_next_deadline(cluster: LocalCluster, harness: ClusterHarness) -> None:
    assert cluster.advance_to_next_deadline() is None
    cluster.group("g").seed(1, topics=["orders"])
    deadlines = cluster.advance_to_next_deadline()
    assert deadlines is not None
    (deadline,) = deadlines
    assert (deadline.kind, deadline.at_ms) == ("session", harness.now_ms)


def test_a_deleted_group(cluster: LocalCluster) -> None:
    cluster.group("g").seed(offsets={"orders-0": 5}, lag={"orders-0": 0})
    cluster.group("busy").seed(1, topics=["orders"])
    cluster.group("g").delete()
    assert (cluster.group("g").describe().state, cluster.group("g").offsets()) == ("Dead", {})
    for group_id, expected in (
        ("g", r"an existing group \(GROUP_ID_NOT_FOUND\)"),
        ("busy", r"a group without members \(NON_EMPTY_GROUP\)"),
    ):
        with pytest.raises(ConfigError, match=f"^group_id='{group_id}': expected {expected}$"):
            cluster.group(group_id).delete()
    cluster.group("busy").move_coordinator(None)
    with pytest.raises(ConfigError, match=r"a group with a loaded coordinator \(COORDINATOR_NOT_AVAILABLE\)$"):
        cluster.group("busy").delete()


def test_an_expectation_that_does_not_hold_describes_the_state(cluster: LocalCluster) -> None:
    stable = cluster.group("g").stable()
    assert not cluster.holds(stable)
    with pytest.raises(ConditionNotMet, match=r"^group\('g'\)\.stable\(\): it does not hold\ng is Dead: there is no"):
        cluster.expect(stable)
    cluster.group("g").seed(2, topics=["orders"])
    cluster.expect(stable & ~cluster.topic("orders").has(1))
    event: dict[str, Any] = {"do": "expect", "condition": {"is": "group.stable", "group_id": "g", "members": 2}}
    perform(cluster, event)
    event["condition"]["members"] = 3
    with pytest.raises(ConditionNotMet, match=r"^group\('g'\)\.stable\(members=3\): it does not hold"):
        perform(cluster, event)


# Views


def test_views_of_groups(cluster: LocalCluster) -> None:
    group = cluster.group("g")
    assert (group.describe().state, group.offsets(), group.lag()) == ("Dead", {}, {})
    cluster.topic("orders").produce(["a", "b", "c"], partition=1)
    group.seed(1, topics=["orders"], offsets={"orders-1": 1, "orders-0": 0})
    offsets = {place: each.offset for place, each in group.offsets().items()}
    assert offsets == {("orders", 0): 0, ("orders", 1): 1}
    assert group.lag() == {("orders", 0): 0, ("orders", 1): 2}
    assert group.describe() == cluster.groups()[0]
    assert group.describe().history.moments == group.timeline().moments
    assert group.explain().startswith("g has been in Stable for 0.0 s.")
    group.move_coordinator(2)
    assert group.coordinator() == cluster.broker(2).describe()
    cluster.topic("orders").delete()
    assert group.lag() == {}
    group.move_coordinator(None)
    with pytest.raises(ConfigError, match=r"^group_id='g': expected a group that has a coordinator now$"):
        group.coordinator()


def test_views_of_topics(cluster: LocalCluster) -> None:
    topic = cluster.topic("new")
    topic.create(2, replication_factor=2)
    topic.produce(["a", "b"], partition=1)
    (one, two) = topic.describe().partitions
    assert (
        cluster.topics()[-1]
        == topic.describe()
        == TopicView("new", (one, two), is_internal=False, topic_id=topic.describe().topic_id)
    )
    assert [topic.partition(index).describe() for index in range(2)] == [one, two]
    assert one == PartitionView(0, one.leader, 0, one.replicas, one.replicas, (), (), 0, 0, 0)
    assert (two.log_start_offset, two.log_end_offset) == (0, 2)
    cluster.broker(two.leader).stop()
    moved = topic.partition(1).describe()
    assert (moved.leader, moved.leader_epoch, moved.replicas) == (two.replicas[1], 1, two.replicas)
    assert moved.in_sync == (two.replicas[1],)
    assert [record.value for record in topic.records(1)] == [b"a", b"b"]
    for call, expected in (
        (cluster.topic("nwe").describe, r"^topic='nwe': expected one of orders, new; did you mean 'new'\?$"),
        (cluster.topic("nwe").partition(0).describe, r"^topic='nwe': expected one of"),
        (topic.partition(2).describe, r"^topic 'new': partition=2: expected an integer from 0 to 1$"),
    ):
        with pytest.raises(ConfigError, match=expected):
            call()


def test_views_of_brokers(cluster: LocalCluster) -> None:
    assert [each.node_id for each in cluster.brokers] == [1, 2, 3]
    assert (len(cluster.brokers), cluster.brokers[0]) == (3, cluster.broker(1).describe())
    assert [each.node_id for each in cluster.brokers[1:]] == [2, 3]
    cluster.broker(2).stop()
    assert [each.up for each in cluster.brokers] == [True, False, True]
    with pytest.raises(ConfigError, match=r"^node_id=4: expected one of 1, 2, 3$"):
        cluster.broker(4).describe()


def test_handles_name_things_of_any_kind(cluster: LocalCluster) -> None:
    assert repr(cluster.group("g")) == "<GroupHandle 'g'>"
    assert repr(cluster.topic("orders").partition(1)) == "<PartitionHandle 'orders' 1>"
    create: list[tuple[Callable[[Any], object], Any, str]] = [
        (cluster.group, None, "group_id=None: expected a string"),
        (cluster.topic, 1, "topic=1: expected a string"),
        (cluster.transaction, b"t", "transactional_id=b't': expected a string"),
        (cluster.broker, "1", "node_id='1': expected an integer"),
        (cluster.topic("orders").partition, -1, "partition=-1: expected an integer >= 0"),
    ]
    for handle, key, message in create:
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
            handle(key)


# Validation


def test_arguments_are_validated_before_a_step_runs(harness: ClusterHarness) -> None:
    class FailingEnvironment(ClusterHarnessEnvironment):
        def run(self, step: Callable[[], Any]) -> Any:
            raise AssertionError("a step ran")

    cluster = local_cluster(harness, FailingEnvironment(harness))
    for event in (
        {"do": "broker.stop", "node_id": 1, "load_ms": -1},
        {"do": "group.delay_sync", "group_id": "g", "member": "m", "seconds": -1},
        {"do": "group.hold", "group_id": "g", "state": "Stable"},
        {"do": "broker.set_network", "node_id": 1, "accept": "slow"},
        {"do": "brokers.add", "like": 1},
    ):
        with pytest.raises(ConfigError):
            perform(cluster, event)


DURATION = "a number from 0 to 1000000000000"
INVALID_TIMES: list[Any] = [-1, nan, inf, -inf, "1", True, [1], 10**400, 1e300]


def test_invalid_failover_options(cluster: LocalCluster) -> None:
    invalid = [
        *(("load_ms", value, f"{DURATION} or none") for value in INVALID_TIMES),
        *(("stale_ms", value, DURATION) for value in [*INVALID_TIMES, None]),
        *(("lose_tail", value, "an integer >= 0") for value in [-1, 1.0, nan, inf, "1", True, None]),
        *((name, value, "true or false") for name in ("load_fails", "lose_all", "zombie") for value in (1, "no", None)),
    ]
    calls: list[Callable[..., object]] = [
        cluster.broker(1).stop,
        cluster.brokers.rolling_restart,
        partial(cluster.broker(1).upgrade, None),
        partial(cluster.group("g").move_coordinator, 1),
    ]
    for call in calls:
        for option, value, expected in invalid:
            is_infinite = isinstance(value, float) and not isfinite(value)
            with pytest.raises(ConfigError) as raised:
                call(**{option: value})
            error = raised.value
            assert (error.field, repr(error.value)) == (option, repr(value)), call
            assert error.expected == ("a finite number" if is_infinite else expected)
            assert str(error) == f"{option}={shown(value)}: expected {error.expected}"


def test_failover_options_at_their_limits(cluster: LocalCluster) -> None:
    for value in (0, 0.5, 10**12):
        cluster.brokers.rolling_restart(load_ms=value, stale_ms=value)
    cluster.brokers.rolling_restart(load_ms=None, lose_tail=10**12)


def test_failover_options_without_effect_are_errors(cluster: LocalCluster, harness: ClusterHarness) -> None:
    cluster.broker(3).stop()
    old_stops = "zombie=True: expected false, because the old coordinator stops"
    none_loads = "expected no such option, because there is no new coordinator that loads"
    is_down = "expected no such option, because broker 3 is down and stays down"
    one, of_group, partition = cluster.broker(1), cluster.group("g"), cluster.topic("__consumer_offsets").partition(0)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: one.stop(zombie=True), old_stops),
        (lambda: one.restart(zombie=True), old_stops),
        (lambda: cluster.brokers.rolling_restart(zombie=True), old_stops),
        (lambda: one.remove(zombie=True), old_stops),
        (lambda: one.upgrade(None, zombie=True), old_stops),
        (lambda: cluster.broker(3).upgrade("3.9", lose_tail=1), f"lose_tail=1: {is_down}"),
        (lambda: one.stop(elect=False, load_ms=None), f"load_ms=None: {none_loads}"),
        (lambda: of_group.move_coordinator(None, load_ms=0.5), f"load_ms=0.5: {none_loads}"),
        (lambda: partition.move_leader(None, load_fails=True), f"load_fails=True: {none_loads}"),
    ]

    def state() -> list[tuple[bool, int]]:
        brokers = harness.cluster.brokers.values()
        return [(each.up, len(harness.cluster.topics.led_by(each.node_id))) for each in brokers]

    before = state()
    for call, message in calls:
        with pytest.raises(ConfigError) as raised:
            call()
        assert str(raised.value) == message
        assert state() == before


def test_records_of_topics_that_are_not_internal_cannot_be_lost(cluster: LocalCluster, harness: ClusterHarness) -> None:
    """The options apply to the logs of coordinators, so that a command that would keep other records is refused."""
    leader = harness.partition(0, "orders").leader_id
    other = leader % 3 + 1
    cluster.broker(leader).stop(lose_tail=2)  # All topics are empty.
    cluster.broker(leader).start()
    cluster.brokers.elect_preferred()
    cluster.topic("orders").produce(["a", "b", "c"], partition=0)
    broker = cluster.broker(leader)
    calls: list[Callable[..., object]] = [
        broker.stop,
        partial(broker.stop, elect=False),
        broker.restart,
        cluster.brokers.rolling_restart,
        partial(broker.upgrade, None),
        broker.remove,
    ]
    options: list[dict[str, Any]] = [{"lose_tail": 2}, {"lose_all": True}]
    for option in options:
        ((field, value),) = option.items()
        for call in calls:
            with pytest.raises(ConfigError) as raised:
                call(**option)
            assert str(raised.value) == (
                f"{field}={value}: expected no such option, because orders-0 gets another leader and its records "
                "cannot be lost; move_coordinator of a group or a transactional id loses the records of a coordinator"
            )
            assert harness.cluster.brokers[leader].up, call
    cluster.broker(other).stop(lose_tail=2)
    cluster.broker(other).start(lose_tail=2)
    cluster.broker(leader).stop()
    cluster.broker(leader).start()
    assert harness.partition(0, "orders").leader_id != leader
    with pytest.raises(ConfigError, match=r"^lose_tail=2: expected no such option, because orders-0 "):
        cluster.brokers.elect_preferred(lose_tail=2)
    cluster.brokers.elect_preferred()
    cluster.broker(leader).stop(elect=False)
    with pytest.raises(ConfigError, match=r"^lose_tail=2: expected no such option, because orders-0 "):
        cluster.broker(leader).start(lose_tail=2)
    assert not harness.cluster.brokers[leader].up
    assert harness.partition(0, "orders").log.log_end_offset == 3


def test_errors_suggest_the_nearest_name(cluster: LocalCluster) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'broker\.stop'\?$"):
        perform(cluster, {"do": "broker.stpo", "node_id": 1})
    for former, name in (("stop_broker", r"broker\.stop"), ("remove_acl", r"acls\.remove"), ("evict", r"group\.evict")):
        with pytest.raises(ConfigError, match=f"do='{former}': expected {name}, which is the new name"):
            perform(cluster, {"do": former, "node_id": 1})
    with pytest.raises(ConfigError, match=r"lose_tial=1: unknown field; .* did you mean 'lose_tail'\?$"):
        perform(cluster, {"do": "broker.stop", "node_id": 1, "lose_tial": 1})
    with pytest.raises(ConfigError, match=r"api='Heartbaet': .* did you mean 'Heartbeat'\?$"):
        cluster.inject_fault("Heartbaet", drop=True)
    with pytest.raises(AttributeError, match=r"^no action 'stpo': expected one of .*start.*; did you mean 'stop'\?$"):
        actions.broker(1).stpo()
    with pytest.raises(AttributeError, match=r"^no action 'describe': expected one of [a-z_, ]+$"):
        actions.broker(1).describe()  # a view


def test_structs_are_validated_like_plain_data(cluster: LocalCluster) -> None:
    members = [MemberSeed(session_timeout_ms=-5)]
    with pytest.raises(ConfigError, match=r"^members\[0\]\.session_timeout_ms=-5: expected an integer from 1 to "):
        cluster.group("g").seed(members)
    with pytest.raises(ConfigError, match=r"^groups\[0\]\.members\[0\]\.session_timeout_ms=-5: expected"):
        cluster.seed_groups([GroupSeed(group_id="g", members=members)])
    with pytest.raises(ConfigError, match=r"^nth=0: expected an integer >= 1 or none$"):
        cluster.inject_fault(api="Heartbeat", drop=True, nth=0)
    with pytest.raises(ConfigError, match=r"^like\.as_version=2\.8: expected a string \(such as '2\.8'\) or none$"):
        cluster.brokers.add(Broker(as_version=2.8))  # type: ignore[arg-type]  # a common mistake


def test_appends_of_one_partition_fail(cluster: LocalCluster, harness: ClusterHarness) -> None:
    def commit(group_id: str) -> str:
        request = commit_of(offset_to_commit(0), group_id=group_id, topic="orders")
        return ErrorCode(harness.ask(request, 9).topics[0].partitions[0].error_code).name

    other = next(name for name in "abcdef" if partition_for(name, 2) != partition_for("g", 2))
    for group_id in ("g", other):
        cluster.group(group_id).move_coordinator(to=1)
    with cluster.group("g").fail_append(times=None) as failure:
        assert [commit("g"), commit("g"), commit(other)] == ["COORDINATOR_NOT_AVAILABLE"] * 2 + ["NONE"]
        assert failure.hits == 2
    assert commit("g") == "NONE"
    first = cluster.group("g").fail_append(ErrorCode.KAFKA_STORAGE_ERROR)
    second = cluster.group("g").fail_append("UNKNOWN_SERVER_ERROR")
    assert [commit("g") for _ in range(3)] == ["NOT_COORDINATOR", "UNKNOWN_SERVER_ERROR", "NONE"]
    assert (first.hits, second.hits) == (1, 1)
    third = cluster.group("g").fail_append()
    third.remove()
    third.remove()
    cluster.group("g").fail_append()
    cluster.clear_faults()
    assert commit("g") == "NONE"
    for error in ("NOT_COORDINATOR", "X"):
        with pytest.raises(ConfigError, match=f"error='{error}': expected an error of an append, one of NOT_ENOUGH"):
            cluster.group("g").fail_append(error)
    with pytest.raises(ConfigError, match="times=0: expected an integer >= 1"):
        cluster.group("g").fail_append(times=0)
