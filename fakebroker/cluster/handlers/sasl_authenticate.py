"""SaslAuthenticate: ILLEGAL_SASL_STATE, as on each plaintext listener (KafkaApis.handleSaslAuthenticateRequest)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate on a plaintext listener: expected a SASL listener"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message, auth_bytes=b"")
