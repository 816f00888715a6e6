"""Frames of responses in rare cases: that are too long for a field, or are not sent."""

import logging
from contextlib import suppress

from fakebroker.cluster.call import Call
from fakebroker.cluster.journal.journal import Journal
from fakebroker.cluster.short_messages import with_short_messages
from fakebroker.errors import ProtocolError
from fakebroker.protocol.frames import response_frame

logger = logging.getLogger("fakebroker")


def shortened_frame(call: Call) -> bytearray | None:
    """Encode a response after its error messages were shortened; None if that fails, too.

    Messages contain names from the request, which together can be too long for a string.
    """
    try:
        return response_frame(with_short_messages(call.response), call.response_version, call.correlation_id)
    except ProtocolError:
        logger.exception("%r: response cannot be encoded in this version", call)
        return None


def count_unsent(journal: Journal, call: Call) -> None:
    """Count a response in the journal that is not sent, because its connection was closed."""
    if call.response is None:
        journal.add_response(call, 0)
        return
    with suppress(ProtocolError):
        journal.add_response(call, len(response_frame(call.response, call.response_version, call.correlation_id)))
