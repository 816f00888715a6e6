"""OffsetDelete: what is deleted, what is refused, and where each error stands."""

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from fakebroker.protocol.messages.join_group import JoinGroupRequestProtocol
from fakebroker.protocol.releases import Release
from tests.support.cluster.group_admin import BEFORE_4_0, NONE, Groups

RELEASES = pytest.mark.parametrize("release", [BEFORE_4_0, Release(4, 0)], ids=str)


def test_offsets_are_deleted_from_the_log_too() -> None:
    groups = Groups()
    groups.commit("g", ("news", 0), ("news", 1), ("sport", 0))
    assert groups.delete_offsets(("news", 1), ("sport", 0)) == (NONE, [("news", 1, NONE), ("sport", 0, NONE)])
    assert groups.committed() == [("news", 0)]
    reloaded = groups.reloaded().group("g")
    assert reloaded is not None
    assert [(topic, index) for topic, index, _ in reloaded.offsets] == [("news", 0)]


def test_a_group_without_offsets_is_still_a_group() -> None:
    groups = Groups()
    groups.leave(groups.stable())
    groups.commit()
    assert groups.delete_offsets(("news", 0), ("news", 0)) == (NONE, [("news", 0, NONE), ("news", 0, NONE)])
    assert groups.delete_offsets(("news", 0)) == (NONE, [("news", 0, NONE)])
    assert groups.delete_offsets() == (NONE, [])


def test_unknown_partitions_stand_first() -> None:
    groups = Groups()
    groups.commit()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert groups.delete_offsets(("news", 0), ("news", 7), ("gone", 0), ("sport", 0), ("news", -1)) == (
        NONE,
        [("news", 7, unknown), ("news", -1, unknown), ("news", 0, NONE), ("gone", 0, unknown), ("sport", 0, NONE)],
    )


@RELEASES
@pytest.mark.parametrize(
    ("metadata", "subscribed"),
    [
        (encode_subscription(["news"]), ["news"]),
        (encode_subscription(["gone"]), []),
        (encode_subscription([]), []),
        (b"cannot be read", ["news", "sport"]),
    ],
    ids=["one topic", "another topic", "no topic", "unknown"],
)
def test_topics_that_the_group_subscribes_to(release: Release, metadata: bytes, subscribed: list[str]) -> None:
    groups = Groups(release)
    groups.commit("g", ("news", 0), ("sport", 0))
    member_id = groups.stable(protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)])
    refused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    expected = [(topic, 0, refused if topic in subscribed else NONE) for topic in ("news", "sport")]
    assert groups.delete_offsets(("news", 0), ("sport", 0)) == (NONE, expected)
    assert groups.committed() == [(topic, 0) for topic in subscribed]
    groups.leave(member_id)
    assert groups.delete_offsets(("news", 0), ("sport", 0)) == (NONE, [("news", 0, NONE), ("sport", 0, NONE)])


def test_members_of_another_type_keep_all_their_offsets() -> None:
    groups = Groups()
    groups.commit()
    member_id = groups.stable(protocol_type="connect")
    assert groups.delete_offsets(("news", 0), ("gone", 0)) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert groups.committed() == [("news", 0)]
    groups.leave(member_id)
    assert groups.delete_offsets(("news", 0)) == (NONE, [("news", 0, NONE)])
    assert groups.committed() == []


@pytest.mark.parametrize(
    ("group_id", "broker", "error"),
    [
        ("", 1, ErrorCode.INVALID_GROUP_ID),
        ("", 2, ErrorCode.INVALID_GROUP_ID),
        ("g", 2, ErrorCode.NOT_COORDINATOR),
        ("gone", 1, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_an_error_of_the_group_is_all_that_is_told(group_id: str, broker: int, error: ErrorCode) -> None:
    groups = Groups()
    groups.commit("")
    groups.commit("g")
    assert groups.delete_offsets(("news", 0), ("gone", 0), group_id=group_id, broker=broker) == (error, [])
    assert groups.delete_offsets(("gone", 0), group_id=group_id, broker=broker) == (error, [])


def test_a_coordinator_that_loads() -> None:
    groups = Groups()
    groups.harness.cluster.brokers[2].coordinator.start_loading(0)
    refused: tuple[int, list[tuple[str, int, int]]] = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert groups.delete_offsets(("news", 0), broker=2) == refused
    assert groups.delete_offsets(("news", 0), group_id="", broker=2) == (ErrorCode.INVALID_GROUP_ID, [])
