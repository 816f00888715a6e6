"""The commands of a cluster without sockets: their definitions, effects, validation and calls of the environment."""

from collections.abc import Callable
from math import inf, isfinite, nan
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from fakebroker.cluster.acl_rules import ALLOW_EVERYTHING, AclRule
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.commands.cluster_commands import COMMANDS, ClusterCommands
from fakebroker.cluster.commands.definition import OPTIONS, commands_of
from fakebroker.cluster.commands.environment import NetworkConditions
from fakebroker.cluster.commands.events import perform
from fakebroker.cluster.emulation import Broker
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.seeding.seed import GroupSeed, MemberSeed
from fakebroker.cluster.seeding.transaction_seed import TransactionSeed
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ConfigError, ErrorCode, shown
from fakebroker.security.acls import AclOperation, ResourceType
from fakebroker.server import seed_tables
from fakebroker.server.fake_cluster import FakeCluster
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment
from tests.support.group_requests import commit_of, offset_to_commit


@pytest.fixture
def harness() -> ClusterHarness:
    return ClusterHarness({"orders": 6}, brokers=3)


@pytest.fixture
def commands(harness: ClusterHarness) -> ClusterCommands:
    return new_commands(harness, ClusterHarnessEnvironment(harness))


def new_commands(harness: ClusterHarness, environment: ClusterHarnessEnvironment) -> ClusterCommands:
    def new_cluster() -> Cluster:
        return ClusterHarness({"orders": 6}, brokers=3).cluster

    return ClusterCommands(harness.cluster, environment, new_cluster=new_cluster)


# Definitions


def test_commands_of_a_fake_cluster_are_validated_and_documented() -> None:
    assert commands_of(FakeCluster) == COMMANDS
    for name in COMMANDS:
        assert getattr(FakeCluster, name).__doc__, name


NOT_PLAIN = {"add_fault", "faults", "remove_fault", "restore", "snapshot"}
"""Methods that take or return objects which plain data cannot represent."""


def test_all_other_methods_are_commands() -> None:
    public = {name for name in dir(ClusterCommands) if not name.startswith("_")}
    assert list(COMMANDS) == sorted(public - NOT_PLAIN)
    for name, command in COMMANDS.items():
        assert command.arguments.__doc__, name


def test_options_of_commands_are_the_fields_of_their_structs() -> None:
    """Type checkers use the typed dictionaries of options; at run time, the structs define types and bounds."""
    for options, struct in OPTIONS.items():
        types = get_type_hints(struct)
        for name, hint in get_type_hints(options).items():
            assert types[name] == hint or name in ("offsets", "lag", "before", "then"), (struct, name)
        without = {"principal", "operation", "permission"} if struct is AclRule else set()
        without |= {"api"} if struct is Fault else {"group_id", "members"} if struct is GroupSeed else set()
        without |= {"transactional_id"} if struct is TransactionSeed else set()
        assert list(options.__annotations__) == [name for name in struct.__struct_fields__ if name not in without]


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


def test_deny_takes_one_permission_from_one_client(harness: ClusterHarness, commands: ClusterCommands) -> None:
    with commands.deny("alice", "READ", group="g"):
        assert not may_read(harness, "User:alice")
        assert may_read(harness, "User:bob")
        assert may_read(harness, "User:alice", "h")
    assert may_read(harness, "User:alice")
    assert list(harness.cluster.acls or ()) == list(ALLOW_EVERYTHING)


def test_allow_removes_the_same_denial_only(harness: ClusterHarness, commands: ClusterCommands) -> None:
    commands.deny("alice", "READ", group="g")
    commands.deny("alice", "ALL", group="h")
    commands.allow("alice", "READ", group="g")
    commands.allow("alice", "READ", group="h")
    assert may_read(harness, "User:alice", "g")
    assert not may_read(harness, "User:alice", "h")


