"""A broker written by hand, for the other end of a connection."""

from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

from fakebroker.client.connection import Connection
from fakebroker.protocol.codec import decode
from fakebroker.protocol.frames import (
    FrameBuffer,
    RequestHeader,
    read_request_header,
    response_frame,
)
from fakebroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.registry import API_BY_KEY
from fakebroker.protocol.schema import Message

SPOKEN = {18: (0, 4), 12: (0, 4), 11: (0, 4), 9: (0, 7), 8: (0, 10), 10: (5, 6)}


@dataclass
class Broker:
    """The other end: takes requests one by one and answers when it is told to."""

    stream: trio.abc.Stream
    spoken: dict[int, tuple[int, int]] = field(default_factory=lambda: dict(SPOKEN))
    client_ids: list[str | None] = field(default_factory=list)
    _frames: FrameBuffer = field(default_factory=FrameBuffer)
    _ready: list[bytes] = field(default_factory=list)

    async def take(self) -> tuple[RequestHeader, Message]:
        while not self._ready:
            data = await self.stream.receive_some()
            assert data, "the client has gone"
            self._ready += self._frames.feed(bytes(data))
        frame = self._ready.pop(0)
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        request = API_BY_KEY[key].request
        header, position = read_request_header(frame, version in request.FLEXIBLE)
        self.client_ids.append(header.client_id)
        return header, decode(request, frame, version, position)

    async def answer(self, header: RequestHeader, response: Message, version: int | None = None) -> None:
        version = header.api_version if version is None else version
        await self.stream.send_all(response_frame(response, version, header.correlation_id))

    async def tell_versions(self) -> None:
        header, _ = await self.take()
        await self.answer(header, ApiVersionsResponse(api_keys=ranges(self.spoken)))


def ranges(spoken: dict[int, tuple[int, int]]) -> list[ApiVersion]:
    return [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in spoken.items()]


def heartbeat(generation_id: int = 1) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation_id, member_id="m")


async def connect(stream: trio.abc.Stream, nursery: trio.Nursery, client_id: str = "c", **options: Any) -> Connection:
    """A connection over a stream, to a broker at "memory:1"."""

    async def open_stream(host: str, port: int) -> trio.abc.Stream:
        return stream

    return await Connection.open("memory", 1, client_id, nursery, open_stream=open_stream, **options)
