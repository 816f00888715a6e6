"""`ClusterHarness`: a cluster that handles single messages, without sockets and frames.

Each request and response is encoded and decoded in its version, so values of fields that the version lacks are lost.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from random import Random
from typing import Any, TypeVar

from fakebroker.cluster import handlers
from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.emulation import emulated_releases
from fakebroker.cluster.first_use import FirstUseMode
from fakebroker.cluster.handles.environment import NetworkConditions
from fakebroker.cluster.journal.journal import Journal
from fakebroker.cluster.topics import Partition, Topic
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.protocol.registry import API_BY_NAME
from fakebroker.protocol.schema import Message

T = TypeVar("T")

_SETTINGS: dict[str, object] = {"offsets.topic.num.partitions": 2, "group.consumer.assignment.interval.ms": 0}
START_MS = 1_700_000_000_000.0
NOT_REQUESTED = -(2**31)
"""Kafka's value of the response field `authorized_operations` if the request did not ask for operations."""


def versions(api_name: str) -> range:
    """Return the supported versions of an API."""
    supported = API_BY_NAME[api_name].versions
    return range(supported.first, supported.last + 1)


def carried(message: Message, version: int) -> Message:
    """Return a message as the receiver decodes it: without the ignorable fields that its version lacks."""
    return decode(type(message), encode(message, version), version)


def batch(
    *values: bytes,
    timestamp_ms: int = 1000,
    compression: Compression = Compression.NONE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Return a record batch with these values. Timestamps increase by 1 ms from one record to the next."""
    records = [Record(index, timestamp_ms + index, None, value) for index, value in enumerate(values)]
    return encode_batch(records, compression=compression, is_transactional=is_transactional, is_control=is_control)


class ClusterHarness:
    """A cluster of brokers 1 to n and its clients, without groups. Ids are counted from 1.

    Time changes only in `advance`. Each request has its own connection, unless a `peer` is given. By default requests
    are sent to broker 1. The caller chooses the version of each request.

    Args:
        topics: Partition counts by topic; by default "news" with one partition.
        brokers: Number of brokers.
        config: Settings by Kafka's names. The defaults are Kafka's, except for `_SETTINGS`.
        as_version: The release of Kafka that all brokers emulate; the newest behavior if None.
        proposals: Names of proposals that the brokers support.
        racks: The racks of the brokers; none if empty.
        first_use: What clients notice of the first use of the internal topics.

    Attributes:
        cluster: The cluster.
        now_ms: The brokers' time in milliseconds; `START_MS` at first.
    """

    def __init__(
        self,
        topics: dict[str, int] | None = None,
        brokers: int = 1,
        config: dict[str, object] | None = None,
        as_version: str | None = None,
        proposals: Sequence[str] = (),
        racks: Sequence[str | None] = (),
        first_use: FirstUseMode = "ready",
    ) -> None:
        ids = count(1)
        self.now_ms = START_MS
        self.cluster = Cluster(
            releases=emulated_releases(brokers, as_version, {}, proposals),
            topics={"news": 1} if topics is None else topics,
            config=Config(_SETTINGS | (config or {})),
            new_id=lambda: next(ids).to_bytes(16, "big"),
            random=Random(0).random,
            journal=Journal(),
            now_ms=START_MS,
            handlers=handlers.BY_NAME,
            racks=racks,
            first_use=first_use,
        )
        for broker in self.cluster.brokers.values():
            broker.host, broker.port = "localhost", 9000 + broker.node_id
        self._connections = count(1)

    def peer(self, broker: int = 1) -> Peer:
        """Return a new connection to a broker."""
        return Peer(self.cluster.brokers[broker], "127.0.0.1", next(self._connections))

    def send(
        self,
        request: Message,
        version: int,
        *,
        broker: int = 1,
        client_id: str = "client",
        peer: Peer | None = None,
        size_bytes: int = 0,
    ) -> Call:
        """Send a request whose frame has a size. Returns the call, whose response may be pending."""
        peer = peer or self.peer(broker)
        api = peer.broker.api(request.API_KEY, version)
        assert api is not None
        call = Call(peer, api, version, 1, client_id, carried(request, version), size_bytes)
        self.cluster.requests.handle(call, self.now_ms)
        self.cluster.faults.actions.run()
        return call

    def ask(self, request: Message, version: int, *, broker: int = 1, client_id: str = "client") -> Any:
        """Send a request and return its response, which must not be pending."""
        return response(self.send(request, version, broker=broker, client_id=client_id))

    def advance(self, by_ms: float) -> None:
        """Advance the time and process the timers that are due."""
        self.now_ms += by_ms
        self.cluster.tick(self.now_ms)

    def topic(self, name: str = "news") -> Topic:
        topic = self.cluster.topics.get(name)
        assert topic is not None
        return topic

    def partition(self, index: int = 0, topic: str = "news") -> Partition:
        return self.topic(topic).partitions[index]


class ClusterHarnessEnvironment:
    """The `fakebroker.cluster.handles.environment.Environment` of a harness, which has no listeners and connections.

    Attributes:
        calls: The requested changes of listeners and network conditions, as tuples of a name, node ids and arguments.
    """

    def __init__(self, harness: ClusterHarness) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._harness = harness

    def run(self, step: Callable[[], T]) -> T:
        result = step()
        self._harness.cluster.requests.settle(self._harness.now_ms)  # as the server does after each command
        return result

    def now_ms(self) -> float:
        return self._harness.now_ms

    def advance(self, seconds: float) -> None:
        self._harness.advance(seconds * 1000)

    def closed_connections(self) -> str:
        return ""

    def open_listener(self, broker: BrokerNode) -> None:
        self.calls.append(("open", broker.node_id))

    def close_listener(self, broker: BrokerNode, *, keep_port: bool) -> None:
        self.calls.append(("close", broker.node_id, keep_port))

    def network_conditions(self, broker: BrokerNode) -> NetworkConditions:
        return NetworkConditions()

    def set_network_conditions(self, broker: BrokerNode, conditions: NetworkConditions) -> None:
        self.calls.append(("network", broker.node_id, conditions))

    def renew_certificates(self, *, expired: bool) -> None:
        self.calls.append(("certificates", expired))

    def replacing_brokers(self, brokers: Mapping[int, BrokerNode], *, cut_all: bool) -> AbstractContextManager[None]:
        self.calls.append(("replace", tuple(brokers), cut_all))
        return nullcontext()


def response(call: Call) -> Any:
    """Return the response of a call as the client decodes it. It must not be pending."""
    assert call.response is not None, f"{call!r} is not answered"
    return carried(call.response, call.api_version)