def test_allow_is_needed_if_nothing_is_allowed() -> None:
    harness = ClusterHarness(config={"authorizer.class.name": "StandardAuthorizer"})
    commands = new_commands(harness, ClusterHarnessEnvironment(harness))
    with (
        commands.allow("alice", "READ", group="g", host="1.2.3.4"),
        commands.allow("Group:x", "ALL", group="p", prefixed=True),
    ):
        assert may_read(harness, "User:alice")
        assert not may_read(harness, "User:alice", host="1.2.3.5")
        assert may_read(harness, "Group:x", "person")
    assert not may_read(harness, "User:alice")
    commands.allow("*", "READ", group="*")
    assert may_read(harness, "User:alice")
    commands.remove_acl("*", "READ", "allow", group="*")
    assert not may_read(harness, "User:alice")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            {"do": "allow", "group": "g"},
            "authorizer.class.name='': expected an authorizer, because without one everything",
        ),
        ({"do": "deny"}, "no resource: expected one of topic, group, transactional_id and cluster"),
        ({"do": "deny", "group": "g", "cluster": True}, "group and cluster: expected one of topic, group"),
        ({"do": "deny", "topic": ""}, "topic='': expected a name"),
        ({"do": "deny", "group": "g", "operation": "Read"}, "operation='Read': expected one of .*did you mean 'READ'"),
        (
            {"do": "remove_acl", "group": "g", "permission": "deny"},
            "principal='alice': expected an ACL that exists: none of the 0 is equal",
        ),
    ],
)
def test_invalid_permissions(commands: ClusterCommands, event: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        perform(commands, {"principal": "alice", "operation": "READ", **event})


def test_permissions_in_events(harness: ClusterHarness, commands: ClusterCommands) -> None:
    perform(commands, {"do": "deny", "principal": "alice", "operation": "READ", "group": "g"})
    assert not may_read(harness, "User:alice")
    perform(
        commands, {"do": "remove_acl", "principal": "alice", "operation": "READ", "permission": "deny", "group": "g"}
    )
    assert may_read(harness, "User:alice")


def test_calls_of_the_environment(subtests: pytest.Subtests) -> None:
    cases: list[tuple[list[dict[str, Any]], list[tuple[Any, ...]]]] = [
        ([{"do": "stop_broker", "node_id": 2}], [("close", 2, True)]),
        ([{"do": "restart_broker", "node_id": 2}], [("close", 2, True), ("open", 2)]),
        ([{"do": "upgrade_broker", "node_id": 2, "as_version": "2.8"}], [("close", 2, True), ("open", 2)]),
        (
            [{"do": "stop_broker", "node_id": 1}, {"do": "rolling_restart"}],
            [("close", 1, True), ("close", 2, True), ("open", 2), ("close", 3, True), ("open", 3)],
        ),
        ([{"do": "add_broker"}], [("open", 4)]),
        ([{"do": "remove_broker", "node_id": 1}], [("close", 1, False)]),
        (
            [{"do": "set_broker", "node_id": 1, "accept": "slow", "accept_delay_s": 2, "round_trip_s": 0.5}],
            [("network", 1, NetworkConditions("slow", 2000.0, 500.0))],
        ),
        ([{"do": "renew_certificates"}], [("certificates", False)]),
        ([{"do": "renew_certificates", "expired": True}], [("certificates", True)]),
        ([{"do": "reset"}], [("replace", (1, 2, 3), True)]),
    ]
    for events, calls in cases:
        with subtests.test(events=events):
            harness = ClusterHarness({"orders": 6}, brokers=3)
            environment = ClusterHarnessEnvironment(harness)
            commands = new_commands(harness, environment)
            for event in events:
                perform(commands, event)
            assert environment.calls == calls


def test_a_listener_is_closed_before_leaders_move(harness: ClusterHarness) -> None:
    leaders: list[int] = []
    partition = harness.cluster.offsets_partition_of("g")

    class LeaderRecordingEnvironment(ClusterHarnessEnvironment):
        def close_listener(self, *_: Any, **__: Any) -> None:
            leaders.append(partition.leader_id)

    leader_id = partition.leader_id
    new_commands(harness, LeaderRecordingEnvironment(harness)).stop_broker(leader_id)
    assert leaders == [leader_id]
    assert partition.leader_id != leader_id


def test_a_seeded_group_is_held_and_released(commands: ClusterCommands, harness: ClusterHarness) -> None:
    commands.seed_group("g", ["a", "b"], topics=["orders"])
    with commands.hold("g", "PreparingRebalance"):
        commands.force_rebalance("g")
        harness.advance(600_000)
        group = harness.cluster.coordinator_of("g").coordinator.groups.classic.get("g")  # type: ignore[union-attr]
        assert group is not None
        assert group.state.value == "PreparingRebalance"
    with pytest.raises(ConfigError, match=r"^group_id='g': expected a group that is held, but there is none$"):
        commands.release("g")


def test_a_fault_handle_removes_its_fault(commands: ClusterCommands) -> None:
    with commands.fail("Heartbeat", error="NOT_COORDINATOR") as handle:
        assert [each.fault for each in commands.faults] == [handle.fault]
        assert handle.hits == 0
    assert commands.faults == []


def test_advance_to_the_next_deadline(commands: ClusterCommands, harness: ClusterHarness) -> None:
    assert commands.advance_to_next_deadline() is None
    commands.seed_group("g", 1, topics=["orders"])
    deadlines = commands.advance_to_next_deadline()
    assert deadlines is not None
    (deadline,) = deadlines
    assert (deadline.kind, deadline.at_ms) == ("session", harness.now_ms)


# Validation


def test_arguments_are_validated_before_a_step_runs(harness: ClusterHarness) -> None:
    class FailingEnvironment(ClusterHarnessEnvironment):
        def run(self, step: Callable[[], Any]) -> Any:
            raise AssertionError("a step ran")

    commands = new_commands(harness, FailingEnvironment(harness))
    for event in (
        {"do": "stop_broker", "node_id": 1, "load_ms": -1},
        {"do": "delay_sync", "group_id": "g", "member": "m", "seconds": -1},
        {"do": "hold", "group_id": "g", "state": "Stable"},
        {"do": "set_broker", "node_id": 1, "accept": "slow"},
        {"do": "add_broker", "like": 1},
    ):
        with pytest.raises(ConfigError):
            perform(commands, event)


DURATION = "a number from 0 to 1000000000000"
INVALID_TIMES: list[Any] = [-1, nan, inf, -inf, "1", True, [1], 10**400, 1e300]
COMMANDS_WITH_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("stop_broker", {"node_id": 1}),
    ("rolling_restart", {}),
    ("upgrade_broker", {"node_id": 1, "as_version": None}),
    ("move_coordinator", {"group_id": "g", "to": 1}),
]


