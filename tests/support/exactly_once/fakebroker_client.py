"""The producer of `fakebroker.client` behind the interface of `application.py`: the only one that supports KIP-890.

It has one blocking connection to each broker. Its time is virtual: back-offs pass at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fakebroker.client.coordinators import find_coordinators
from fakebroker.client.member.requests import Identity
from fakebroker.client.producer.effects import Coordinator, Destination, Discover, Effect, Leader, Ready, Send
from fakebroker.client.producer.producer import KIP_890, Producer, ProducerSettings
from fakebroker.client.producer.states import ProducerState
from fakebroker.client.versions import NegotiatedVersions, convert_request, convert_response
from fakebroker.cluster.features import TRANSACTION_VERSION
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.host_port import parse_host_port
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fakebroker.protocol.records import Record, decode_records, split_batches
from fakebroker.protocol.schema import Message, Versions
from fakebroker.replay.members.producer_driver import LAST_VERSIONS_BEFORE_KIP_890
from tests.support.exactly_once.application import GROUP_ID, INPUT, OUTPUT, TRANSACTIONAL_ID, Client, checked_offset
from tests.support.exactly_once.confluent import read_committed
from tests.support.kafka_clients.client import CALL_TIMEOUT_S
from tests.support.wire_client import WireClient

MAX_STEPS = 1_000
"""Maximum number of requests of one call; reached only if a test fails."""

_FETCH_BYTES = 2**20
_API_VERSIONS = 3
"""The version of ApiVersions: the first one with the features of the cluster."""


class ProducerError(Exception):
    """The producer has failed, or a call has timed out."""


class _Address(NamedTuple):
    host: str
    port: int


class FakebrokerApplication:
    """An application."""

    def __init__(self, servers: str, client_id: str) -> None:
        self._client_id = client_id
        self._bootstrap = [_Address(*found) for text in servers.split(",") if (found := parse_host_port(text))]
        self._connections: dict[_Address, tuple[WireClient, NegotiatedVersions]] = {}
        self._places: dict[Destination, _Address] = {}
        self._now_ms = 0.0
        self._timeout_s: float = CALL_TIMEOUT_S
        self._producer = Producer(ProducerSettings(transactional_id=TRANSACTIONAL_ID))
        self._values: dict[int, list[bytes]] = {}
        try:
            self._do(self._producer.initialize)
        except ProducerError:
            self.crash()
            raise

    # Calls

    def committed(self) -> int:
        topics = [OffsetFetchRequestTopics(name=INPUT, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=GROUP_ID, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        for _ in range(MAX_STEPS):
            found = self._ask_place(Coordinator("group", GROUP_ID), request)
            if found is None or found.groups[0].error_code:
                continue
            partition = found.groups[0].topics[0].partitions[0]
            if not partition.error_code:
                return checked_offset(partition.committed_offset)
        raise ProducerError("no committed offset")

    def read(self, offset: int, count: int) -> list[bytes]:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        topics = [FetchTopic(topic=INPUT, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=1, topics=topics)
        for _ in range(MAX_STEPS):
            found = self._ask_place(Leader((INPUT, 0)), request)
            if found is None or found.responses[0].partitions[0].error_code:
                continue
            batches = split_batches(found.responses[0].partitions[0].records or b"")
            records = [record for batch in batches for record in decode_records(batch)]
            return [record.value or b"" for record in records if record.offset >= offset][:count]
        raise ProducerError("no records")

    def begin(self) -> None:
        self._values = {}
        self._producer.begin(self._now_ms)

    def produce(self, partition: int, value: bytes) -> None:
        self._values.setdefault(partition, []).append(value)

    def flush(self) -> None:
        values, self._values = self._values, {}
        batches = {
            (OUTPUT, index): [Record(number, 1_000, None, value) for number, value in enumerate(found)]
            for index, found in values.items()
        }
        self._do(lambda now_ms: self._producer.send(batches, now_ms))

    def send_offset(self, offset: int) -> None:
        consumer = Identity(GROUP_ID, None, "", -1)
        self._do(lambda now_ms: self._producer.send_offsets({(INPUT, 0): offset}, consumer, now_ms))

    def commit(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._do(self._producer.commit)
        self._timeout_s = CALL_TIMEOUT_S

    def can_abort(self) -> bool:
        return self._producer.state is ProducerState.ABORTABLE_ERROR

    def abort(self) -> None:
        self._do(self._producer.abort)

    def crash(self) -> None:
        while self._connections:
            self._connections.popitem()[1][0].socket.close()

    # Effects

    def _do(self, call: Callable[[float], None]) -> None:
        """Call the producer, and do what it requests until all requests have succeeded."""
        producer = self._producer
        call(self._now_ms)
        for _ in range(MAX_STEPS):
            effects, producer.effects = producer.effects, []
            for effect in effects:
                self._carry_out(effect)
            if producer.effects:
                continue
            deadline_ms = producer.next_deadline()
            if deadline_ms is None:
                return
            self._now_ms = max(self._now_ms, deadline_ms)
            producer.tick(self._now_ms)
        raise ProducerError(f"more than {MAX_STEPS} requests")

    def _carry_out(self, effect: Effect) -> None:
        producer, now_ms = self._producer, self._now_ms
        match effect:
            case Discover(destination):
                error = self._look_up(destination)
                if error:
                    producer.discovery_failed(destination, error, now_ms)
                else:
                    producer.discovered(destination, now_ms)
            case Send(request, destination):
                response = self._ask(self._places[destination], request)
                if response is None:
                    producer.connection_lost(destination, now_ms)
                else:
                    producer.answered(request, response, now_ms)
            case Ready():
                pass
            case _:
                raise ProducerError(effect.message)

    # Requests

    def _ask_place(self, destination: Destination, request: Message) -> Any:
        """Look up a broker and ask it; return None without a response."""
        if destination not in self._places and self._look_up(destination):
            return None
        response = self._ask(self._places[destination], request)
        del self._places[destination]
        return response

    def _look_up(self, destination: Destination) -> ErrorCode:
        """Find a broker; return the error, NETWORK_EXCEPTION without a response."""
        for address in self._bootstrap:
            if isinstance(destination, Coordinator):
                request = find_coordinators([destination.key], destination.key_type)
                response = self._ask(address, request)
                if response is None:
                    continue
                (found,) = response.coordinators
                if not found.error_code:
                    self._places[destination] = _Address(found.host, found.port)
                return ErrorCode(found.error_code)
            name, index = destination.partition
            metadata = self._ask(address, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
            if metadata is None:
                continue
            places = {each.node_id: _Address(each.host, each.port) for each in metadata.brokers}
            leaders = {each.partition_index: each.leader_id for each in metadata.topics[0].partitions}
            if leaders[index] not in places:
                return ErrorCode.LEADER_NOT_AVAILABLE
            self._places[destination] = places[leaders[index]]
            return ErrorCode.NONE
        return ErrorCode.NETWORK_EXCEPTION

    def _ask(self, address: _Address, request: Message) -> Any:
        """Send a request; return None if the connection is lost, or cannot be made."""
        try:
            wire, versions = self._connection(address)
            version = versions.version_of(request)
            if self._producer.transaction_version < KIP_890:
                version = min(version, LAST_VERSIONS_BEFORE_KIP_890.get(type(request), version))
            wire.socket.settimeout(self._timeout_s)
            wire.send(convert_request(request, version), version)
            return convert_response(request, wire.receive())
        except TimeoutError as error:
            raise ProducerError("timeout") from error
        except OSError:
            found = self._connections.pop(address, None)
            if found is not None:
                found[0].socket.close()
            return None

    def _connection(self, address: _Address) -> tuple[WireClient, NegotiatedVersions]:
        if address not in self._connections:
            wire = WireClient(address, self._client_id)
            try:
                response = _api_versions(wire)
            except OSError:
                wire.socket.close()
                raise
            theirs = {each.api_key: Versions(each.min_version, each.max_version) for each in response.api_keys}
            features = {each.name: each.max_version_level for each in response.finalized_features}
            self._producer.offer_version(features.get(TRANSACTION_VERSION, 0))
            self._connections[address] = wire, NegotiatedVersions(theirs, features=features)
        return self._connections[address]


def _api_versions(wire: WireClient) -> ApiVersionsResponse:
    """Send ApiVersions; again in version 0 to brokers before 2.4, which answer in that version."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    try:
        return wire.ask(request, ApiVersionsResponse, _API_VERSIONS)
    except ProtocolError:
        return wire.ask(request, ApiVersionsResponse, 0)


FAKEBROKER = Client("fakebroker", FakebrokerApplication, read_committed, (ProducerError,))
