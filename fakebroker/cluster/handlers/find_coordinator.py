"""FindCoordinator: the coordinators of groups and transactional ids. Any broker answers.

Versions 0-3 have one key, later ones many, with a result for each (KIP-699). `Cluster.reported_coordinator_of` returns
an old coordinator while the failover option `stale_ms` applies.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.error_catalog import MESSAGES
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

# Kafka's CoordinatorType.
GROUP, TRANSACTION, SHARE = 0, 1, 2


def handle(cluster: "Cluster", call: Call, now_ms: float) -> FindCoordinatorResponse:
    request: FindCoordinatorRequest = call.request
    if call.api_version >= 4:
        found = [_find(cluster, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(cluster, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or MESSAGES[ErrorCode(one.error_code)],
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(cluster: "Cluster", key_type: int, key: str) -> Coordinator:
    if key_type == GROUP:
        broker = cluster.reported_coordinator_of(key)
    elif key_type == TRANSACTION:
        broker = cluster.transaction_coordinator_of(key)
    else:
        # Share groups are disabled, as in releases of Kafka that lack them. Other types of keys do not exist.
        message = "" if key_type == SHARE else f"key type {key_type}: expected 0 (group) or 1 (transaction)"
        return _failed(key, ErrorCode.INVALID_REQUEST, message)
    if broker is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    host, port = broker.host, broker.port
    return Coordinator(key=key, node_id=broker.node_id, host=host, port=port, error_code=0, error_message="")


def _failed(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
