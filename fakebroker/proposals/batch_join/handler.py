"""JoinGroup version 10: the members of a batch join together, or are registered."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, refusal
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.join_group import is_refused
from fakebroker.proposals.batch_join.join_batch import join_batch
from fakebroker.proposals.batch_join.messages import BatchJoinGroupRequest
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: BatchJoinGroupRequest = call.request
    if cluster.acls is not None and (error := group_error(cluster, call, AclOperation.READ, request.group_id)):
        return refusal(call, error)
    if is_refused(cluster, call, call.instance_ids, now_ms):
        return None
    join_batch(call.broker.coordinator, request, call, now_ms)
    return None
