"""OffsetDelete: which offsets are deleted, which are not, and where each error is returned."""

import pytest

from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import encode_subscription
from fakebroker.protocol.messages.join_group import JoinGroupRequestProtocol
from fakebroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from fakebroker.protocol.releases import Release
from tests.support.cluster.group_admin_harness import BEFORE_4_0, NONE, GroupAdminHarness


def test_a_group_still_exists_without_offsets() -> None:
    groups = GroupAdminHarness()
    groups.leave(groups.create_stable_group())
    groups.commit()
    assert groups.delete_offsets(("news", 0), ("news", 0)) == (NONE, [("news", 0, NONE), ("news", 0, NONE)])
    assert groups.delete_offsets(("news", 0)) == (NONE, [("news", 0, NONE)])
    assert groups.delete_offsets() == (NONE, [])


def test_results_of_unknown_partitions_are_first() -> None:
    groups = GroupAdminHarness()
    groups.commit()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert groups.delete_offsets(("news", 0), ("news", 7), ("gone", 0), ("sport", 0), ("news", -1)) == (
        NONE,
        [("news", 7, unknown), ("news", -1, unknown), ("news", 0, NONE), ("gone", 0, unknown), ("sport", 0, NONE)],
    )


def test_a_topic_without_partitions_is_returned_if_it_does_not_exist() -> None:
    groups = GroupAdminHarness()
    groups.commit()
    topics = [OffsetDeleteRequestTopic(name=name, partitions=[]) for name in ("news", "gone")]
    response = groups.cluster_harness.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert [(topic.name, topic.partitions) for topic in response.topics] == [("gone", [])]


def test_offsets_of_subscribed_topics_are_not_deleted(subtests: pytest.Subtests) -> None:
    for release in (BEFORE_4_0, Release(4, 0)):
        for subscription, metadata, subscribed in [
            ("one topic", encode_subscription(["news"]), ["news"]),
            ("another topic", encode_subscription(["gone"]), []),
            ("no topic", encode_subscription([]), []),
            ("unreadable", b"cannot be read", ["news", "sport"]),
        ]:
            with subtests.test(release=str(release), subscription=subscription):
                groups = GroupAdminHarness(release)
                groups.commit("g", ("news", 0), ("sport", 0))
                protocol = JoinGroupRequestProtocol(name="range", metadata=metadata)
                member_id = groups.create_stable_group(protocols=[protocol])
                refused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                expected = [(topic, 0, refused if topic in subscribed else NONE) for topic in ("news", "sport")]
                assert groups.delete_offsets(("news", 0), ("sport", 0)) == (NONE, expected)
                assert groups.committed() == [(topic, 0) for topic in subscribed]
                groups.leave(member_id)
                expected = [("news", 0, NONE), ("sport", 0, NONE)]
                assert groups.delete_offsets(("news", 0), ("sport", 0)) == (NONE, expected)


def test_no_offsets_are_deleted_while_a_group_has_members_of_another_protocol_type() -> None:
    groups = GroupAdminHarness()
    groups.commit()
    member_id = groups.create_stable_group(protocol_type="connect")
    assert groups.delete_offsets(("news", 0), ("gone", 0)) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert groups.committed() == [("news", 0)]
    groups.leave(member_id)
    assert groups.delete_offsets(("news", 0)) == (NONE, [("news", 0, NONE)])
    assert groups.committed() == []
