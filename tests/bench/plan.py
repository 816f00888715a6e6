"""What the load generator sends and expects: plans of requests, and the responses of the echo server, as files.

`generator.c` and `echo.c` read these files and know nothing else of the protocol.
"""

import copy
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fakebroker.protocol.frames import read_response, request_frame, response_frame
from fakebroker.protocol.records import crc32c
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message, Struct
from tests.support.wire_client import WireClient

CLIENT_ID = "load"
NUMBER = re.compile(rb"(?<=~)\d{6}")
"""A number that the generator draws anew for each request: six digits after a tilde."""


@dataclass(frozen=True)
class Copy:
    """Bytes of a response that are copied into the request of another step.

    Attributes:
        from_position: Their position in the response.
        step: The number of the step.
        to_position: Their position in its request.
        size: Their number.
    """

    from_position: int
    step: int
    to_position: int
    size: int


@dataclass(frozen=True)
class Batch:
    """A record batch of an idempotent producer in a request. Its one record gets the next sequence number each time.

    Attributes:
        position: Its position in the request.
        size: Its size in bytes.
    """

    position: int
    size: int

    def number(self, request: bytearray, sequence: int) -> None:
        """Write a sequence number, and the CRC."""
        end = self.position + self.size
        struct.pack_into(">i", request, self.position + _BATCH_SEQUENCE, sequence)
        crc = crc32c(bytes(request[self.position + _BATCH_ATTRIBUTES : end]))
        struct.pack_into(">I", request, self.position + _BATCH_CRC, crc)


@dataclass(frozen=True)
class Step:
    """One request of a connection, and what is known of its response. Positions count from the size field.

    Attributes:
        request: The frame of the request.
        response: The frame of a response without errors. Later ones have the same size.
        errors: Positions of the error codes in the response.
        copies: What other requests need from the response.
        batch: The record batch whose sequence number changes; None if there is none.
        repeats: Whether it is repeated. If not, it is the first step.
    """

    request: bytes
    response: bytes
    errors: tuple[int, ...]
    copies: tuple[Copy, ...] = ()
    batch: Batch | None = None
    repeats: bool = True

    @property
    def api_key(self) -> int:
        return int.from_bytes(self.request[4:6])

    @property
    def numbers(self) -> tuple[int, ...]:
        """Positions of the numbers in the request."""
        return tuple(found.start() for found in NUMBER.finditer(self.request))


Plan = Sequence[Sequence[Step]]
"""By connection, its steps. All repeat, but the first may not."""

_BATCH_CRC, _BATCH_ATTRIBUTES, _BATCH_SEQUENCE = 17, 21, 53
"""Positions in a record batch. Its CRC covers everything from the attributes on."""


def step(wire: WireClient, request: Message, version: int) -> tuple[Step, Message]:
    """Send a request once; return it as a step, and its response.

    Raises:
        AssertionError: The response has an error, or cannot be encoded to the received bytes.
    """
    sent = request_frame(request, version, 1, CLIENT_ID)
    wire.socket.sendall(sent)
    received = wire.receive_frame()
    response = api_of(request).response
    _, message = read_response(response, version, received)
    frame = struct.pack(">i", len(received)) + received
    without, with_errors = (response_frame(_with_error(message, version, code), version, 0) for code in (0, -1))
    assert without[8:] == frame[8:], f"{response.__name__} v{version}: expected no errors, got {message}"
    errors = tuple(differences(without, with_errors))[::2]
    return Step(sent, frame, errors), message


def steps_like(first: Step, requests: Iterable[Message], version: int) -> list[list[Step]]:
    """Return a plan of connections that send one request each, whose responses are like that of a step."""
    return [[replace(first, request=request_frame(request, version, 1, CLIENT_ID))] for request in requests]


def differences(one: bytes | bytearray, other: bytes | bytearray) -> Iterator[int]:
    """Yield the positions at which byte strings of the same size differ."""
    return (position for position, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)


def position_of_field(message: Message, name: str, version: int, frame: bytes | bytearray) -> int:
    """Return the position of an int32 field of a message in its frame."""
    changed = copy.copy(message)
    setattr(changed, name, ~getattr(message, name))
    encode = response_frame if "Response" in type(message).__name__ else _request_frame
    return next(position for position in differences(frame, encode(changed, version, 0)) if position >= 12)


def _request_frame(message: Message, version: int, correlation_id: int) -> bytes:
    return request_frame(message, version, correlation_id, CLIENT_ID)


def _with_error(message: Message, version: int, code: int) -> Message:
    """Return a copy in which all error codes that a version has are a number."""
    changed = copy.deepcopy(message)
    for part in _structs(changed):
        for field in part.FIELDS:
            if field.name.endswith("error_code") and version in field.versions:
                setattr(part, field.name, code)
    return changed


def _structs(part: object) -> Iterator[Struct]:
    """Yield a message and all structs in it."""
    if isinstance(part, list):
        for element in part:
            yield from _structs(element)
    elif isinstance(part, Struct):
        yield part
        for field in part.FIELDS:
            yield from _structs(getattr(part, field.name))


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan for the generator."""
    parts = [_ints(len(plan))]
    for steps in plan:
        parts.append(_ints(len(steps), 0 if steps[0].repeats else 1))
        for one in steps:
            batch = one.batch or Batch(-1, 0)
            parts += [_ints(len(one.request)), one.request, _ints(len(one.response))]
            parts += [_ints(len(one.errors), *one.errors), _ints(len(one.numbers), *one.numbers)]
            parts.append(_ints(len(one.copies)))
            parts += [_ints(each.from_position, each.step, each.to_position, each.size) for each in one.copies]
            parts.append(_ints(batch.position, batch.size))
    path.write_bytes(b"".join(parts))


def write_responses(plans: Iterable[Plan], path: Path) -> None:
    """Write one response per API key for the echo server."""
    responses: Mapping[int, bytes] = {one.api_key: one.response for plan in plans for steps in plan for one in steps}
    parts = [_ints(len(responses))]
    for api_key, response in responses.items():
        parts += [_ints(api_key, len(response)), response]
    path.write_bytes(b"".join(parts))


def _ints(*values: int) -> bytes:
    return struct.pack(f"={len(values)}i", *values)
