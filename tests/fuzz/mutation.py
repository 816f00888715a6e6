"""Mutations of inputs of the target `cluster` that know steps and messages: most frames remain valid.

A search that changes bytes alone hardly gets beyond the decoders. A mutation depends on its `Random` only.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from fakebroker.errors import ProtocolError
from fakebroker.protocol.codec import decode
from fakebroker.protocol.frames import read_request_header, request_frame
from fakebroker.protocol.registry import API_BY_KEY
from fakebroker.protocol.schema import Field, Message, Struct
from fakebroker.protocol.types import BOOLEAN, BYTES, FLOAT64, RECORDS, STRING, UUID, Primitive
from tests.fuzz.steps import Step, StepKind, encode_step, parse_steps

_SIZE_BYTES = 4
_MAX_ARRAY = 5
_ADVANCES_MS = (100, 1_000, 5_000, 10_000, 45_000, 60_000, 300_000, 1_000_000)
_NUMBERS = (-2, -1, 0, 1, 2, 3, 5, 100, 1_000, 10_000, 30_000, 60_000)
_CHANGES = ("value", "value", "value", "value", "version", "repeat", "delete", "swap", "advance", "connection")


def mutated(data: bytes, random: Random) -> bytes:
    """Return an input with one to three changes of its steps."""
    steps, layout = [*parse_steps(data)], data[:1] or b"\x00"
    for _ in range(random.randint(1, 3)):
        _change(steps, random)
    return layout + b"".join(map(encode_step, steps))


def _change(steps: list[Step], random: Random) -> None:
    """Change a list of steps at a random place."""
    if not steps:
        steps.append(Step(StepKind.ADVANCE, 0, by_ms=random.choice(_ADVANCES_MS)))
        return
    at = random.randrange(len(steps))
    step = steps[at]
    match random.choice(_CHANGES):
        case "repeat":
            steps.insert(random.randint(at, len(steps)), step)
        case "delete":
            del steps[at]
        case "swap":
            steps.insert(random.randrange(len(steps)), steps.pop(at))
        case "advance":
            steps.insert(at, Step(StepKind.ADVANCE, 0, by_ms=random.choice(_ADVANCES_MS)))
        case "connection":
            steps[at] = Step(random.choice([*StepKind]), random.randrange(4), step.frame, step.by_ms)
        case change if step.frame:
            steps[at] = Step(step.kind, step.number, _mutated_frame(step.frame, steps, random, change), step.by_ms)


def _mutated_frame(frame: bytes, steps: Sequence[Step], random: Random, change: str) -> bytes:
    """Return a frame with another value or another version; unchanged if that is not possible."""
    found = decoded_frame(frame)
    if found is None:
        return frame
    message, version, client_id = found
    if change == "version":
        version = random.choice([*type(message).VERSIONS])
    else:
        _change_value(message, version, steps, random)
    try:
        return request_frame(message, version, 1, client_id)[_SIZE_BYTES:]
    except ProtocolError:
        return frame


def decoded_frame(frame: bytes) -> tuple[Message, int, str | None] | None:
    """Return the message in a frame, its version and the client id; None if it is malformed."""
    api, version = API_BY_KEY.get(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
    if api is None or version not in api.request.VERSIONS:
        return None
    try:
        header, position = read_request_header(frame, version in api.request.FLEXIBLE)
        return decode(api.request, frame, version, position, fills_data=False), version, header.client_id
    except ProtocolError:
        return None


def _places(struct: Struct, version: int) -> Iterator[tuple[Struct, Field]]:
    """Yield all structs in a message with each of their fields."""
    for field in struct.FIELDS:
        if version in field.versions:
            yield struct, field
            content = getattr(struct, field.name)
            for each in content if isinstance(content, list) else (content,):
                if isinstance(each, Struct):
                    yield from _places(each, version)


def _change_value(message: Message, version: int, steps: Sequence[Step], random: Random) -> None:
    """Change the value of a random field anywhere in a message."""
    places = [*_places(message, version)]
    if not places:
        return
    struct, field = random.choice(places)
    value = getattr(struct, field.name)
    if version in field.nullable and random.random() < 0.1:
        new: Any = None
    elif field.is_array:
        new = _changed_array(value or [], field, steps, random)
    else:
        new = _changed_value(value, field, steps, random)
    setattr(struct, field.name, new)


def _changed_array(values: list[Any], field: Field, steps: Sequence[Step], random: Random) -> list[Any]:
    if not values:
        return [_changed_value(field.type.zero, field, steps, random)] if isinstance(field.type, Primitive) else []
    at = random.randrange(len(values))
    match random.randrange(3):
        case 0 if len(values) < _MAX_ARRAY:
            return [*values, values[at]]
        case 1:
            return values[:at] + values[at + 1 :]
        case _ if isinstance(field.type, Primitive):
            return [*values[:at], _changed_value(values[at], field, steps, random), *values[at + 1 :]]
    return values


def _changed_value(value: Any, field: Field, steps: Sequence[Step], random: Random) -> Any:
    """Return another value of a type. Often it is that of a field of the same name in another step."""
    kind = field.type
    if not isinstance(kind, Primitive):
        return value
    if random.random() < 0.6 and (others := _values_of(field, steps)):
        return random.choice(others)
    if kind is BOOLEAN:
        return not value
    if kind in (STRING, UUID, BYTES, RECORDS):
        return _changed_text(value, kind, random)
    if kind is FLOAT64:
        return float(random.choice(_NUMBERS))
    return random.choice((*_NUMBERS, value - 1, value + 1) if value is not None else _NUMBERS)


def _changed_text(value: Any, kind: Primitive, random: Random) -> Any:
    if kind is STRING:
        return random.choice(("", "news", "g", "A", "^.*", f"{value}x", "__consumer_offsets", "__transaction_state"))
    changed = bytearray(value or b"")
    if changed:
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _values_of(field: Field, steps: Sequence[Step]) -> list[Any]:
    """Return the values of fields with this name and type in all steps."""
    found: list[Any] = []
    for step in steps:
        decoded = decoded_frame(step.frame) if step.frame else None
        for struct, other in _places(decoded[0], decoded[1]) if decoded else ():
            if (other.name, other.type) == (field.name, field.type):
                value = getattr(struct, other.name)
                found += value if isinstance(value, list) else [] if value is None else [value]
    return found
