"""SaslHandshake: chooses the SASL mechanism of a connection (KIP-43)."""

from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import Int16, String


class SaslHandshakeRequest(Message, api_key=17, versions="0-1", flexible="none"):
    mechanism: String


class SaslHandshakeResponse(Message, api_key=17, versions="0-1", flexible="none"):
    error_code: Int16
    mechanisms: list[String]
