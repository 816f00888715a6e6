"""SaslHandshake: ILLEGAL_SASL_STATE, as on each plaintext listener (KafkaApis.handleSaslHandshakeRequest)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
