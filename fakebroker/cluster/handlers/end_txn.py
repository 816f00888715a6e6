"""EndTxn: commit or abort a transaction (KIP-98). In versions 5 and up it raises the producer epoch (KIP-890)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import transaction_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.transaction_errors import in_version
from fakebroker.cluster.request_path import ParkedRequest
from fakebroker.coordinator.transaction.transaction import ProducerResult
from fakebroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_FIRST_VERSION_OF_PRODUCER_FENCED = 2
_FIRST_VERSION_OF_KIP_890 = 5


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: EndTxnRequest = call.request
    if error := transaction_error(cluster, call, AclOperation.WRITE, request.transactional_id):
        return EndTxnResponse(error_code=error)
    result = call.broker.transaction_coordinator.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        is_commit=request.committed,
        raises_epoch=call.api_version >= _FIRST_VERSION_OF_KIP_890,
        now_ms=now_ms,
        token=ParkedRequest(cluster, call, response),
    )
    return None if result is None else response(call, result)


def response(call: Call, result: ProducerResult) -> EndTxnResponse:
    """Convert the coordinator's result to the response."""
    error = in_version(result.error, has_fenced=call.api_version >= _FIRST_VERSION_OF_PRODUCER_FENCED)
    return EndTxnResponse(error_code=error, producer_id=result.producer_id, producer_epoch=result.epoch)