def test_invalid_failover_options(commands: ClusterCommands) -> None:
    invalid = [
        *(("load_ms", value, f"{DURATION} or none") for value in INVALID_TIMES),
        *(("stale_ms", value, DURATION) for value in [*INVALID_TIMES, None]),
        *(("lose_tail", value, "an integer >= 0") for value in [-1, 1.0, nan, inf, "1", True, None]),
        *((name, value, "true or false") for name in ("load_fails", "lose_all", "zombie") for value in (1, "no", None)),
    ]
    for name, arguments in COMMANDS_WITH_OPTIONS:
        for option, value, expected in invalid:
            is_infinite = isinstance(value, float) and not isfinite(value)
            with pytest.raises(ConfigError) as raised:
                getattr(commands, name)(**arguments, **{option: value})
            error = raised.value
            assert (error.field, repr(error.value)) == (option, repr(value)), name
            assert error.expected == ("a finite number" if is_infinite else expected)
            assert str(error) == f"{option}={shown(value)}: expected {error.expected}"


def test_failover_options_at_their_limits(commands: ClusterCommands) -> None:
    for value in (0, 0.5, 10**12):
        commands.rolling_restart(load_ms=value, stale_ms=value)
    commands.rolling_restart(load_ms=None, lose_tail=10**12)


def test_failover_options_without_effect_are_errors(commands: ClusterCommands, harness: ClusterHarness) -> None:
    commands.stop_broker(3)
    old_stops = "zombie=True: expected false, because the old coordinator stops"
    none_loads = "expected no such option, because there is no new coordinator that loads"
    is_down = "expected no such option, because broker 3 is down and stays down"
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("stop_broker", {"node_id": 1, "zombie": True}, old_stops),
        ("restart_broker", {"node_id": 1, "zombie": True}, old_stops),
        ("rolling_restart", {"zombie": True}, old_stops),
        ("remove_broker", {"node_id": 1, "zombie": True}, old_stops),
        ("upgrade_broker", {"node_id": 1, "as_version": None, "zombie": True}, old_stops),
        ("upgrade_broker", {"node_id": 3, "as_version": "3.9", "lose_tail": 1}, f"lose_tail=1: {is_down}"),
        ("stop_broker", {"node_id": 1, "elect": False, "load_ms": None}, f"load_ms=None: {none_loads}"),
        ("move_coordinator", {"group_id": "g", "to": None, "load_ms": 0.5}, f"load_ms=0.5: {none_loads}"),
        ("move_offsets_partition", {"partition": 0, "to": None, "load_fails": True}, f"load_fails=True: {none_loads}"),
    ]

    def state() -> list[tuple[bool, int]]:
        brokers = harness.cluster.brokers.values()
        return [(each.up, len(harness.cluster.topics.led_by(each.node_id))) for each in brokers]

    before = state()
    for name, arguments, message in calls:
        with pytest.raises(ConfigError) as raised:
            getattr(commands, name)(**arguments)
        assert str(raised.value) == message, name
        assert state() == before


