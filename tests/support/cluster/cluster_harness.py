"""A cluster asked message by message, without sockets and frames.

Each request and response takes the way through the bytes of its version, so a field that it cannot carry is seen.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from random import Random
from typing import Any, TypeVar

from fakebroker.cluster.broker import BrokerNode
from fakebroker.cluster.call import Call, Peer
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.emulation import emulated_releases
from fakebroker.cluster.environment import NetworkConditions
from fakebroker.cluster.journal import Journal
from fakebroker.cluster.topics import Partition, Topic
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.records import Record, encode_batch
from fakebroker.protocol.registry import API_BY_NAME, api_of
from fakebroker.protocol.schema import Message

T = TypeVar("T")

START_MS = 1_700_000_000_000.0


def versions(api_name: str) -> range:
    """The versions of an API that work."""
    served = API_BY_NAME[api_name].versions
    return range(served.first, served.last + 1)


def carried(message: Message, version: int) -> Message:
    """A message as it is read on the other side; without the ignorable fields that its version does not carry."""
    return decode(type(message), encode(message, version), version)


def batch(
    *values: bytes,
    timestamp_ms: int = 1000,
    compression: Compression = Compression.NONE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """One batch of records with these values; their timestamps go up by 1 ms."""
    records = [Record(index, timestamp_ms + index, None, value) for index, value in enumerate(values)]
    return encode_batch(records, compression=compression, is_transactional=is_transactional, is_control=is_control)


class ClusterHarness:
    """A cluster and its clients.

    Args:
        topics: The names and partition counts to start with.
        brokers: How many brokers.
        config: Settings by Kafka's names.
        as_version: The release of Kafka that all brokers pass for.
        proposals: What no Kafka has and they are to have.
    """

    def __init__(
        self,
        topics: dict[str, int] | None = None,
        brokers: int = 1,
        config: dict[str, object] | None = None,
        as_version: str | None = None,
        proposals: Sequence[str] = (),
    ) -> None:
        ids = count(1)
        self.now_ms = START_MS
        self.cluster = Cluster(
            releases=emulated_releases(brokers, as_version, {}, proposals),
            topics={"news": 1} if topics is None else topics,
            config=Config({"offsets.topic.num.partitions": 2} | (config or {})),
            new_id=lambda: next(ids).to_bytes(16, "big"),
            random=Random(0).random,
            journal=Journal(),
            now_ms=START_MS,
        )
        for broker in self.cluster.brokers.values():
            broker.host, broker.port = "localhost", 9000 + broker.node_id
        self._connections = count(1)

    def peer(self, broker: int = 1) -> Peer:
        """A new connection."""
        return Peer(self.cluster.brokers[broker], "127.0.0.1", next(self._connections))

    def send(
        self, request: Message, version: int, *, broker: int = 1, client_id: str = "client", peer: Peer | None = None
    ) -> Call:
        """Send a request; its answer may be owed."""
        peer = peer or self.peer(broker)
        call = Call(peer, api_of(request), version, 1, client_id, carried(request, version), 0)
        self.cluster.handle(call, self.now_ms)
        return call

    def ask(self, request: Message, version: int, *, broker: int = 1, client_id: str = "client") -> Any:
        """Send a request that is answered at once, and give the response."""
        return response(self.send(request, version, broker=broker, client_id=client_id))

    def advance(self, by_ms: float) -> None:
        """Let time pass."""
        self.now_ms += by_ms
        self.cluster.tick(self.now_ms)

    def topic(self, name: str = "news") -> Topic:
        topic = self.cluster.topics.get(name)
        assert topic is not None
        return topic

    def partition(self, index: int = 0, topic: str = "news") -> Partition:
        return self.topic(topic).partitions[index]


class ClusterHarnessEnvironment:
    """The `fakebroker.cluster.environment.Environment` of a harness: it has no connections.

    Attributes:
        calls: The changes of listeners and network conditions, with node ids.
    """

    def __init__(self, harness: ClusterHarness) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._harness = harness

    def run(self, step: Callable[[], T]) -> T:
        return step()

    def now_ms(self) -> float:
        return self._harness.now_ms

    def advance(self, seconds: float) -> None:
        self._harness.advance(seconds * 1000)

    def open_listener(self, broker: BrokerNode) -> None:
        self.calls.append(("open", broker.node_id))

    def close_listener(self, broker: BrokerNode, *, keep_port: bool) -> None:
        self.calls.append(("close", broker.node_id, keep_port))

    def network_conditions(self, broker: BrokerNode) -> NetworkConditions:
        return NetworkConditions()

    def set_network_conditions(self, broker: BrokerNode, conditions: NetworkConditions) -> None:
        self.calls.append(("network", broker.node_id, conditions))

    def replacing_brokers(self, brokers: Mapping[int, BrokerNode], *, cut_all: bool) -> AbstractContextManager[None]:
        self.calls.append(("replace", tuple(brokers), cut_all))
        return nullcontext()


def response(call: Call) -> Any:
    """The response of a call, as the client reads it."""
    assert call.response is not None, f"{call!r} is not answered"
    return carried(call.response, call.api_version)
