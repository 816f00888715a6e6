"""`Call`, one request and its response: read from a frame, passed to a handler, and kept by the journal.

Depends on frames, messages and `BrokerNode`; not on handlers, `Cluster` or sockets.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from fakebroker.cluster import request_ids
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.faults.rule import Fault
from fakebroker.cluster.listeners import PLAINTEXT_LISTENER, Endpoint, Listener
from fakebroker.cluster.request_ids import TopicRef
from fakebroker.cluster.request_secrets import NO_SECRETS, WITH_SECRETS, withhold_secrets
from fakebroker.errors import ErrorCode, ProtocolError, shown
from fakebroker.protocol import raw_items
from fakebroker.protocol.codec import decode
from fakebroker.protocol.frames import RequestHeader, read_request_header
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest
from fakebroker.protocol.registry import Api
from fakebroker.protocol.releases import has_patches_of_4_2
from fakebroker.protocol.schema import Field, Message, Struct
from fakebroker.protocol.types import MAX_ELEMENTS, MAX_TAGS
from fakebroker.security.acls import ANONYMOUS

_START = struct.Struct(">hhi")  # API key, API version, correlation id: the same in all request headers.
MAX_MEMO_BYTES = 1024
"""Larger frames are not cached."""
_PARTITION_BYTES = 100
"""The size of the tuple of a topic and a partition, without the name of the topic."""
_SASL_AUTHENTICATE = 36

UNKNOWN_SOFTWARE = ("unknown", "unknown")
"""Name and version of a client that has not sent them (ClientInformation)."""


class Peer:
    """The client side of one connection, as the cluster sees it.

    It caches the last small request, so that identical frames (heartbeats, polls) are not decoded again. Therefore
    requests must not be modified.

    Attributes:
        broker: The broker that the client is connected to; not set if the call was read from a file.
        client_host: The client's address.
        connection_id: A number that identifies the connection.
        listener: The listener that the client is connected to.
        principal: Type and name of the authenticated client, such as "User:alice".
        secrets: The secrets of the last request that can have any. The call itself, which the journal keeps, is without
            them.
        software: The name and the version of the client, which ApiVersions requests have since version 3.
        memo_head, memo_tail: The bytes of the cached frame before and after the correlation id.
        memo_call: The call of the cached frame.
        last_dropped: A summary of dropped calls, the last request that it has counted for this connection, and the
            number and the last time of the calls of its kind; a cache of `DroppedCalls`.
    """

    __slots__ = (
        "broker",
        "client_host",
        "connection_id",
        "last_dropped",
        "listener",
        "memo_call",
        "memo_head",
        "memo_tail",
        "principal",
        "secrets",
        "software",
    )

    def __init__(
        self, broker: BrokerNode, client_host: str, connection_id: int, listener: Listener = PLAINTEXT_LISTENER
    ) -> None:
        self.broker = broker
        self.listener = listener
        self.client_host = client_host
        self.connection_id = connection_id
        self.principal = ANONYMOUS
        self.secrets = NO_SECRETS
        self.software = UNKNOWN_SOFTWARE
        self.memo_head = self.memo_tail = b""
        self.memo_call: Call | None = None
        self.last_dropped: tuple[object, object, list[float]] | None = None

    @classmethod
    def recorded(cls, client_host: str, connection_id: int, principal: str = ANONYMOUS) -> "Peer":
        """Return the peer of a call that was read from a file, which has no broker."""
        peer = cls.__new__(cls)
        peer.client_host, peer.connection_id, peer.principal = client_host, connection_id, principal
        return peer


class Boundaries:
    """What a fault did to a request before and after it was handled.

    Attributes:
        handled_ms: When the request was handled, by the brokers' time; None while it waits, and if it takes no effect.
        errors: The errors of the fault's actions, as text.
        outcome: The response to the request before the fault has changed or dropped it; None if there is none.
    """

    __slots__ = ("errors", "handled_ms", "outcome")

    def __init__(self, handled_ms: float | None, errors: Iterable[str] = ()) -> None:
        self.handled_ms = handled_ms
        self.errors = list(errors)
        self.outcome: Message | None = None


class CallSummary(NamedTuple):
    """What a journal without messages knows about a call."""

    node_id: int
    group_ids: tuple[str, ...]
    member_ids: tuple[str, ...]
    has_response: bool
    errors: tuple[ErrorCode, ...]
    instance_ids: tuple[str, ...] = ()
    partitions: tuple[tuple[TopicRef, int | None], ...] = ()
    transactional_ids: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    generations: tuple[int, ...] = ()

    @property
    def text_bytes(self) -> int:
        """The size of its texts, and of the list of partitions."""
        texts = sum(map(len, (*self.group_ids, *self.member_ids, *self.instance_ids, *self.transactional_ids)))
        return texts + sum(_PARTITION_BYTES + len(topic) for topic, _ in self.partitions)


class Call:
    """One request, and its response once there is one.

    Attributes:
        peer: The connection on which it was received.
        api: The requested API.
        api_version: The requested version.
        correlation_id: The client's number for the request.
        client_id: The client id of the request header, "" if it has none.
        request: The decoded request, which must not be modified; None if only a summary was kept.
        size: The size of the frame in bytes.
        received_ms: When the request was received, by the brokers' time, in milliseconds since the epoch.
        response: The response. None while it is pending, if the request has no response (Produce with acks=0), and if
            only a summary was kept.
        response_version: The version of the response: `api_version`, or 0 if ApiVersions gets UNSUPPORTED_VERSION.
        answered_ms: When the response was known, by the brokers' time; None while it is pending.
        answered_after: How many calls had been received when this call was answered; 0 if immediately.
        fault: The fault that was injected into the call, if any.
        throttle_ms: For how long a quota throttles the client, in milliseconds of the brokers' time; 0 if none does.
        boundaries_or_none: What a fault did before and after the request was handled; usually None.
        closes_connection: Whether its connection is closed, as Kafka does when a Produce with acks=0 fails.
        closing_reason: Why the connection is closed; "" if the reason is a failed Produce with acks=0.
        summary: The summary of a recorded call, whose messages may be missing; None for a live call.
        number: Its sequence number in the journal, from 1; 0 if it was not added to one.
        held_bytes: How many bytes it counts in the journal.
        kept: The copy that the journal keeps instead of this call, if any.
        may_describe: See `RequestContext`; set by handlers whose coordinator asks.
        is_decoded: Whether reading the messages costs nothing; see `UndecodedCall`.
        body: The encoded response of an `UndecodedCall`; None in others.
    """

    is_decoded = True
    body: bytes | None = None
    __slots__ = (
        "answered_after",
        "answered_ms",
        "api",
        "api_version",
        "boundaries_or_none",
        "client_id",
        "closes_connection",
        "closing_reason",
        "correlation_id",
        "fault",
        "held_bytes",
        "kept",
        "may_describe",
        "number",
        "peer",
        "received_ms",
        "request",
        "response",
        "response_version",
        "size",
        "summary",
        "throttle_ms",
    )

    def __init__(
        self, peer: Peer, api: Api, api_version: int, correlation_id: int, client_id: str, request: Any, size: int
    ) -> None:
        self.peer = peer
        self.api = api
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.request = request
        self.size = size
        self.received_ms = 0.0
        self.response: Any = None
        self.response_version = api_version
        self.answered_ms: float | None = None
        self.answered_after = 0
        self.throttle_ms = 0.0
        self.closes_connection = False
        self.closing_reason = ""
        self.fault: Fault | None = None
        self.boundaries_or_none: Boundaries | None = None
        self.summary: CallSummary | None = None
        self.number = self.held_bytes = 0
        self.kept: Call | None = None
        self.may_describe: Callable[[str], bool] | None = None

    @property
    def broker(self) -> BrokerNode:
        """The broker that received the request. A call that was read from a file has a `node_id` only."""
        return self.peer.broker

    def endpoint_of(self, broker: BrokerNode) -> Endpoint:
        """Return where the client can connect to a broker: at the listener of the name that it is connected to."""
        return broker.endpoint(self.peer.listener)

    @property
    def node_id(self) -> int:
        """The node id of the broker that received the request."""
        return self.peer.broker.node_id if self.summary is None else self.summary.node_id

    @property
    def boundaries(self) -> Boundaries:
        """What a fault did before and after the request was handled; created when it is first needed."""
        if self.boundaries_or_none is None:
            self.boundaries_or_none = Boundaries(self.received_ms)
        return self.boundaries_or_none

    @property
    def handled_ms(self) -> float | None:
        """When the request was handled, by the brokers' time in milliseconds: when it was received, or if a fault
        delays it, later. None while it is delayed, if its broker stopped before, and if a fault prevents its effect.
        """
        return self.received_ms if self.boundaries_or_none is None else self.boundaries_or_none.handled_ms

    @property
    def action_errors(self) -> tuple[str, ...]:
        """The errors of the actions of its fault (`Fault.before` and `Fault.then`), as text."""
        return () if self.boundaries_or_none is None else tuple(self.boundaries_or_none.errors)

    @property
    def client_host(self) -> str:
        return self.peer.client_host

    @property
    def connection_id(self) -> int:
        return self.peer.connection_id

    @property
    def principal(self) -> str:
        """Type and name of the client's principal, such as "User:alice"."""
        return self.peer.principal

    @property
    def is_supported(self) -> bool:
        """Whether the broker supports the version. False for ApiVersions requests only; others fail in `read_call`."""
        return self.api_version in self.peer.broker.versions[self.api.key]

    @property
    def group_ids(self) -> tuple[str, ...]:
        """The groups that the request names, in its order."""
        if self.summary is not None:
            return self.summary.group_ids
        return request_ids.group_ids(self.request)

    @property
    def member_ids(self) -> tuple[str, ...]:
        """The members that the request names. For a JoinGroup without member ids: those that its response assigns."""
        if self.summary is not None:
            return self.summary.member_ids
        return request_ids.member_ids(self.request, self.response)

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """The `group.instance.id`s of static members that the request names."""
        if self.summary is not None:
            return self.summary.instance_ids
        return request_ids.instance_ids(self.request)

    @property
    def transactional_ids(self) -> tuple[str, ...]:
        """The transactional ids that the request names, in its order."""
        if self.summary is not None:
            return self.summary.transactional_ids
        return request_ids.transactional_ids(self.request)

    @property
    def producer_ids(self) -> tuple[int, ...]:
        """The producer ids that the request names, and one that its response assigns."""
        if self.summary is not None:
            return self.summary.producer_ids
        return request_ids.producer_ids(self.request, self.response)

    @property
    def generations(self) -> tuple[int, ...]:
        """The generations, or in consumer groups (KIP-848) the member epochs, that the request has."""
        if self.summary is not None:
            return self.summary.generations
        return request_ids.generations(self.request)

    @property
    def partitions(self) -> tuple[tuple[TopicRef, int | None], ...]:
        """The topics and partitions that the request names; the partition is None if it names the topic as a whole.

        A Fetch request omits the partitions of a fetch session (KIP-227), so the partitions of its response are added.
        """
        if self.summary is not None:
            return self.summary.partitions
        return request_ids.partitions(self.api, self.api_version, self.request, self.response)

    @property
    def has_response(self) -> bool:
        """Whether a response was sent; False while it is pending, and for a Produce with acks=0."""
        return self.response is not None if self.summary is None else self.summary.has_response

    @property
    def errors(self) -> tuple[ErrorCode, ...]:
        """The distinct error codes anywhere in the response, in its order."""
        if self.summary is not None:
            return self.summary.errors
        if self.response is None:
            return ()
        return tuple(dict.fromkeys(ErrorCode(number) for number in error_codes(self.response) if number))

    @property
    def latency_ms(self) -> float | None:
        """Milliseconds from request to response by the brokers' time; None while it is pending."""
        return None if self.answered_ms is None else self.answered_ms - self.received_ms

    def summarize(self) -> CallSummary:
        """Return the summary that a journal without messages keeps."""
        named = self.node_id, self.group_ids, self.member_ids
        return CallSummary(
            *named,
            self.has_response,
            self.errors,
            self.instance_ids,
            self.partitions,
            self.transactional_ids,
            self.producer_ids,
            self.generations,
        )

    def __repr__(self) -> str:
        return f"<{self.api.name} v{self.api_version} from {shown(self.client_id)} at broker {self.node_id}>"


