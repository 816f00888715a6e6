"""The commands of a cluster, without sockets: what they change, and what they have the environment do."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from fakebroker.cluster.commands import ClusterCommands
from fakebroker.cluster.environment import NetworkConditions
from fakebroker.cluster.events import EVENTS, perform
from fakebroker.errors import ConfigError
from fakebroker.server.fake_cluster import FakeCluster
from tests.cluster.harness import Harness, HarnessEnvironment


@pytest.fixture
def harness() -> Harness:
    return Harness({"orders": 6}, brokers=3)


@pytest.fixture
def environment(harness: Harness) -> HarnessEnvironment:
    return HarnessEnvironment(harness)


@pytest.fixture
def commands(harness: Harness, environment: HarnessEnvironment) -> ClusterCommands:
    return ClusterCommands(harness.cluster, environment, new_cluster=lambda: Harness({"orders": 6}, brokers=3).cluster)


def parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any, Any]]:
    found = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default, each.annotation) for each in found]


def test_a_fake_cluster_has_the_same_methods() -> None:
    for name, command in vars(ClusterCommands).items():
        if not name.startswith("_"):
            method = getattr(FakeCluster, name)
            assert method.__doc__, name
            if name == "faults":
                assert isinstance(method, property)
            elif name != "seed_groups":  # A FakeCluster reads tables as well.
                assert parameters(method) == parameters(command), name


def test_every_event_is_a_command_with_a_docstring() -> None:
    for name in EVENTS:
        assert getattr(ClusterCommands, name).__doc__, name


@pytest.mark.parametrize(
    ("events", "calls"),
    [
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
        ([{"do": "reset"}], [("replace", (1, 2, 3), True)]),
    ],
    ids=str,
)
def test_what_the_environment_has_to_do(
    commands: ClusterCommands,
    environment: HarnessEnvironment,
    events: list[dict[str, Any]],
    calls: list[tuple[Any, ...]],
) -> None:
    for event in events:
        perform(commands, event)
    assert environment.calls == calls


def test_a_listener_is_closed_before_leaders_move(commands: ClusterCommands, harness: Harness) -> None:
    leaders: list[int] = []
    partition = harness.cluster.offsets_partition_of("g")

    class Environment(HarnessEnvironment):
        def close_listener(self, *_: Any, **__: Any) -> None:
            leaders.append(partition.leader_id)

    leader_id = partition.leader_id
    ClusterCommands(harness.cluster, Environment(harness), new_cluster=lambda: harness.cluster).stop_broker(leader_id)
    assert leaders == [leader_id]
    assert partition.leader_id != leader_id


def test_arguments_are_checked_before_a_step_runs(harness: Harness) -> None:
    class Environment(HarnessEnvironment):
        def run(self, step: Callable[[], Any]) -> Any:
            raise AssertionError("a step ran")

    commands = ClusterCommands(harness.cluster, Environment(harness), new_cluster=lambda: harness.cluster)
    for event in (
        {"do": "stop_broker", "node_id": 1, "load_ms": -1},
        {"do": "delay_sync", "group_id": "g", "member": "m", "seconds": -1},
        {"do": "hold", "group_id": "g", "state": "Stable"},
        {"do": "set_broker", "node_id": 1, "accept": "slow"},
        {"do": "add_broker", "like": 1},
    ):
        with pytest.raises(ConfigError):
            perform(commands, event)


def test_a_seeded_group_is_held_and_released(commands: ClusterCommands, harness: Harness) -> None:
    commands.seed_group("g", ["a", "b"], topics=["orders"])
    with commands.hold("g", "PreparingRebalance"):
        commands.force_rebalance("g")
        harness.advance(600_000)
        group = harness.cluster.coordinator_of("g").coordinator.group("g")  # type: ignore[union-attr]
        assert group is not None
        assert group.state.value == "PreparingRebalance"
    with pytest.raises(ConfigError, match="is not held"):
        commands.release("g")


def test_a_fault_by_its_handle(commands: ClusterCommands) -> None:
    with commands.fail("Heartbeat", error="NOT_COORDINATOR") as handle:
        assert [each.fault for each in commands.faults()] == [handle.fault]
        assert handle.hits == 0
    assert commands.faults() == []


def test_time_goes_to_the_next_deadline(commands: ClusterCommands, harness: Harness) -> None:
    assert commands.advance_to_next_deadline() is None
    commands.seed_group("g", 1, topics=["orders"])
    deadlines = commands.advance_to_next_deadline()
    assert deadlines is not None
    (deadline,) = deadlines
    assert (deadline.kind, deadline.at_ms) == ("session", harness.now_ms)
