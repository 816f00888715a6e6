"""Shortens the error messages of responses, which can be too long for the protocol. Depends on messages only."""

import copy
from typing import Any, TypeVar

from fakebroker.protocol.schema import Struct

S = TypeVar("S", bound=Struct)

MAX_MESSAGE_CHARACTERS = 1_000
_ERROR_MESSAGE = "error_message"


def with_short_messages(response: S) -> S:
    """Return a copy of a response whose error messages have at most `MAX_MESSAGE_CHARACTERS`."""
    shortened = copy.copy(response)
    for field in response.FIELDS:
        held = getattr(response, field.name)
        if field.name == _ERROR_MESSAGE and held is not None and len(held) > MAX_MESSAGE_CHARACTERS:
            setattr(shortened, field.name, f"{held[: MAX_MESSAGE_CHARACTERS - 3]}...")
        elif isinstance(held, Struct) or (field.is_array and held):
            setattr(shortened, field.name, _shortened(held))
    return shortened


def _shortened(held: Any) -> Any:
    if isinstance(held, list):
        return [_shortened(item) for item in held]
    return with_short_messages(held) if isinstance(held, Struct) else held