class EncodedResponse(NamedTuple):
    """A response as bytes, without its header.

    Attributes:
        body: The encoded message.
        errors: The distinct error codes in it, in its order.
    """

    body: bytes
    errors: tuple[ErrorCode, ...]


class UndecodedCall(Call):
    """A call whose messages are decoded when they are first read, for large requests that a handler answers as bytes.

    Attributes:
        items: The keys or groups of the request, split but not decoded; see `protocol/raw_items.py`.
        body: The encoded response, without its header; None if the handler has returned a message.
    """

    __slots__ = ("_encoded_errors", "_frame", "_position", "_request", "_response", "body", "items")
    is_decoded = False

    def __init__(
        self, peer: Peer, api: Api, api_version: int, header: RequestHeader, frame: bytes, position: int, items: Any
    ) -> None:
        self._frame, self._position, self.items = frame, position, items
        self.body: bytes | None = None
        self._encoded_errors: tuple[ErrorCode, ...] = ()
        self._request: Any = None
        self._response: Any = None
        super().__init__(peer, api, api_version, header.correlation_id, header.client_id or "", None, len(frame))

    @property
    def request(self) -> Any:
        """The request, which must not be modified."""
        if self._request is None:
            self._request = decode(self.api.request, self._frame, self.api_version, self._position, fills_data=False)
        return self._request

    @request.setter
    def request(self, request: Any) -> None:
        self._request = request

    @property
    def response(self) -> Any:
        """The response; None while it is pending."""
        if self._response is None and self.body is not None:
            self._response = decode(self.api.response, self.body, self.response_version)
        return self._response

    @response.setter
    def response(self, response: Any) -> None:
        if isinstance(response, EncodedResponse):
            self.body, self._encoded_errors = response
        else:
            self.body, self._response = None, response

    @property
    def errors(self) -> tuple[ErrorCode, ...]:
        """The distinct error codes anywhere in the response, in its order."""
        return self._encoded_errors if self.body is not None else super().errors


