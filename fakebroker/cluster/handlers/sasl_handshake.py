"""SaslHandshake: ILLEGAL_SASL_STATE, because the client has authenticated already, or uses a PLAINTEXT listener.

Source: KafkaApis.handleSaslHandshakeRequest. `fakebroker.cluster.authentication` answers other clients.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeResponse
from fakebroker.protocol.releases import Release

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


_WITHOUT_MECHANISMS = Release(1, 1)
"""The first release whose error does not list `sasl.enabled.mechanisms`."""
_ENABLED_MECHANISMS = ["GSSAPI"]
"""Kafka's default of `sasl.enabled.mechanisms`."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> SaslHandshakeResponse:
    mechanisms = _ENABLED_MECHANISMS if call.broker.release < _WITHOUT_MECHANISMS else []
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=mechanisms)
