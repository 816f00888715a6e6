"""The authentication of a connection to a SASL listener: its frames in, the answers out.

Requests do not reach `RequestPath.handle` before, so that the journal, faults and quotas do not see them. The states
are in `fakebroker.security.sasl`.
"""

import math
import struct
from typing import TYPE_CHECKING, Literal, NamedTuple

from fakebroker.cluster.call import Call, Peer, is_limited
from fakebroker.cluster.configs.listener_settings import SASL_MECHANISMS
from fakebroker.cluster.configs.settings import CLOCK_SKEW, REQUIRED_SCOPE
from fakebroker.cluster.faults.error_catalog import error_places
from fakebroker.cluster.faults.error_responses import InjectedError, refusal
from fakebroker.cluster.handlers import api_versions
from fakebroker.errors import AuthenticationError, ErrorCode, ProtocolError
from fakebroker.protocol.codec import decode
from fakebroker.protocol.frames import read_request_header, response_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from fakebroker.protocol.schema import Message
from fakebroker.security.oauthbearer import TokenRules
from fakebroker.security.sasl import SaslExchange, SaslState

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_START = struct.Struct(">hh")  # API key and version
_SIZE = struct.Struct(">i")
_HANDSHAKE = struct.pack(">h", SaslHandshakeRequest.API_KEY)


Then = Literal["continue", "authenticated", "handle", "fail", "close"]
"""What happens to a connection after a frame.

continue: Its next frame is read.
authenticated: Its requests are handled from now on.
handle: The frame is a request, which has to be handled.
fail: The answer is sent after a delay, and the connection is closed.
close: It is closed at once.
"""
MIN_REAUTHENTICATION_INTERVAL_MS = 1000
"""How often a client can authenticate again. Source: KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS."""


class LoginAnswer(NamedTuple):
    """The answer to a frame.

    Attributes:
        frame: The frame to send, with its size; None if nothing is sent.
        then: What happens to the connection.
        why: The reason to log why the connection is closed. Without secrets.
    """

    frame: bytearray | None
    then: Then = "continue"
    why: str = ""