_UNDECODED: Mapping[tuple[int, int], Callable[[bytes, int], Any]] = {
    (FindCoordinatorRequest.API_KEY, 4): raw_items.coordinator_keys,
    (FindCoordinatorRequest.API_KEY, 5): raw_items.coordinator_keys,
    (FindCoordinatorRequest.API_KEY, 6): raw_items.coordinator_keys,
    (OffsetFetchRequest.API_KEY, 8): partial(raw_items.offset_fetch_groups, version=8),
    (OffsetFetchRequest.API_KEY, 9): partial(raw_items.offset_fetch_groups, version=9),
}
"""How to split requests that are not decoded at once, by API key and version."""

_MIN_UNDECODED_BYTES = 128
"""Smaller requests have few keys and are often repeated: decoding them and caching the message is faster."""


def read_call(peer: Peer, frame: bytes) -> Call:
    """Decode a request.

    Args:
        peer: The connection on which the frame was received.
        frame: The frame, without its size.

    Raises:
        ProtocolError: The API or its version is not supported, or the frame is malformed. Kafka closes such a
            connection.
    """
    if len(frame) < 8:
        raise ProtocolError(f"request of {len(frame)} bytes, expected a header of 10 or more")
    api_key, api_version, correlation_id = _START.unpack_from(frame)
    is_small = len(frame) <= MAX_MEMO_BYTES
    if is_small:
        head, tail, last = frame[:4], frame[8:], peer.memo_call
        if last is not None and tail == peer.memo_tail and head == peer.memo_head:
            return Call(peer, last.api, api_version, correlation_id, last.client_id, last.request, len(frame))
    api, versions = peer.broker.api(api_key, api_version), peer.broker.versions.get(api_key)
    if api is None or versions is None:
        raise ProtocolError(f"unknown API key {api_key} (version {api_version})")
    is_supported = api_version in versions
    if not is_supported and api.request is not ApiVersionsRequest:
        raise ProtocolError(f"{api.name} version {api_version}, expected {versions}")
    limited = is_limited(peer.broker, frame)
    header, position = read_request_header(frame, api_version in api.request.FLEXIBLE, limited)
    if len(frame) >= _MIN_UNDECODED_BYTES and (split := _UNDECODED.get((api_key, api_version))) is not None:
        items = split(frame, position)
        if items is not None and not (limited and len(items[1]) > MAX_ELEMENTS):
            return UndecodedCall(peer, api, api_version, header, frame, position, items)
    if api_key == _SASL_AUTHENTICATE:
        # The journal must not have secrets, and an authenticated or anonymous client needs no answer to them.
        request_type: Callable[..., Message] = api.request
        blank = request_type(auth_bytes=b"")
        return Call(peer, api, api_version, correlation_id, header.client_id or "", blank, len(frame))
    request: Message = ApiVersionsRequest()
    if is_supported:
        # As in Kafka, bytes after the message are ignored.
        request = decode(api.request, frame, api_version, position, fills_data=False, limited=limited)
    call = Call(peer, api, api_version, correlation_id, header.client_id or "", request, len(frame))
    if api_key in WITH_SECRETS and is_supported:
        peer.secrets = withhold_secrets(api_key, request, peer.broker.release)
    elif is_small:
        peer.memo_head, peer.memo_tail, peer.memo_call = head, tail, call
    return call


def is_limited(broker: BrokerNode, frame: bytes) -> bool:
    """Return whether a broker limits arrays and tagged fields of a request. Short requests cannot have too many."""
    return len(frame) > MAX_TAGS and has_patches_of_4_2(broker.release)


def error_codes(value: Struct) -> Iterator[int]:
    """Yield all error codes of a response, 0 as well, in the order of its fields."""
    for field in _error_fields(type(value)):
        held = getattr(value, field.name)
        for item in held or () if field.is_array else (held,):
            if isinstance(item, Struct):
                yield from error_codes(item)
            elif item is not None:
                yield item


_known_error_fields: dict[type[Struct], tuple[Field, ...]] = {}


def _error_fields(cls: type[Struct]) -> tuple[Field, ...]:
    """Return the fields of a struct that are error codes, or structs that contain error codes."""
    if cls not in _known_error_fields:
        _known_error_fields[cls] = tuple(field for field in cls.FIELDS if is_error_code(field) or _has_errors(field))
    return _known_error_fields[cls]


def _has_errors(field: Field) -> bool:
    return isinstance(field.type, type) and bool(_error_fields(field.type))


def is_error_code(field: Field) -> bool:
    """Return whether a field of a message is an error code."""
    return field.name.endswith("error_code")
