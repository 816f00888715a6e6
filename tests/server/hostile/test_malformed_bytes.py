"""Bytes that are no requests: they close their connection, and nothing else happens."""

import logging
import random
import socket
import struct
from collections.abc import Iterator

import pytest

from fakebroker import FakeCluster
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.registry import APIS
from fakebroker.protocol.types import unsigned_varint
from tests.support.group_requests import heartbeat_request
from tests.support.server.bystander import MIB, unharmed
from tests.support.soak import cases, soak
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.fake_cluster(brokers=1, topics={"orders": 1})

_INT32_MAX = 2**31 - 1


@pytest.fixture
def no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Log no warnings, because pytest keeps them in memory."""
    caplog.set_level(logging.CRITICAL, logger="fakebroker")


def is_closed_after(cluster: FakeCluster, data: bytes) -> bool:
    """Send bytes and then nothing more. Return whether the broker has closed the connection without an answer."""
    with WireClient(cluster.brokers[0]) as wire:
        try:
            wire.socket.sendall(data)
            wire.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return True
        return wire.is_closed_by_broker()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@soak
@pytest.mark.usefixtures("no_log")
def test_random_bytes(fake_cluster: FakeCluster) -> None:
    with unharmed(fake_cluster) as bystander:
        for seed in cases(150, soak=20_000):
            random_ = random.Random(seed)
            data = random_.randbytes(random_.randrange(1, 2000))
            assert is_closed_after(fake_cluster, data), seed
            if seed % 10 == 0:
                bystander.check()


@soak
@pytest.mark.usefixtures("no_log")
def test_random_bodies_of_each_api(fake_cluster: FakeCluster) -> None:
    """Frames and headers are valid, so that the decoder of each message sees the rest."""
    with unharmed(fake_cluster) as bystander:
        for seed in cases(150, soak=20_000):
            random_ = random.Random(seed)
            api = random_.choice(APIS)
            version = random_.randint(api.versions.first, api.versions.last)
            body = random_.randbytes(random_.randrange(200))
            with WireClient(fake_cluster.brokers[0]) as wire:
                wire.socket.sendall(framed(struct.pack(">hhih", api.key, version, 1, -1) + b"\0" + body))
                # Some bodies are valid requests, such as those without fields, and are answered.
                wire.socket.shutdown(socket.SHUT_WR)
                while wire.socket.recv(65536):
                    pass
            if seed % 10 == 0:
                bystander.check()


def test_absurd_lengths(fake_cluster: FakeCluster) -> None:
    limit = 100 * 1024 * 1024
    with unharmed(fake_cluster) as bystander:
        for size in (-1, -(2**31), _INT32_MAX, limit + 1):
            assert is_closed_after(fake_cluster, struct.pack(">i", size) + b"x" * 100)
            bystander.check()


def arrays() -> Iterator[tuple[str, bytes]]:
    """Yield requests of all APIs in which each array of the message itself says that it has 2**31 - 1 items."""
    for api in APIS:
        for version in (api.versions.first, api.versions.last):
            flexible = version in api.request.FLEXIBLE
            count = unsigned_varint(2**31) if flexible else struct.pack(">i", _INT32_MAX)
            header = struct.pack(">hhih", api.key, version, 1, -1) + (b"\0" if flexible else b"")
            for padding in range(0, 24, 2):
                # The length of everything before the array is unknown here, so all small ones are tried. Zeros are
                # empty strings and arrays, and small numbers.
                yield f"{api.name} v{version}", framed(header + b"\0" * padding + count + b"\0" * 64)


@soak
@pytest.mark.usefixtures("no_log")
def test_arrays_of_two_billion_items(fake_cluster: FakeCluster) -> None:
    attacks = list(arrays())
    with unharmed(fake_cluster) as bystander:
        for index in cases(len(attacks) // 10, soak=len(attacks)):
            name, data = attacks[index * 7919 % len(attacks)]
            with WireClient(fake_cluster.brokers[0]) as wire:
                wire.socket.sendall(data)
                wire.socket.shutdown(socket.SHUT_WR)
                answer = wire.socket.recv(65536)
                while answer and wire.socket.recv(65536):
                    pass
            if index % 50 == 0:
                bystander.check()
            assert len(answer) < 10_000, name
        bystander.check()


def tagged(count: int, size: int = 0) -> bytes:
    """Return tagged fields with unknown tags."""
    fields = b"".join(unsigned_varint(1000 + tag) + unsigned_varint(size) + b"x" * size for tag in range(count))
    return unsigned_varint(count) + fields


def test_many_and_long_tagged_fields(fake_cluster: FakeCluster) -> None:
    """Unknown tagged fields are ignored, up to Kafka's limit; wrong counts and sizes close the connection."""
    heartbeat = request_frame(heartbeat_request(), 4, 1, "x")[4:-1]
    with (
        unharmed(fake_cluster, max_cpu_s=2, max_growth_bytes=64 * MIB) as bystander,
        WireClient(fake_cluster.brokers[0]) as wire,
    ):
        for tags in (tagged(10_000), tagged(1, 10_000_000), tagged(1000, 1000)):
            wire.socket.sendall(framed(heartbeat + tags))
            bystander.check()
            assert struct.unpack(">i", wire.receive_frame()[:4]) == (1,)
        for tags in (
            tagged(100_000),
            unsigned_varint(_INT32_MAX),
            unsigned_varint(1) + unsigned_varint(1) + unsigned_varint(_INT32_MAX),
            b"\xff" * 1000,
        ):
            assert is_closed_after(fake_cluster, framed(heartbeat + tags))
            # In the header, too.
            assert is_closed_after(fake_cluster, framed(struct.pack(">hhih", 12, 4, 1, -1) + tags))
            bystander.check()
        wire.socket.close()


def test_frames_without_bytes(fake_cluster: FakeCluster) -> None:
    with unharmed(fake_cluster) as bystander:
        for count in (1, 100_000):
            assert is_closed_after(fake_cluster, struct.pack(">i", 0) * count)
            bystander.check()


def test_versions_that_were_never_negotiated(fake_cluster: FakeCluster) -> None:
    """Kafka closes the connection, except after ApiVersions of any version, which is answered in version 0."""
    with unharmed(fake_cluster) as bystander:
        for api in APIS:
            for version in (-(2**15), -1, api.versions.last + 1, 2**15 - 1):
                if api.name != "ApiVersions":
                    request = framed(struct.pack(">hhih", api.key, version, 1, -1) + b"\0" * 30)
                    assert is_closed_after(fake_cluster, request), (api.name, version)
            bystander.check()
    with WireClient(fake_cluster.brokers[0]) as wire:
        # Without ApiVersions first, requests are answered, too.
        assert wire.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse, 0)
        hello = ApiVersionsRequest(client_software_name="n", client_software_version="1")
        assert wire.ask(hello, ApiVersionsResponse).error_code == 0
