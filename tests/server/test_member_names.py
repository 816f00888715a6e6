"""Each command with a member accepts its member id, its instance id, and its client id if only one member has it."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker import ConfigError, FakeCluster
from fakebroker.cluster.handles.definition import commands
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from tests.support.group_requests import join_request
from tests.support.wire_client import WireClient

OF_MEMBERS = sorted(
    each.method.__name__ for each in commands().values() if "member" in inspect.signature(each.method).parameters
)
OF_CLASSIC_GROUPS = ["choose_leader", "delay_sync", "evict", "expire", "release_sync"]
OF_CONSUMER_GROUPS = ["evict", "expire", "fence_epoch", "hold", "release"]
"""With `epoch`, `fence` accepts each name. Without it, only the instance id of a static member."""
KINDS = ["member id", "instance id", "client id"]
VERSION = 5  # The first one with instance ids.

Named = tuple[FakeCluster, dict[str, str]]
"""A cluster with a group "g" of one static member, and the names of this member."""


def test_commands_of_members_are_known() -> None:
    assert sorted({*OF_CLASSIC_GROUPS, *OF_CONSUMER_GROUPS}) == OF_MEMBERS


@pytest.fixture
def names() -> Iterator[Named]:
    """A classic group."""
    config = {"group.initial.rebalance.delay.ms": 0}
    with (
        FakeCluster(brokers=1, clock="manual", seed=1, config=config) as cluster,
        WireClient(cluster.brokers[0], "client") as wire,
    ):
        request = join_request("g")
        request.group_instance_id = "instance"
        member_id = wire.ask(request, JoinGroupResponse, VERSION).member_id
        cluster.wait(cluster.group("g").state("CompletingRebalance", members=1))
        yield cluster, {"member id": member_id, "instance id": "instance", "client id": "client"}


@pytest.fixture
def names_in_consumer_group() -> Iterator[Named]:
    """A consumer group."""
    with (
        FakeCluster(brokers=1, topics={"orders": 1}, clock="manual", seed=1) as cluster,
        WireClient(cluster.brokers[0], "client") as wire,
    ):
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="id", member_epoch=0, instance_id="instance")
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, ["orders"], []
        assert wire.ask(request, ConsumerGroupHeartbeatResponse).member_epoch == 2
        yield cluster, {"member id": "id", "instance id": "instance", "client id": "client"}


def run(cluster: FakeCluster, name: str, member: str) -> None:
    arguments: dict[str, Any] = {"seconds": 1.0} if name == "delay_sync" else {}
    if name in ("hold", "release"):
        arguments["state"] = "Reconciling"
    getattr(cluster.group("g"), name)(member=member, **arguments)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", OF_CLASSIC_GROUPS)
def test_a_member_is_found(names: Named, command: str, kind: str) -> None:
    cluster, known = names
    if command == "release_sync":
        cluster.group("g").delay_sync(known["member id"])
    run(cluster, command, known[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", OF_CONSUMER_GROUPS)
def test_a_member_of_a_consumer_group_is_found(names_in_consumer_group: Named, command: str, kind: str) -> None:
    cluster, known = names_in_consumer_group
    if command == "release":
        cluster.group("g").hold("Reconciling", "id")
    run(cluster, command, known[kind])


@pytest.mark.parametrize("command", OF_CLASSIC_GROUPS)
def test_other_names_are_refused(names: Named, command: str) -> None:
    cluster, known = names
    with pytest.raises(ConfigError, match=f"group 'g': member='instanc': expected one of {known['member id']}"):
        run(cluster, command, "instanc")


@pytest.mark.parametrize("command", OF_CONSUMER_GROUPS)
def test_other_names_are_refused_in_a_consumer_group(names_in_consumer_group: Named, command: str) -> None:
    cluster, _ = names_in_consumer_group
    cluster.group("g").hold("Reconciling", "id")
    listed = "instance" if command == "release" else "id"  # A static member is held by its instance id.
    with pytest.raises(ConfigError, match=f"group 'g': member='instanc': expected one of {listed}"):
        run(cluster, command, "instanc")


def test_the_filter_of_requests_accepts_the_same_names(names: Named) -> None:
    cluster, known = names
    for name in known.values():
        assert cluster.journal.count("JoinGroup", member=name) == 1
        cluster.wait(cluster.requested("JoinGroup", member=name), timeout_s=0)
        cluster.journal.assert_order("JoinGroup", member=name)
    cluster.journal.assert_never(member="instanc")
