"""FindCoordinator: the coordinators of groups and transactional ids. Any broker answers.

Versions 0-3 have one key, later ones many, with a result for each (KIP-699). `Cluster.reported_coordinator_of` returns
an old coordinator while the failover option `stale_ms` applies.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, transaction_error
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, EncodedResponse, UndecodedCall
from fakebroker.cluster.faults.error_catalog import MESSAGES
from fakebroker.cluster.listeners import Listener
from fakebroker.coordinator.partitions import Hashes
from fakebroker.errors import ErrorCode
from fakebroker.protocol.codec import encode
from fakebroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.types import unsigned_varint
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

# Kafka's CoordinatorType.
GROUP, TRANSACTION, SHARE = 0, 1, 2

# Parts of encoded responses. In a response with one key, which is empty, its node id follows the throttle time, the
# number of keys and the key.
_FIRST_BATCH_VERSION = 4
_NO_THROTTLE_TIME, _NO_TAGS = bytes(4), bytes(1)
_NODE_ID_AT = len(_NO_THROTTLE_TIME) + 2

_ENCODED_KEY_HASHES: Hashes[bytes] = Hashes(lambda key: key[1:].decode())
"""The hash by key as it is in a batch request: after its length. Decoding all keys would take as long as the rest."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> FindCoordinatorResponse | EncodedResponse:
    if isinstance(call, UndecodedCall) and cluster.acls is None and cluster.requests.may_answer_with_bytes:
        key_type, keys = call.items
        if key_type == GROUP:
            return _find_groups(cluster, keys, call.peer.listener)
    request: FindCoordinatorRequest = call.request
    if call.api_version >= 4:
        found = [_find(cluster, call, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(cluster, call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or MESSAGES[ErrorCode(one.error_code)],
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find_groups(cluster: "Cluster", keys: list[bytes], listener: Listener) -> EncodedResponse:
    """Return the encoded response for many groups: each row is the key, as it was received, and its coordinator."""
    coordinators = _EncodedCoordinators(cluster, listener)
    count = len(cluster.topics.offsets_topic.partitions)
    rows = [_NO_THROTTLE_TIME, unsigned_varint(len(keys) + 1)]
    for key in keys:
        rows += (key, coordinators[_ENCODED_KEY_HASHES[key] % count])
    rows.append(_NO_TAGS)
    return EncodedResponse(b"".join(rows), tuple(coordinators.errors))


class _EncodedCoordinators(dict[int, bytes]):
    """The encoded coordinators of this moment, by partition of __consumer_offsets, without keys.

    Attributes:
        errors: The error codes of the coordinators looked up so far, in this order.
    """

    def __init__(self, cluster: "Cluster", listener: Listener) -> None:
        super().__init__()
        self._cluster, self._listener = cluster, listener
        self.errors: dict[ErrorCode, None] = {}

    def __missing__(self, index: int) -> bytes:
        found = _coordinator("", self._cluster.reported_coordinator(index), self._listener)
        if found.error_code:
            self.errors[ErrorCode(found.error_code)] = None
        encoded = encode(FindCoordinatorResponse(coordinators=[found]), _FIRST_BATCH_VERSION)
        self[index] = row = encoded[_NODE_ID_AT : -len(_NO_TAGS)]
        return row


def _find(cluster: "Cluster", call: Call, key_type: int, key: str) -> Coordinator:
    if key_type == GROUP:
        if error := group_error(cluster, call, AclOperation.DESCRIBE, key):
            return _failed(key, error, "")
        broker = cluster.reported_coordinator_of(key)
    elif key_type == TRANSACTION:
        if error := transaction_error(cluster, call, AclOperation.DESCRIBE, key):
            return _failed(key, error, "")
        broker = cluster.transaction_coordinator_of(key)
    else:
        # Share groups are disabled, as in releases of Kafka that lack them. Other types of keys do not exist.
        message = "" if key_type == SHARE else f"key type {key_type}: expected 0 (group) or 1 (transaction)"
        return _failed(key, ErrorCode.INVALID_REQUEST, message)
    return _coordinator(key, broker, call.peer.listener)


def _coordinator(key: str, broker: BrokerNode | None, listener: Listener) -> Coordinator:
    if broker is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    host, port = broker.endpoint(listener)
    return Coordinator(key=key, node_id=broker.node_id, host=host, port=port, error_code=0, error_message="")


def _failed(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
