"""Each command with a member accepts its member id, its instance id, and its client id if only one member has it."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from fakebroker import ConfigError, FakeCluster
from fakebroker.cluster.commands import COMMANDS
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from tests.support.group_requests import join_request
from tests.support.wire_client import WireClient

OF_MEMBERS = sorted(name for name, each in COMMANDS.items() if "member" in inspect.signature(each.method).parameters)
VERSION = 5  # The first one with instance ids.


def test_commands_of_members_are_known() -> None:
    assert OF_MEMBERS == ["choose_leader", "delay_sync", "evict", "expire", "release_sync"]


@pytest.fixture
def names() -> Iterator[tuple[FakeCluster, dict[str, str]]]:
    """A group with a static member, and the names of this member."""
    config = {"group.initial.rebalance.delay.ms": 0}
    with (
        FakeCluster(brokers=1, clock="manual", seed=1, config=config) as cluster,
        WireClient(cluster.brokers[0], "client") as wire,
    ):
        request = join_request("g")
        request.group_instance_id = "instance"
        member_id = wire.ask(request, JoinGroupResponse, VERSION).member_id
        cluster.wait_for_state("g", "CompletingRebalance", members=1)
        yield cluster, {"member id": member_id, "instance id": "instance", "client id": "client"}


def run(cluster: FakeCluster, name: str, member: str) -> None:
    arguments: dict[str, Any] = {"seconds": 1.0} if name == "delay_sync" else {}
    getattr(cluster, name)("g", member, **arguments)


@pytest.mark.parametrize("kind", ["member id", "instance id", "client id"])
@pytest.mark.parametrize("command", OF_MEMBERS)
def test_a_member_is_found(names: tuple[FakeCluster, dict[str, str]], command: str, kind: str) -> None:
    cluster, known = names
    if command == "release_sync":
        cluster.delay_sync("g", known["member id"])
    run(cluster, command, known[kind])


@pytest.mark.parametrize("command", OF_MEMBERS)
def test_other_names_are_refused(names: tuple[FakeCluster, dict[str, str]], command: str) -> None:
    cluster, known = names
    with pytest.raises(ConfigError, match=f"group 'g': member='instanc': expected one of {known['member id']}"):
        run(cluster, command, "instanc")


def test_the_filter_of_requests_accepts_the_same_names(names: tuple[FakeCluster, dict[str, str]]) -> None:
    cluster, known = names
    for name in known.values():
        assert cluster.count("JoinGroup", member=name) == 1
        cluster.wait_for_request("JoinGroup", member=name, timeout_s=0)
        cluster.assert_order("JoinGroup", member=name)
    cluster.assert_never(member="instanc")
