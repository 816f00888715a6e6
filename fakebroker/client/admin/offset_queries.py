"""What the admin client asks about committed offsets: each question with its request, and how its answers are read.

Knows messages in their newest shapes and plain values; no connections.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fakebroker.client.admin.batching import NoBatchedOffsetFetch, Question
from fakebroker.client.admin.descriptions import Node, OffsetAndMetadata
from fakebroker.client.admin.driver import ASK_AGAIN, LOOK_UP_AGAIN
from fakebroker.client.admin.results import AdminError, GroupError
from fakebroker.client.member.assignors import TopicPartition
from fakebroker.client.member.reactions import error_code
from fakebroker.client.member.requests import by_topic
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from fakebroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from fakebroker.protocol.schema import Message

Offsets = dict[TopicPartition, OffsetAndMetadata | None]
"""A group's committed offsets; None where it has none."""


def list_offsets(wanted: Mapping[str, Collection[TopicPartition] | None], require_stable: bool) -> Question[Offsets]:
    """Groups' committed offsets.

    Args:
        wanted: For each group the partitions; None is all for which it has offsets.
        require_stable: Whether offsets of transactions that are not over are waited for (KIP-447).
    """

    def request(groups: Sequence[str]) -> OffsetFetchRequest:
        asked = [_asked(group, wanted[group]) for group in groups]
        return OffsetFetchRequest(groups=asked, require_stable=require_stable)

    def read(
        response: OffsetFetchResponse, _groups: Sequence[str], _coordinator: Node | None
    ) -> Iterator[tuple[str, Offsets | AdminError]]:
        for group in response.groups:
            yield group.group_id, _offsets(group, wanted[group.group_id] or ())

    return Question(
        api="OffsetFetch",
        request=request,
        read=read,
        fails=GroupError,
        batched_since=8,
        not_batched=NoBatchedOffsetFetch,
    )


def _asked(group: str, partitions: Collection[TopicPartition] | None) -> OffsetFetchRequestGroup:
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(dict.fromkeys(partitions)).items()
        ]
    return OffsetFetchRequestGroup(group_id=group, topics=topics)


def _offsets(group: OffsetFetchResponseGroup, asked: Collection[TopicPartition]) -> Offsets | AdminError:
    """A group's offsets, or its error: in version 1 that is in each partition, or no partitions are told of at all."""
    error = error_code(group.error_code)
    if error is not ErrorCode.NONE:
        return GroupError(group.group_id, "OffsetFetch", error)
    told = {(topic.name, each.partition_index): each for topic in group.topics for each in topic.partitions}
    if any(partition not in told for partition in asked):
        why = "the broker does not tell of all partitions asked for"
        return GroupError(group.group_id, "OffsetFetch", ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    codes = ((partition, each.error_code) for partition, each in told.items())
    return _failed(group.group_id, "OffsetFetch", codes) or {
        partition: OffsetAndMetadata(each.committed_offset, each.metadata or "", each.committed_leader_epoch)
        if each.committed_offset >= 0
        else None
        for partition, each in told.items()
    }


def alter_offsets(wanted: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> Question[None]:
    """Offsets to be committed for groups without members."""

    def request(group: str) -> OffsetCommitRequest:
        topics = [
            OffsetCommitRequestTopic(
                name=topic, partitions=[_committed(index, wanted[group][topic, index]) for index in indexes]
            )
            for topic, indexes in by_topic(wanted[group]).items()
        ]
        return OffsetCommitRequest(group_id=group, topics=topics)

    def read(group: str, response: OffsetCommitResponse) -> AdminError | None:
        return _failed(group, "OffsetCommit", _codes(response))

    return _of_one_group("OffsetCommit", request, read)


def _committed(index: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def delete_offsets(wanted: Mapping[str, Collection[TopicPartition]]) -> Question[None]:
    """Offsets to be forgotten, of topics that the group does not subscribe to (KIP-496)."""

    def request(group: str) -> OffsetDeleteRequest:
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in by_topic(dict.fromkeys(wanted[group])).items()
        ]
        return OffsetDeleteRequest(group_id=group, topics=topics)

    def read(group: str, response: OffsetDeleteResponse) -> AdminError | None:
        error = error_code(response.error_code)
        if error is not ErrorCode.NONE:
            return GroupError(group, "OffsetDelete", error)
        return _failed(group, "OffsetDelete", _codes(response))

    return _of_one_group("OffsetDelete", request, read)


def _of_one_group(
    api: str, request: Callable[[str], Message], read: Callable[[str, Any], AdminError | None]
) -> Question[None]:
    """A question whose request and answer are about one group, which the answer does not name."""

    def read_one(response: Any, groups: Sequence[str], _: Node | None) -> Iterator[tuple[str, AdminError | None]]:
        yield groups[0], read(groups[0], response)

    return Question(api=api, request=lambda groups: request(groups[0]), read=read_one, fails=GroupError, most=1)


def _codes(response: OffsetCommitResponse | OffsetDeleteResponse) -> Iterator[tuple[TopicPartition, int]]:
    for topic in response.topics:
        yield from (((topic.name, each.partition_index), each.error_code) for each in topic.partitions)


def _failed(group: str, api: str, codes: Iterable[tuple[TopicPartition, int]]) -> GroupError | None:
    """The error of a group of which partitions failed; one that concerns the whole group goes before the others."""
    errors = {partition: error_code(code) for partition, code in codes if code}
    if not errors:
        return None
    general = [error for error in errors.values() if error in (*ASK_AGAIN, *LOOK_UP_AGAIN)]
    if general:
        return GroupError(group, api, general[0])
    (topic, index), first = next(iter(errors.items()))
    why = f"partition {topic}-{index}" + (f" and {len(errors) - 1} more" if len(errors) > 1 else "")
    return GroupError(group, api, first, why, errors)
