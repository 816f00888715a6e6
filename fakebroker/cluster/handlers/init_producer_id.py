"""InitProducerId: give a producer its id and epoch, for idempotence or transactions (KIP-98, KIP-360).

The transaction coordinator decides requests with a transactional id (KafkaApis.handleInitProducerIdRequest).
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, may_any, transaction_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.transaction_errors import in_version
from fakebroker.cluster.request_path import ParkedRequest
from fakebroker.coordinator.transaction.transaction import ProducerResult
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_FIRST_VERSION_OF_PRODUCER_FENCED = 4

_KIP_679 = Release(2, 8)
"""The first release in which the permission to write to a topic allows producers to be idempotent."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: InitProducerIdRequest = call.request
    if error := _permission_error(cluster, call):
        return InitProducerIdResponse(error_code=error, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is None:
        if not cluster.first_use.has_producer_ids(call.node_id, now_ms):
            return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1)
        # As in Kafka, a producer without a transactional id gets a new producer id even if it has one.
        return InitProducerIdResponse(producer_id=cluster.new_producer_id(), producer_epoch=0)
    result = call.broker.transaction_coordinator.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        now_ms,
        ParkedRequest(cluster, call, response),
    )
    return None if result is None else response(call, result)


def _permission_error(cluster: "Cluster", call: Call) -> ErrorCode:
    """Return the error if the client may not use the transactional id, or without one, may not be idempotent."""
    request: InitProducerIdRequest = call.request
    if request.transactional_id is not None:
        return transaction_error(cluster, call, AclOperation.WRITE, request.transactional_id)
    if call.broker.release >= _KIP_679 and may_any(cluster, call, AclOperation.WRITE, ResourceType.TOPIC):
        return ErrorCode.NONE
    return cluster_error(cluster, call, AclOperation.IDEMPOTENT_WRITE)


def response(call: Call, result: ProducerResult) -> InitProducerIdResponse:
    """Convert the coordinator's result to the response."""
    error = in_version(result.error, has_fenced=call.api_version >= _FIRST_VERSION_OF_PRODUCER_FENCED)
    return InitProducerIdResponse(error_code=error, producer_id=result.producer_id, producer_epoch=result.epoch)
