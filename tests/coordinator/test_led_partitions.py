"""The groups of the partitions that a coordinator leads, and the end of these groups when it resigns a partition."""

from fakebroker.coordinator.classic.states import GroupState
from fakebroker.coordinator.partitions import partition_for
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import DELAY_MS, CoordinatorHarness
from tests.support.coordinator.group_messages import join_response, sync_response

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
PARTITION = partition_for("g", 50)


def test_parked_joins_get_not_coordinator_with_their_member_ids() -> None:
    harness = CoordinatorHarness()
    calls = [harness.join(client_id=name) for name in "ab"]
    harness.coordinator.resign(PARTITION, harness.now_ms)
    harness.settle()
    assert [call.result for call in calls] == [
        join_response(NOT_COORDINATOR, member_id="a-uuid1"),
        join_response(NOT_COORDINATOR, member_id="b-uuid2"),
    ]


def test_parked_syncs_get_not_coordinator() -> None:
    harness = CoordinatorHarness()
    _, follower = harness.create_completing_group()
    call = harness.sync(follower, 1)
    harness.coordinator.resign(PARTITION, harness.now_ms)
    harness.settle()
    assert call.result == sync_response(NOT_COORDINATOR)


def test_resign_drops_the_groups_of_one_partition() -> None:
    harness = CoordinatorHarness()
    harness.create_stable_group()
    group = harness.group()
    harness.commit(group_id="other")
    harness.coordinator.resign(PARTITION, harness.now_ms)
    assert group.state is GroupState.DEAD
    assert [group.group_id for group in harness.coordinator.groups.classic.values()] == ["other"]
    harness.delete_group("other")
    harness.advance(1_000_000)
    assert harness.coordinator.queue.next_deadline() is None


def test_partition_that_is_led_again_has_no_groups() -> None:
    harness = CoordinatorHarness()
    (member_id,) = harness.create_stable_group(1)
    harness.coordinator.resign(PARTITION, harness.now_ms)
    harness.coordinator.lead(PARTITION, harness.now_ms)
    assert harness.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    call = harness.join()
    harness.advance(DELAY_MS)
    assert call.joined.generation_id == 1


def test_groups_are_listed_in_order_of_creation() -> None:
    harness = CoordinatorHarness()
    for group_id in "zay":
        harness.commit(group_id=group_id)
    harness.delete_group("a")
    harness.commit(group_id="a")
    assert [group.group_id for group in harness.coordinator.groups.classic.values()] == ["z", "y", "a"]
