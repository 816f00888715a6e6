"""Frames of responses in rare cases: that are too long for a field, or are not sent."""

import copy
import logging
from contextlib import suppress
from typing import Any, TypeVar

from fakebroker.cluster.call import Call
from fakebroker.cluster.journal.journal import Journal
from fakebroker.errors import ProtocolError
from fakebroker.protocol.frames import response_frame
from fakebroker.protocol.schema import Struct

S = TypeVar("S", bound=Struct)

logger = logging.getLogger("fakebroker")

MAX_MESSAGE_CHARACTERS = 1_000
_ERROR_MESSAGE = "error_message"


def shortened_frame(call: Call) -> bytearray | None:
    """Encode a response after its error messages were shortened; None if that fails, too.

    Messages contain names from the request, which together can be too long for a string.
    """
    try:
        return response_frame(with_short_messages(call.response), call.response_version, call.correlation_id)
    except ProtocolError:
        logger.exception("%r: response cannot be encoded in this version", call)
        return None


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


def count_unsent(journal: Journal, call: Call) -> None:
    """Count a response in the journal that is not sent, because its connection was closed."""
    if call.response is None:
        journal.add_response(call, 0)
        return
    with suppress(ProtocolError):
        journal.add_response(call, len(response_frame(call.response, call.response_version, call.correlation_id)))
