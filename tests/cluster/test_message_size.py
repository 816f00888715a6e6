"""The memory that the journal counts for a request: not less than the request occupies, whatever it is made of."""

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import pytest

from fakebroker.cluster.journal.journal import SMALL_RESPONSE_BYTES
from fakebroker.cluster.journal.message_size import OBJECT_FACTOR, request_bytes
from fakebroker.protocol.codec import decode, encode
from fakebroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message, Struct, replaced
from tests.support.group_requests import commit_request, heartbeat_request, join_request

S = TypeVar("S", bound=Struct)


def tagged(struct: S, count: int, size_bytes: int = 0) -> S:
    """Return a struct with unknown tagged fields of a size."""
    return replaced(struct, unknown_tags=tuple((1000 + tag, bytes(size_bytes)) for tag in range(count)))


def find(keys: list[str]) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=keys)


def join(count: int, size_bytes: int, tags: int = 0) -> JoinGroupRequest:
    protocol = tagged(JoinGroupRequestProtocol(name="", metadata=bytes(size_bytes)), tags)
    return join_request(protocols=[protocol] * count)


def fetch(topics: int, partitions: int) -> FetchRequest:
    partition = FetchPartition(partition=70_000, fetch_offset=2**40, partition_max_bytes=2**20)
    topic = FetchTopic(topic_id=b"0123456789abcdef", partitions=[partition] * partitions)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic] * topics)


def commit(count: int) -> OffsetCommitRequest:
    request = commit_request(2**40, 0, "group", "member", 1)
    request.topics[0].partitions *= count
    return request


N = 2000
SHAPES: dict[str, Callable[[], Message]] = {
    "tagged fields": lambda: tagged(heartbeat_request(), N),
    "tagged fields with a byte": lambda: tagged(heartbeat_request(), N, 1),
    "few tagged fields": lambda: tagged(heartbeat_request(), 70),
    "tagged fields of structs": lambda: join(N, 0, 3),
    "empty strings": lambda: find([""] * N),
    "strings of one character": lambda: find(["x"] * N),
    "strings of one wide character": lambda: find(["\u7fa4"] * N),
    "short strings": lambda: find(["xy"] * N),
    "long strings": lambda: find(["x" * 1000] * 100),
    "empty structs": lambda: join(N, 0),
    "small structs": lambda: MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(16), name="")] * N),
    "empty arrays": lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="", topics=[])] * N),
    "metadata": lambda: join(20, 1000),
    "partitions": lambda: fetch(2, 500),
    "topics": lambda: fetch(500, 0),
    "offsets": lambda: commit(1000),
}
SMALL: dict[str, Callable[[], Message]] = {
    "tagged fields of a struct": lambda: join(1, 0, 60),
    "tagged fields of structs": lambda: join(10, 0, 5),
    "short strings": lambda: find(["xy"] * 75),
    "empty structs": lambda: join(60, 0),
    "empty arrays": lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="", topics=[])] * 30),
    "few tagged fields": lambda: tagged(heartbeat_request(), 3),
    "few tagged fields of a struct": lambda: join(1, 0, 2),
    "few strings": lambda: find(["xy"] * 3),
    "offsets": lambda: commit(10),
    "one offset": lambda: commit(1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_requests_count_what_they_occupy(shape: str) -> None:
    occupied, counted, wire_bytes = sizes(SHAPES[shape]())
    assert occupied <= counted, f"{wire_bytes} bytes on the wire"
    assert counted <= max(2.5 * occupied, 12 * wire_bytes), f"{occupied} occupied, {wire_bytes} bytes on the wire"


@pytest.mark.parametrize("shape", SMALL)
def test_small_requests_count_what_they_occupy_together_with_what_is_added(shape: str) -> None:
    """The journal adds some bytes to each call, in advance for its response."""
    occupied, counted, wire_bytes = sizes(SMALL[shape]())
    assert wire_bytes < 256
    assert occupied <= counted + SMALL_RESPONSE_BYTES * OBJECT_FACTOR, f"{wire_bytes} bytes on the wire"


def sizes(made: Message) -> tuple[int, int, int]:
    """Return what a request occupies when it was decoded, what is counted for it, and its size on the wire."""
    version = min(api_of(made).versions.last, 9)
    if isinstance(made, FetchRequest):
        version = api_of(made).versions.last
    raw = encode(made, version)
    tracemalloc.start()
    try:
        first = decode(type(made), raw, version)  # Compiles the decoder, and allocates what Python keeps for reuse.
        before, _ = tracemalloc.get_traced_memory()
        request = decode(type(made), raw, version)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert request == first
    return after - before, request_bytes(request, len(raw)), len(raw)
