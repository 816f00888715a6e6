"""SaslAuthenticate: ILLEGAL_SASL_STATE, because the client has authenticated already, or uses a PLAINTEXT listener.

Source: KafkaApis.handleSaslAuthenticateRequest. `fakebroker.cluster.authentication` answers other clients.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate: expected a SASL listener, and a client that is not authenticated yet"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message, auth_bytes=b"")
