"""InitProducerId: assign a new producer id, with epoch 0, for idempotence (KIP-98). Transactions are not supported."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> InitProducerIdResponse:
    error = _error(call.request)
    if error is not ErrorCode.NONE:
        return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
    # As in Kafka, a producer without a transactional id gets a new producer id even if it has a producer id.
    producer_id = cluster.next_producer_id
    cluster.next_producer_id += 1
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error(request: InitProducerIdRequest) -> ErrorCode:
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if request.transactional_id is None else ErrorCode.UNSUPPORTED_VERSION
