"""One client connection as bytes: versions, authentication, requests, and responses, which go to their users.

Does not depend on sockets or streams. Transports send the bytes that `BrokerConnection` returns, and pass it the bytes
that they receive.
"""

import struct

from fakebroker.client.authentication import ClientAuthentication
from fakebroker.client.errors import error_code
from fakebroker.client.transport import Address, ConnectionUser
from fakebroker.client.versions import NegotiatedVersions, convert_request
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.frames import DEFAULT_MAX_FRAME_BYTES, FrameBuffer, read_response, request_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message, Versions

_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_OFFSET = 8
"""In a request's frame: after its size, API key and version."""

_SMALL_RESPONSE_BYTES = 24
_MAX_SMALL_RESPONSES = 1_000
_small_responses: dict[tuple[type[Message], int, bytes], Message] = {}
"""Decoded small responses, such as a heartbeat's, by their bytes. Responses are shared, so they must not be changed."""


class FrameCache:
    """The bytes of a request, such as a heartbeat, that is sent repeatedly with a new correlation id each time."""

    __slots__ = ("_frame", "_request", "_version")

    def __init__(self) -> None:
        self._request: Message | None = None
        self._version = -1
        self._frame = bytearray()

    def frame(self, request: Message, version: int, correlation_id: int, client_id: str) -> bytearray:
        """Return the frame of a request. It is valid until the next call."""
        if version == self._version and (request is self._request or request == self._request):
            _CORRELATION_ID.pack_into(self._frame, _CORRELATION_ID_OFFSET, correlation_id)
        else:
            converted = convert_request(request, version)
            self._frame = bytearray(request_frame(converted, version, correlation_id, client_id))
            self._request, self._version = request, version
        return self._frame


