"""Inputs of the target `cluster`: sequences of steps, such as a frame on a connection or the advance of the clock."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

LAYOUTS: tuple[tuple[int, dict[str, int]], ...] = ((1, {"news": 1}), (2, {"news": 1}), (3, {"news": 2}))
"""Brokers and topics of a cluster; the first byte of an input is the number of one of them."""

_SIZE = struct.Struct(">H")
_KIND_BITS = 2
_ADVANCE_UNIT_MS = 100


class StepKind(IntEnum):
    """What a step does. The lowest bits of its first byte; the other bits are its `number`."""

    SEND = 0
    """A frame on a new connection to the broker of this number. Its size precedes it, as a uint16."""

    SEND_AGAIN = 1
    """A frame on the connection of this number, which stays open."""

    ADVANCE = 2
    """The clock advances; a uint16 counts tenths of a second."""

    CLOSE = 3
    """The connection of this number is closed."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step.

    Attributes:
        kind: What it does.
        number: The number of a broker or connection.
        frame: The frame to send, without its size.
        by_ms: By how much the clock advances, in milliseconds.
    """

    kind: StepKind
    number: int
    frame: bytes = b""
    by_ms: int = 0


def frame_step(node_id: int, frame: bytes) -> bytes:
    """Return the step that sends a frame to a broker, on a new connection."""
    return encode_step(Step(StepKind.SEND, node_id - 1, frame))


def advance_step(by_ms: int) -> bytes:
    """Return steps that advance the clock, rounded down to tenths of a second."""
    steps = bytearray()
    units = by_ms // _ADVANCE_UNIT_MS
    while units:
        step = min(units, 0xFFFF)
        steps += encode_step(Step(StepKind.ADVANCE, 0, by_ms=step * _ADVANCE_UNIT_MS))
        units -= step
    return bytes(steps)


def encode_step(step: Step) -> bytes:
    """Return the bytes of a step."""
    start = bytes([step.kind | step.number << _KIND_BITS & 0xFF])
    if step.kind is StepKind.CLOSE:
        return start
    if step.kind is StepKind.ADVANCE:
        return start + _SIZE.pack(min(step.by_ms // _ADVANCE_UNIT_MS, 0xFFFF))
    return start + _SIZE.pack(len(step.frame)) + step.frame


def parse_steps(data: bytes) -> Iterator[Step]:
    """Yield the steps of an input, after its first byte. Any bytes are steps; the last frame may be incomplete."""
    position = 1
    while position < len(data):
        kind, number = StepKind(data[position] & 3), data[position] >> _KIND_BITS
        position += 1
        if kind is StepKind.CLOSE:
            yield Step(kind, number)
            continue
        value = int.from_bytes(data[position : position + _SIZE.size], "big")
        position += _SIZE.size
        if kind is StepKind.ADVANCE:
            yield Step(kind, number, by_ms=value * _ADVANCE_UNIT_MS)
            continue
        yield Step(kind, number, frame=data[position : position + value])
        position += value
