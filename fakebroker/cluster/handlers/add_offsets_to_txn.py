"""AddOffsetsToTxn: add the offsets of a group to a transaction (KIP-98), as a partition of __consumer_offsets."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, transaction_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.transaction_errors import in_version
from fakebroker.cluster.request_path import ParkedRequest
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_FIRST_VERSION_OF_PRODUCER_FENCED = 2


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: AddOffsetsToTxnRequest = call.request
    refused = transaction_error(cluster, call, AclOperation.WRITE, request.transactional_id)
    if refused := refused or group_error(cluster, call, AclOperation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=refused)
    error = call.broker.transaction_coordinator.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(OFFSETS_TOPIC, cluster.offsets_partition_of(request.group_id).index)],
        now_ms,
        ParkedRequest(cluster, call, response),
        cause=call.api.name,
    )
    return None if error is None else response(call, error)


def response(call: Call, error: ErrorCode) -> AddOffsetsToTxnResponse:
    """Convert the coordinator's result to the response."""
    has_fenced = call.api_version >= _FIRST_VERSION_OF_PRODUCER_FENCED
    return AddOffsetsToTxnResponse(error_code=in_version(error, has_fenced=has_fenced))