class BrokerConnection:
    """A `TransportConnection` whose requests and responses are bytes.

    Args:
        address: Host and port of the broker.
        user: The first user.
        is_shared: Whether more users will be added.
        max_frame_bytes: Maximum size of a response.
        authentication: How the client authenticates with SASL; None if it does not.

    Attributes:
        address: Host and port of the broker.
        users: Notified when the connection opens or is lost.
        negotiated: None until versions are negotiated.
        versions: None until versions are negotiated, and the client is authenticated.
        is_negotiating: Whether an ApiVersions request is pending.
        is_closed: Whether the connection is closed.
        is_refused: Whether the broker has refused the client, or the client the broker's certificate.
        is_shared: Whether requests of several users should be written together.
        unsent: Bytes to send.
    """

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_frames",
        "_held",
        "_last_opening_id",
        "_pending",
        "_requested_version",
        "address",
        "authentication",
        "is_closed",
        "is_refused",
        "is_shared",
        "negotiated",
        "unsent",
        "users",
        "versions",
    )

    def __init__(
        self,
        address: Address,
        user: ConnectionUser,
        *,
        is_shared: bool = False,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        authentication: ClientAuthentication | None = None,
    ) -> None:
        self.address = address
        self.users: dict[ConnectionUser, None] = {user: None}
        self.is_shared = is_shared
        self.authentication = authentication
        self.negotiated: NegotiatedVersions | None = None
        self.versions: NegotiatedVersions | None = None
        self.is_closed = self.is_refused = False
        self.unsent = bytearray()
        self._frames = FrameBuffer(max_frame_bytes)
        self._pending: list[tuple[int, type[Message], int, ConnectionUser | None]] = []
        self._correlation_id = 0
        self._requested_version = -1
        self._client_id = ""
        self._last_opening_id = 0
        self._held = bytearray()  # Requests that are sent when the client has authenticated again.

    @property
    def is_negotiating(self) -> bool:
        return self._requested_version >= 0 and self.negotiated is None

    @property
    def has_never_answered(self) -> bool:
        """Whether requests were sent since the connection is open, and none was answered."""
        return bool(self._pending) and self._pending[0][0] == self._last_opening_id + 1

    # Opening: negotiation of versions, then authentication

    def open(self, client_id: str, negotiated: NegotiatedVersions | None = None) -> bytes | bytearray:
        """Return the first bytes to send: ApiVersions, or SaslHandshake if versions are known.

        If the result is empty, the connection is open.

        Args:
            client_id: `client.id` of requests until the connection is open.
            negotiated: The versions from an earlier connection to the broker; None if unknown.

        Raises:
            AuthenticationError: There is no valid token.
        """
        self._client_id = client_id
        if negotiated is None:
            return self._request_versions(ApiVersionsRequest.VERSIONS.last)
        self.negotiated = negotiated
        return self._authenticate()

    def receive_opening(self, data: bytes) -> bytes | bytearray:
        """Process bytes of responses until the connection is open, which sets `versions`.

        Returns:
            The bytes to send next.

        Raises:
            ProtocolError: A response is malformed, or ApiVersions fails.
            AuthenticationError: The broker refuses the credentials, or there are none that are valid.
            UnsupportedVersion: The broker is too old to authenticate.
        """
        if self.negotiated is not None:
            self.receive(data)
            return self.take_authentication()
        request = self._receive_versions(data)
        return self._authenticate() if self.negotiated is not None else request

    def _request_versions(self, version: int) -> bytes:
        self._requested_version = version
        request = ApiVersionsRequest(client_software_name="fakebroker", client_software_version="unknown")
        self._correlation_id += 1
        return request_frame(request, version, self._correlation_id, self._client_id)

    def _receive_versions(self, data: bytes) -> bytes:
        """Process bytes of the response to ApiVersions; sets `negotiated` when the response is complete.

        A broker that does not support the request's version answers in version 0 (KIP-511).

        Returns:
            The frame of another ApiVersions request, in an older version, if the broker does not support this one;
            otherwise no bytes.
        """
        for frame in self._frames.feed(data):
            self._check_correlation_id(frame, self._correlation_id)
            version = self._requested_version
            is_refusal = int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
            _, response = read_response(ApiVersionsResponse, 0 if is_refusal else version, frame)
            if is_refusal and version > 0:
                known = {api.api_key: api.max_version for api in response.api_keys}
                return self._request_versions(max(0, min(known.get(ApiVersionsRequest.API_KEY, 0), version - 1)))
            if response.error_code:
                raise ProtocolError(f"ApiVersions failed with {error_code(response.error_code).name}")
            for api in response.api_keys:
                if not 0 <= api.min_version <= api.max_version:
                    given = f"versions {api.min_version} to {api.max_version} of API key {api.api_key}"
                    raise ProtocolError(f"ApiVersions has {given}: expected a range of versions from 0")
            supported = {api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys}
            features = {each.name: each.max_version_level for each in response.finalized_features}
            self.negotiated = NegotiatedVersions(supported, "broker {}:{}".format(*self.address), features)
        return b""

    # Authentication

    def _authenticate(self) -> bytes | bytearray:
        """Begin to authenticate, for the first time or again. Return the bytes to send."""
        if self.authentication is not None:
            self.authentication.begin()
        return self.take_authentication(len(self._pending))

    def take_authentication(self, position: int = 0) -> bytes | bytearray:
        """Return what the authentication has to send: its next request, or, when it is complete, those held meanwhile.

        Args:
            position: How many responses to other requests come before the response to the next request.
        """
        authentication = self.authentication
        if authentication is not None and authentication.next_request is not None:
            request, authentication.next_request = authentication.next_request, None
            assert self.negotiated is not None
            version = self.negotiated.version_of(request)
            self._correlation_id = number = (self._correlation_id + 1) & 0x7FFFFFFF
            self._pending.insert(position, (number, api_of(request).response, version, authentication))
            return request_frame(request, version, number, self._client_id)
        if authentication is None or authentication.is_complete:
            if self.versions is None:
                self._last_opening_id = self._correlation_id
            self.versions = self.negotiated
            held, self._held = self._held, bytearray()
            return held
        return b""

    # Requests and responses

    def frame(
        self, request: Message, version: int, client_id: str, user: ConnectionUser, cache: FrameCache | None
    ) -> bytes | bytearray:
        """Return the bytes to send for a request; `user` receives the response.

        They are usually the request's frame. If the client has to authenticate again, the frame is held until then, and
        the bytes are the SaslHandshake; none if it was sent before.

        Raises:
            ProtocolError: The version cannot represent the request.
            AuthenticationError: The client has to authenticate again, and there is no valid token.
        """
        authentication = self.authentication
        handshake = self._authenticate() if authentication is not None and authentication.is_due() else b""
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFFFFFF
        frame: bytes | bytearray
        if cache is not None:
            frame = cache.frame(request, version, number, client_id)
        else:
            frame = request_frame(convert_request(request, version), version, number, client_id)
        self._pending.append((number, api_of(request).response, version, user))
        if authentication is not None and not authentication.is_complete:
            self._held += frame
            return handshake
        return frame

    def receive(self, data: bytes) -> None:
        """Decode received bytes, and pass each response to the user that sent its request, unless it was removed.

        Raises:
            ProtocolError: The bytes are malformed, or a response does not belong to the oldest pending request.
            AuthenticationError: The client has authenticated again, and is refused.
        """
        for frame in self._frames.feed(data):
            pending = self._pending
            self._check_correlation_id(frame, pending[0][0] if pending else None)
            _, kind, version, user = pending[0]
            response = _read(kind, version, frame)
            del self._pending[0]
            if user is not None:
                user.answered(self, response)

    def _check_correlation_id(self, frame: bytes, expected: int | None) -> None:
        number = _CORRELATION_ID.unpack_from(frame)[0] if len(frame) >= _CORRELATION_ID.size else "none"
        if number != expected:
            raise ProtocolError(f"response with correlation id {number}, expected {expected or 'none'}")

    def forget(self, user: ConnectionUser) -> None:
        """Remove a user; responses to its pending requests are ignored."""
        self.users.pop(user, None)
        if self._pending:
            self._pending = [
                (number, kind, version, None if owner is user else owner)
                for number, kind, version, owner in self._pending
            ]

    def has_pending(self) -> bool:
        """Return whether any response is pending."""
        return bool(self._pending)


def _read(kind: type[Message], version: int, frame: bytes) -> Message:
    if len(frame) > _SMALL_RESPONSE_BYTES:
        return read_response(kind, version, frame)[1]
    key = kind, version, frame[_CORRELATION_ID.size :]
    response = _small_responses.get(key)
    if response is None:
        if len(_small_responses) == _MAX_SMALL_RESPONSES:
            _small_responses.clear()
        response = _small_responses[key] = read_response(kind, version, frame)[1]
    return response
