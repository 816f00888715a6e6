"""A text table of requests, for failed assertions and reports."""

from collections.abc import Mapping, Sequence

from fakebroker.cluster.call import Call
from fakebroker.errors import cut_line

NEIGHBORS = 2
"""How many requests before and after each marked one are shown."""

MAX_LINES = 30

_HEAD = ("", "#", "api", "client", "connection", "broker", "error", "came", "answered")
_MAX_NAME = 60
"""Maximum number of characters of a client id in a table."""
_GAP = "  ..."  # Instead of requests that are omitted.

Numbered = tuple[int, Call]
"""A call and its sequence number, which starts at 1."""


def table(calls: Sequence[Numbered], marks: Mapping[int, str]) -> str:
    """Return a table of marked calls and their neighbors.

    Args:
        calls: All calls, with their numbers.
        marks: The text in the first column, by index in `calls`; may be empty. Only marked calls and their neighbors
            are in the table.
    """
    near_marks = {near for index in marks for near in range(index - NEIGHBORS, index + NEIGHBORS + 1)}
    shown = sorted(near_marks.intersection(range(len(calls))))
    lines, omitted = _lines(calls, shown[:MAX_LINES], marks), len(shown) - MAX_LINES
    return "\n".join([*lines, f"{_GAP} and {omitted} more"] if omitted > 0 else lines)


def tail(calls: Sequence[Numbered], count: int) -> str:
    """Return a table of the last `count` calls."""
    return "\n".join(_lines(calls, range(max(0, len(calls) - count), len(calls)), {}))


def _lines(calls: Sequence[Numbered], shown: Sequence[int], marks: Mapping[int, str]) -> list[str]:
    if not shown:
        return ["  (no requests)"]
    start_ms = calls[0][1].received_ms
    rows = [_HEAD, *(_cells(*calls[index], marks.get(index, ""), start_ms) for index in shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    for at in range(len(shown) - 1, 0, -1):
        if shown[at] != shown[at - 1] + 1:
            lines.insert(at + 1, _GAP)
    return lines


def _cells(number: int, call: Call, mark: str, start_ms: float) -> tuple[str, ...]:
    return (
        mark,
        str(number),
        f"{call.api.name} v{call.api_version}",
        cut_line(repr(call.client_id), _MAX_NAME),
        str(call.connection_id),
        str(call.node_id),
        ", ".join(error.name for error in call.errors) or "-",
        f"+{call.received_ms - start_ms:.1f} ms" + _handling(call, start_ms),
        ("not yet" if call.latency_ms is None else f"after {call.latency_ms:.1f} ms")
        + (" (fault)" if call.fault else "")
        + "".join(f" ({error})" for error in call.action_errors),
    )


def _handling(call: Call, start_ms: float) -> str:
    """Return when a request was handled, unless it was handled when it was received."""
    if call.handled_ms is None:
        return ", not handled"
    return f", handled +{call.handled_ms - start_ms:.1f} ms" if call.handled_ms != call.received_ms else ""
