"""SaslHandshake: chooses the SASL mechanism of a connection (KIP-43)."""

from fakebroker.protocol.schema import Message, message
from fakebroker.protocol.types import Int16, String


@message(api_key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Message):
    mechanism: String


@message(api_key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse(Message):
    error_code: Int16
    mechanisms: list[String]
