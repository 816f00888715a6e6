"""FindCoordinator: which broker is returned for which key, in all versions."""

import pytest

from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.cluster.cluster_harness import ClusterHarness, versions

ONE_KEY = range(4)
"""The versions that have one key."""


def test_the_leader_of_the_groups_partition_is_returned(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness(brokers=3)
    group_ids = ["a", "my-group", "", "a"]
    for version in versions("FindCoordinator"):
        with subtests.test(version=version):
            if version in ONE_KEY:
                found = [harness.ask(FindCoordinatorRequest(key=key), version, broker=2) for key in group_ids]
                assert {one.error_message for one in found} == ({"NONE"} if version >= 1 else {""})
            else:
                request = FindCoordinatorRequest(coordinator_keys=group_ids)
                found = harness.ask(request, version, broker=2).coordinators
                assert [one.key for one in found] == group_ids
                assert {one.error_message for one in found} == {""}
            for one, group_id in zip(found, group_ids, strict=True):
                node_id = partition_for(group_id, 2) % 3 + 1
                assert (one.error_code, one.node_id, one.host, one.port) == (0, node_id, "localhost", 9000 + node_id)


def test_a_request_without_keys_has_no_results() -> None:
    assert ClusterHarness().ask(FindCoordinatorRequest(coordinator_keys=[]), 4).coordinators == []


def test_key_types_other_than_group_and_transaction_are_invalid(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    for version in versions("FindCoordinator")[1:]:
        for key_type, error in [(1, 0), (2, 42), (3, 42), (-1, 42)]:
            with subtests.test(version=version, key_type=key_type):
                if version in ONE_KEY:
                    found = harness.ask(FindCoordinatorRequest(key="k", key_type=key_type), version)
                else:
                    request = FindCoordinatorRequest(coordinator_keys=["k"], key_type=key_type)
                    (found,) = harness.ask(request, version).coordinators
                    assert found.key == "k"
                place = (-1, "", -1) if error else (1, "localhost", 9001)
                assert (found.error_code, found.node_id, found.host, found.port) == (error, *place)


def test_one_key_can_fail_while_others_succeed() -> None:
    harness = ClusterHarness(brokers=2)
    harness.cluster.brokers[1].up = False
    keys = [f"group-{number}" for number in range(20)]
    found = harness.ask(FindCoordinatorRequest(coordinator_keys=keys), 6, broker=2).coordinators
    for one in found:
        leader = partition_for(one.key, 2) % 2 + 1
        expected = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1) if leader == 1 else (ErrorCode.NONE, 2)
        assert (one.error_code, one.node_id) == expected
    assert {one.error_code for one in found} == {0, 15}
