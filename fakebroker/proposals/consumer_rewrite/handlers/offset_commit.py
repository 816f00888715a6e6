"""OffsetCommit of the proposal `rewrite`: its coordinator checks the request, the classic one stores the offsets."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, refusal
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers import offset_commit
from fakebroker.proposals.consumer_rewrite.rewrite_broker import coordinator_at
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from fakebroker.protocol.schema import Message, replaced
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: OffsetCommitRequest = call.request
    if error := group_error(cluster, call, AclOperation.READ, request.group_id):
        return refusal(call, error)
    if call.api_version == 0:  # no generation; it commits to ZooKeeper
        return offset_commit.handle(cluster, call, now_ms)
    error = coordinator_at(call.broker).error_of_commit(
        request.group_id, request.generation_id_or_member_epoch, request.member_id
    )
    if not error:
        as_no_member = replaced(request, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None)
        return offset_commit.handle(cluster, call, now_ms, as_no_member)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
