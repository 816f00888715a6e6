"""A broker without a cluster: tests receive its requests one by one, and write the responses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

from fakebroker.protocol.codec import decode
from fakebroker.protocol.frames import (
    FrameBuffer,
    RequestHeader,
    read_request_header,
    response_frame,
)
from fakebroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fakebroker.protocol.registry import API_BY_KEY
from fakebroker.protocol.schema import Message
from tests.support.client.connection import Connection

VersionsByKey = Mapping[int, tuple[int, int]]
"""The first and the last version of each API, by API key."""

DEFAULT_VERSIONS: VersionsByKey = {18: (0, 4), 12: (0, 4), 11: (0, 4), 9: (0, 7), 8: (0, 10), 10: (5, 6)}


@dataclass
class ScriptedBroker:
    """The broker's end of one connection.

    Attributes:
        stream: The connection.
        versions: What `serve_versions` responds.
        client_ids: The client ids of the requests received.
    """

    stream: trio.abc.Stream
    versions: VersionsByKey = field(default_factory=lambda: DEFAULT_VERSIONS)
    client_ids: list[str | None] = field(default_factory=list)
    _buffer: FrameBuffer = field(default_factory=FrameBuffer)
    _frames: list[bytes] = field(default_factory=list)

    async def receive(self) -> tuple[RequestHeader, Message]:
        """Receive the next request."""
        while not self._frames:
            data = await self.stream.receive_some()
            assert data, "the client has closed the connection"
            self._frames += self._buffer.feed(bytes(data))
        frame = self._frames.pop(0)
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        request = API_BY_KEY[key].request
        header, position = read_request_header(frame, version in request.FLEXIBLE)
        self.client_ids.append(header.client_id)
        return header, decode(request, frame, version, position)

    async def respond(self, header: RequestHeader, response: Message, version: int | None = None) -> None:
        """Send a response, by default in the version of the request."""
        version = header.api_version if version is None else version
        await self.stream.send_all(response_frame(response, version, header.correlation_id))

    async def serve_versions(self) -> None:
        """Receive ApiVersions and respond with `versions`."""
        header, _ = await self.receive()
        await self.respond(header, ApiVersionsResponse(api_keys=version_ranges(self.versions)))


def version_ranges(versions: VersionsByKey) -> list[ApiVersion]:
    return [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items()]


async def connect(stream: trio.abc.Stream, nursery: trio.Nursery, client_id: str = "c", **options: Any) -> Connection:
    """Open a connection to a broker at "memory:1" over a stream."""

    async def open_stream(host: str, port: int) -> trio.abc.Stream:
        return stream

    return await Connection.open("memory", 1, client_id, nursery, open_stream=open_stream, **options)