def test_records_of_topics_that_are_not_internal_cannot_be_lost(
    commands: ClusterCommands, harness: ClusterHarness
) -> None:
    """The options apply to the logs of coordinators, so that a command that would keep other records is refused."""
    leader = harness.partition(0, "orders").leader_id
    other = leader % 3 + 1
    commands.stop_broker(leader, lose_tail=2)  # All topics are empty.
    commands.start_broker(leader)
    commands.elect_preferred()
    commands.produce("orders", ["a", "b", "c"], partition=0)
    stop: dict[str, Any] = {"node_id": leader}
    options: list[dict[str, Any]] = [{"lose_tail": 2}, {"lose_all": True}]
    for option in options:
        ((field, value),) = option.items()
        for name, arguments in [
            ("stop_broker", stop),
            ("stop_broker", {**stop, "elect": False}),
            ("restart_broker", stop),
            ("rolling_restart", {}),
            ("upgrade_broker", {**stop, "as_version": None}),
            ("remove_broker", stop),
        ]:
            with pytest.raises(ConfigError) as raised:
                getattr(commands, name)(**arguments, **option)
            assert str(raised.value) == (
                f"{field}={value}: expected no such option, because orders-0 gets another leader and its records "
                "cannot be lost; move_coordinator and move_transaction_coordinator lose those of a coordinator"
            )
            assert harness.cluster.brokers[leader].up, name
    commands.stop_broker(other, lose_tail=2)
    commands.start_broker(other, lose_tail=2)
    commands.stop_broker(leader)
    commands.start_broker(leader)
    assert harness.partition(0, "orders").leader_id != leader
    with pytest.raises(ConfigError, match=r"^lose_tail=2: expected no such option, because orders-0 "):
        commands.elect_preferred(lose_tail=2)
    commands.elect_preferred()
    commands.stop_broker(leader, elect=False)
    with pytest.raises(ConfigError, match=r"^lose_tail=2: expected no such option, because orders-0 "):
        commands.start_broker(leader, lose_tail=2)
    assert not harness.cluster.brokers[leader].up
    assert harness.partition(0, "orders").log.log_end_offset == 3


def test_errors_suggest_the_nearest_name(commands: ClusterCommands) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'stop_broker'\?$"):
        perform(commands, {"do": "stop_brokr", "node_id": 1})
    with pytest.raises(ConfigError, match=r"lose_tial=1: unknown field; .* did you mean 'lose_tail'\?$"):
        perform(commands, {"do": "stop_broker", "node_id": 1, "lose_tial": 1})
    with pytest.raises(ConfigError, match=r"api='Heartbaet': .* did you mean 'Heartbeat'\?$"):
        commands.fail("Heartbaet", drop=True)


def test_structs_are_validated_like_plain_data(commands: ClusterCommands) -> None:
    members = [MemberSeed(session_timeout_ms=-5)]
    with pytest.raises(ConfigError, match=r"^members\[0\]\.session_timeout_ms=-5: expected an integer from 1 to "):
        commands.seed_group("g", members)
    with pytest.raises(ConfigError, match=r"^groups\[0\]\.members\[0\]\.session_timeout_ms=-5: expected"):
        commands.seed_groups([GroupSeed(group_id="g", members=members)])
    with pytest.raises(ConfigError, match=r"^fault: nth=0: expected an integer >= 1 or none$"):
        commands.add_fault(Fault(api="Heartbeat", drop=True, nth=0))
    with pytest.raises(ConfigError, match=r"^like\.as_version=2\.8: expected a string \(such as '2\.8'\) or none$"):
        commands.add_broker(Broker(as_version=2.8))  # type: ignore[arg-type]  # a common mistake


def test_appends_of_one_partition_fail(commands: ClusterCommands, harness: ClusterHarness) -> None:
    def commit(group_id: str) -> str:
        request = commit_of(offset_to_commit(0), group_id=group_id, topic="orders")
        return ErrorCode(harness.ask(request, 9).topics[0].partitions[0].error_code).name

    other = next(name for name in "abcdef" if partition_for(name, 2) != partition_for("g", 2))
    for group_id in ("g", other):
        commands.move_coordinator(group_id, to=1)
    with commands.fail_append("g", times=None) as failure:
        assert [commit("g"), commit("g"), commit(other)] == ["COORDINATOR_NOT_AVAILABLE"] * 2 + ["NONE"]
        assert failure.hits == 2
    assert commit("g") == "NONE"
    first = commands.fail_append("g", ErrorCode.KAFKA_STORAGE_ERROR)
    second = commands.fail_append("g", "UNKNOWN_SERVER_ERROR")
    assert [commit("g") for _ in range(3)] == ["NOT_COORDINATOR", "UNKNOWN_SERVER_ERROR", "NONE"]
    assert (first.hits, second.hits) == (1, 1)
    third = commands.fail_append("g")
    third.remove()
    third.remove()
    commands.fail_append("g")
    commands.clear_faults()
    assert commit("g") == "NONE"
    for error in ("NOT_COORDINATOR", "X"):
        with pytest.raises(ConfigError, match=f"error='{error}': expected an error of an append, one of NOT_ENOUGH"):
            commands.fail_append("g", error)
    with pytest.raises(ConfigError, match="times=0: expected an integer >= 1"):
        commands.fail_append("g", times=0)
