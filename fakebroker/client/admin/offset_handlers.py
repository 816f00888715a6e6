"""The admin client's requests about committed offsets: building them, and reading the responses."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fakebroker.client.admin.descriptions import Node, OffsetAndMetadata
from fakebroker.client.admin.driver import AdminApiHandler
from fakebroker.client.coordinators import RETRIABLE_ERRORS
from fakebroker.client.errors import AdminError, GroupError, NoBatchedOffsetFetch, error_code
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
from fakebroker.topic_partition import TopicPartition, by_topic, format_partitions

Offsets = dict[TopicPartition, OffsetAndMetadata | None]
"""The committed offsets of a group; None for partitions without one."""


def list_offsets(
    wanted: Mapping[str, Collection[TopicPartition] | None], require_stable: bool
) -> AdminApiHandler[str, Offsets]:
    """Fetch committed offsets of groups.

    Args:
        wanted: The partitions of each group; None for all with committed offsets.
        require_stable: Whether to wait for offsets in open transactions (KIP-447).
    """

    def request(groups: Sequence[str]) -> OffsetFetchRequest:
        requested = [_fetch_group(group, wanted[group]) for group in groups]
        return OffsetFetchRequest(groups=requested, require_stable=require_stable)

    def read(
        response: OffsetFetchResponse, _groups: Sequence[str], _coordinator: Node | None
    ) -> Iterator[tuple[str, Offsets | AdminError]]:
        for group in response.groups:
            yield group.group_id, _offsets(group, wanted[group.group_id] or ())

    return AdminApiHandler(
        api="OffsetFetch",
        request=request,
        read=read,
        fails=GroupError,
        not_batched=NoBatchedOffsetFetch,
    )


def _fetch_group(group: str, partitions: Collection[TopicPartition] | None) -> OffsetFetchRequestGroup:
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(dict.fromkeys(partitions)).items()
        ]
    return OffsetFetchRequestGroup(group_id=group, topics=topics)


def _offsets(group: OffsetFetchResponseGroup, requested: Collection[TopicPartition]) -> Offsets | AdminError:
    """Return a group's offsets or error. In version 1 the error is in each partition, or partitions are missing."""
    error = error_code(group.error_code)
    if error is not ErrorCode.NONE:
        return GroupError(group.group_id, "OffsetFetch", error)
    found = {(topic.name, each.partition_index): each for topic in group.topics for each in topic.partitions}
    if any(partition not in found for partition in requested):
        why = "the response does not contain all partitions"
        return GroupError(group.group_id, "OffsetFetch", ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    codes = ((partition, each.error_code) for partition, each in found.items())
    return _failed(group.group_id, "OffsetFetch", codes) or {
        partition: OffsetAndMetadata(each.committed_offset, each.metadata or "", each.committed_leader_epoch)
        if each.committed_offset >= 0
        else None
        for partition, each in found.items()
    }


def alter_offsets(wanted: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> AdminApiHandler[str, None]:
    """Commit offsets for groups without members."""

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


def delete_offsets(wanted: Mapping[str, Collection[TopicPartition]]) -> AdminApiHandler[str, None]:
    """Delete offsets of topics that the group does not subscribe to (KIP-496)."""

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
) -> AdminApiHandler[str, None]:
    """Return the handler of an API with one group per request, whose response does not contain the group id."""

    def read_one(response: Any, groups: Sequence[str], _: Node | None) -> Iterator[tuple[str, AdminError | None]]:
        yield groups[0], read(groups[0], response)

    return AdminApiHandler(
        api=api, request=lambda groups: request(groups[0]), read=read_one, fails=GroupError, max_keys=1
    )


def _codes(response: OffsetCommitResponse | OffsetDeleteResponse) -> Iterator[tuple[TopicPartition, int]]:
    for topic in response.topics:
        yield from (((topic.name, each.partition_index), each.error_code) for each in topic.partitions)


def _failed(group: str, api: str, codes: Iterable[tuple[TopicPartition, int]]) -> GroupError | None:
    """Return the error of a group with failed partitions, if any; retriable errors of the whole group come first."""
    errors = {partition: error_code(code) for partition, code in codes if code}
    if not errors:
        return None
    general = [error for error in errors.values() if error in RETRIABLE_ERRORS]
    if general:
        return GroupError(group, api, general[0])
    partition, first = next(iter(errors.items()))
    why = f"partition {format_partitions([partition])}" + (f" and {len(errors) - 1} more" if len(errors) > 1 else "")
    return GroupError(group, api, first, why, errors)
