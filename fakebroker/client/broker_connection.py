"""One client connection as bytes: negotiates versions, encodes requests, and passes responses to their users.

Does not depend on sockets or streams. Transports send the bytes that `BrokerConnection` returns, and pass it the bytes
that they receive.
"""

import struct

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

    Attributes:
        address: Host and port of the broker.
        users: Notified when the connection opens or is lost.
        versions: None until versions are negotiated.
        is_negotiating: Whether an ApiVersions request is pending.
        is_closed: Whether the connection is closed.
        is_shared: Whether requests of several users should be written together.
        unsent: Bytes to send.
    """

    __slots__ = (
        "_correlation_id",
        "_frames",
        "_pending",
        "_requested_version",
        "address",
        "is_closed",
        "is_shared",
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
    ) -> None:
        self.address = address
        self.users: dict[ConnectionUser, None] = {user: None}
        self.is_shared = is_shared
        self.versions: NegotiatedVersions | None = None
        self.is_closed = False
        self.unsent = bytearray()
        self._frames = FrameBuffer(max_frame_bytes)
        self._pending: list[tuple[int, type[Message], int, ConnectionUser | None]] = []
        self._correlation_id = 0
        self._requested_version = -1

    @property
    def is_negotiating(self) -> bool:
        return self._requested_version >= 0 and self.versions is None

    # Version negotiation

    def request_versions(self, client_id: str, version: int = ApiVersionsRequest.VERSIONS.last) -> bytes:
        """Return the frame of the ApiVersions request, the first one on a connection."""
        self._requested_version = version
        request = ApiVersionsRequest(client_software_name="fakebroker", client_software_version="unknown")
        self._correlation_id += 1
        return request_frame(request, version, self._correlation_id, client_id)

    def receive_versions(self, data: bytes, client_id: str) -> bytes:
        """Process bytes of the response to ApiVersions; sets `versions` when the response is complete.

        A broker that does not support the request's version answers in version 0 (KIP-511).

        Returns:
            The frame of another ApiVersions request, in an older version, if the broker does not support this one;
            otherwise no bytes.

        Raises:
            ProtocolError: The response is malformed, or has an error.
        """
        for frame in self._frames.feed(data):
            self._check_correlation_id(frame, self._correlation_id)
            version = self._requested_version
            is_refusal = int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
            _, response = read_response(ApiVersionsResponse, 0 if is_refusal else version, frame)
            if is_refusal and version > 0:
                known = {api.api_key: api.max_version for api in response.api_keys}
                return self.request_versions(
                    client_id, max(0, min(known.get(ApiVersionsRequest.API_KEY, 0), version - 1))
                )
            if response.error_code:
                raise ProtocolError(f"ApiVersions failed with {error_code(response.error_code).name}")
            for api in response.api_keys:
                if not 0 <= api.min_version <= api.max_version:
                    given = f"versions {api.min_version} to {api.max_version} of API key {api.api_key}"
                    raise ProtocolError(f"ApiVersions has {given}: expected a range of versions from 0")
            supported = {api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys}
            features = {each.name: each.max_version_level for each in response.finalized_features}
            self.versions = NegotiatedVersions(supported, "broker {}:{}".format(*self.address), features)
        return b""

    # Requests and responses

    def frame(
        self, request: Message, version: int, client_id: str, user: ConnectionUser, cache: FrameCache | None
    ) -> bytes | bytearray:
        """Return the frame of a request; `user` receives the response.

        Raises:
            ProtocolError: The version cannot represent the request.
        """
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFFFFFF
        frame: bytes | bytearray
        if cache is not None:
            frame = cache.frame(request, version, number, client_id)
        else:
            frame = request_frame(convert_request(request, version), version, number, client_id)
        self._pending.append((number, api_of(request).response, version, user))
        return frame

    def receive(self, data: bytes) -> None:
        """Decode received bytes, and pass each response to the user that sent its request, unless it was removed.

        Raises:
            ProtocolError: The bytes are malformed, or a response does not belong to the oldest pending request.
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