class Authentication:
    """The authentication of one connection.

    Args:
        cluster: The cluster.
        peer: The connection. Its principal is set when it is authenticated.

    Attributes:
        expires_ms: When the client has to be authenticated again, by the brokers' time; None if it need not.
    """

    def __init__(self, cluster: "Cluster", peer: Peer) -> None:
        self._cluster, self._peer = cluster, peer
        self._mechanisms = cluster.config.of_listener(peer.listener.name).items(SASL_MECHANISMS)
        scope = (cluster.config.text(REQUIRED_SCOPE) or "").split()
        self._token_rules = TokenRules(tuple(scope), cluster.config.number(CLOCK_SKEW))
        self._exchange = SaslExchange(cluster.credentials, self._mechanisms, token_rules=self._token_rules)
        self.expires_ms: float | None = None
        self._repeated_ms = -math.inf

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated."""
        return self._exchange.state is SaslState.AUTHENTICATED

    def receive(self, frame: bytes, now_ms: float) -> LoginAnswer:
        """Return the answer to a frame, given without its size.

        Args:
            frame: The frame.
            now_ms: The brokers' time, in milliseconds since the epoch.
        """
        if self.is_complete:
            assert self.expires_ms is not None
            if frame[:2] == _HANDSHAKE and now_ms - self._repeated_ms >= MIN_REAUTHENTICATION_INTERVAL_MS:
                self._repeated_ms = now_ms
                self._exchange = SaslExchange(
                    self._cluster.credentials, self._mechanisms, self._exchange, self._token_rules
                )
            elif now_ms > self.expires_ms:
                return LoginAnswer(None, "close", "the session has expired, expected a new authentication")
            else:
                return LoginAnswer(None, "handle")
        self._exchange.now_ms = now_ms
        self._exchange.credentials = self._cluster.credentials  # A restored snapshot replaces them.
        if self._exchange.state is SaslState.WRONG_MECHANISM:
            self._exchange.fail()
            return LoginAnswer(None, "fail", "re-authentication: expected the mechanism of the last authentication")
        if self._exchange.state is SaslState.RAW_TOKENS:
            return self._receive_raw(frame)
        try:
            call = self._call(frame)
        except ProtocolError as error:
            self._exchange.fail()
            return LoginAnswer(None, "close", str(error))
        if self._exchange.state is SaslState.TOKENS:
            return self._receive_token(call)
        if isinstance(call.request, SaslHandshakeRequest):
            return self._shake_hands(call, call.request)
        assert isinstance(call.request, ApiVersionsRequest)
        call.response = api_versions.handle(self._cluster, call, now_ms)
        if not call.response.error_code:
            self._exchange.versions_known()
        return LoginAnswer(_answer(call, call.response))

    def _call(self, frame: bytes) -> Call:
        """Decode a request that may be sent in this state.

        Not with `read_call`, which keeps the last frame, and decodes any request of any length.

        Raises:
            ProtocolError: The request is malformed, or not allowed.
        """
        if len(frame) < _START.size:
            raise ProtocolError(f"request of {len(frame)} bytes, expected a header of 10 or more")
        key, version = _START.unpack_from(frame)
        broker, state = self._peer.broker, self._exchange.state
        api, versions = broker.api(key, version), broker.versions.get(key)
        if api is None or versions is None:
            raise ProtocolError(f"API key {key} before authentication, expected SASL or Kafka's ApiVersions")
        if state is not SaslState.TOKENS:
            expected = [SaslHandshakeRequest, *([ApiVersionsRequest] if state is SaslState.START else ())]
            if api.request not in expected:
                raise ProtocolError(f"{api.name} before authentication, expected SaslHandshake")
        is_supported = version in versions
        if not is_supported and api.request is not ApiVersionsRequest:
            raise ProtocolError(f"{api.name} version {version}, expected {versions}")
        limited = is_limited(broker, frame)
        header, position = read_request_header(frame, version in api.request.FLEXIBLE, limited)
        request: Message = ApiVersionsRequest()
        if is_supported:
            request = decode(api.request, frame, version, position, fills_data=False, limited=limited)
        return Call(self._peer, api, version, header.correlation_id, header.client_id or "", request, len(frame))

    def _shake_hands(self, call: Call, request: SaslHandshakeRequest) -> LoginAnswer:
        mechanisms = list(self._exchange.mechanisms)
        if self._exchange.shake_hands(request.mechanism, raw=call.api_version == 0):
            return LoginAnswer(_answer(call, SaslHandshakeResponse(error_code=0, mechanisms=mechanisms)))
        error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
        return LoginAnswer(_answer(call, response), "fail", f"SASL mechanism {request.mechanism[:40]!r} is not enabled")

    def _receive_token(self, call: Call) -> LoginAnswer:
        if not isinstance(call.request, SaslAuthenticateRequest):
            self._exchange.fail()
            return LoginAnswer(_illegal_state(call), "fail", f"{call.api.name} before authentication is complete")
        try:
            token = self._exchange.respond(call.request.auth_bytes)
        except AuthenticationError as error:
            refused = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error), auth_bytes=b""
            )
            return LoginAnswer(_answer(call, refused), "fail", str(error))
        except ProtocolError as error:
            return LoginAnswer(None, "close", str(error))
        lifetime_ms = self._start_session()
        response = SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms
        )
        return self._accepted(_answer(call, response))

    def _receive_raw(self, token: bytes) -> LoginAnswer:
        try:
            answer = self._exchange.respond(token)
        except AuthenticationError as error:
            return LoginAnswer(None, "fail", str(error))
        except ProtocolError as error:
            return LoginAnswer(None, "close", str(error))
        self._start_session()
        return self._accepted(bytearray(_SIZE.pack(len(answer)) + answer))

    def _start_session(self) -> int:
        """Set when the session ends, if the client is authenticated now. Return its length; 0 if it has none."""
        if self._exchange.state is not SaslState.AUTHENTICATED:
            return 0
        max_ms = self._cluster.config.max_session_ms(self._peer.listener.name, self._exchange.mechanism)
        lifetime_ms = self._exchange.lifetime_ms(max_ms)
        self.expires_ms = None if lifetime_ms is None else self._exchange.now_ms + lifetime_ms
        return lifetime_ms or 0

    def _accepted(self, frame: bytearray) -> LoginAnswer:
        if self._exchange.principal is None:
            return LoginAnswer(frame)
        self._peer.principal = self._exchange.principal
        return LoginAnswer(frame, "authenticated")


def _answer(call: Call, response: Message) -> bytearray:
    return response_frame(response, call.response_version, call.correlation_id)


def _illegal_state(call: Call) -> bytearray | None:
    """Return the answer of an API with ILLEGAL_SASL_STATE (AbstractRequest.getErrorResponse), None if it has none."""
    places = [each for each in error_places(call.api) if call.api_version in each.versions]
    if not places or getattr(call.request, "acks", None) == 0:
        return None
    error = InjectedError(ErrorCode.ILLEGAL_SASL_STATE, places[0], call.api_version, {}, lambda topic_id: None)
    return _answer(call, refusal(error, call.api.response, call.request))
