"""Kafka's responses to OffsetCommit and OffsetFetch, for the designs that use these messages."""

from collections.abc import Mapping

from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from fakebroker.topic_partition import TopicPartition, by_topic


def commit_response(request: OffsetCommitRequest, error: int) -> OffsetCommitResponse:
    """Return the response to a commit, with one error for all its partitions."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def committed_partitions(request: OffsetFetchRequest) -> list[TopicPartition]:
    """Return the partitions that a request for one group asks for."""
    return [(topic.name, index) for topic in request.groups[0].topics or () for index in topic.partition_indexes]


def fetch_response(
    request: OffsetFetchRequest, offsets: Mapping[TopicPartition, int], error: int
) -> OffsetFetchResponse:
    """Return the response to a request for one group.

    Args:
        request: The request.
        offsets: The committed offsets; -1 is returned for other partitions.
        error: The error of the group.
    """
    topics = [
        OffsetFetchResponseTopics(
            name=topic,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=offsets.get((topic, index), -1),
                    metadata="",
                    error_code=0,
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(committed_partitions(request)).items()
    ]
    group = OffsetFetchResponseGroup(group_id=request.groups[0].group_id, topics=topics, error_code=error)
    return OffsetFetchResponse(groups=[group])
