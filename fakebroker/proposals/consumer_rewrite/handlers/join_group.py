"""JoinGroup of the proposal `rewrite`: answered when all consumers have joined, with the consumer's partitions."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error
from fakebroker.cluster.call import Call
from fakebroker.proposals.consumer_rewrite.api import JoinAnswer, JoinRequest
from fakebroker.proposals.consumer_rewrite.messages import (
    RewriteJoinGroupRequest,
    RewriteJoinGroupResponse,
    RewriteOwnedTopic,
)
from fakebroker.proposals.consumer_rewrite.rewrite_broker import coordinator_at
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation
from fakebroker.topic_partition import by_topic

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: RewriteJoinGroupRequest = call.request
    if error := group_error(cluster, call, AclOperation.READ, request.group_id):
        return _response(JoinAnswer(error))
    join = JoinRequest(
        request.group_id,
        request.consumer_id,
        request.session_timeout_ms,
        tuple(request.topics),
        request.partition_assignment_strategy,
        call.peer.client_host,
        call.peer,
    )

    def done(answer: JoinAnswer) -> None:
        cluster.requests.answer(call, _response(answer), cluster.now_ms)

    coordinator_at(call.broker).join_group(join, now_ms, done)
    return None


def _response(answer: JoinAnswer) -> RewriteJoinGroupResponse:
    return RewriteJoinGroupResponse(
        error_code=answer.error,
        group_generation_id=answer.generation_id,
        consumer_id=answer.consumer_id,
        partitions_to_own=[
            RewriteOwnedTopic(topic_name=topic, partitions=partitions)
            for topic, partitions in by_topic(answer.partitions).items()
        ],
    )
