"""Formats of numbers, names and events in reports and verdicts."""

from collections.abc import Mapping, Sequence
from typing import Any

from fakebroker.errors import ErrorCode

_ERRORS = {int(error): error.name for error in ErrorCode}


def ms(value: float | None) -> str:
    """Format milliseconds with three significant digits: 0.123, 1.23, 12.3, 1,234."""
    if value is None:
        return "-"
    return f"{value:,.{max(0, 3 - len(str(int(value)).lstrip('0')))}f}" if value < 1000 else f"{value:,.0f}"


def bound(edge_ms: float) -> str:
    """Format the lower bound of a bar of durations, in milliseconds or seconds: 500, 2 s."""
    return f"{edge_ms:g}" if edge_ms < 1000 else f"{edge_ms / 1000:g} s"


def number(value: float | None) -> str:
    """Format a number with thousands separators and six significant digits: 1,234.57."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:,}"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: 1 case, 1,234 cases."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def error_name(code: int) -> str:
    """Return Kafka's name of an error, or its code if Kafka has no name for it."""
    return _ERRORS.get(code, str(code))


def share(value: float | None) -> str:
    """Format a share of 1 as a percentage."""
    return "-" if value is None else f"{value:.1%}"


def times(value: float | None) -> str:
    """Format a multiple, such as a skew."""
    return "-" if value is None else f"{value:.2f} times"


def by_chance(skew: float | None, ends: Sequence[float]) -> str:
    """Compare a skew with the range that chance gives, as the end of a sentence; nothing without a skew."""
    if skew is None or len(ends) < 2:
        return ""
    low, high = ends
    rounded = round(skew, 2)
    verdict = "more than by chance" if rounded > high else "less than by chance" if rounded < low else "as by chance"
    return f", {verdict} ({low:g} to {high:g})"


def broker(node_id: int | None) -> str:
    """Format a node id; negative ones are brokers that are known by their address only."""
    return "-" if node_id is None else "unknown" if node_id < 0 else str(node_id)


def event(outcome: Mapping[str, Any]) -> str:
    """Format an event of the timeline as its command and arguments: `broker.stop node_id=1`."""
    arguments = {key: value for key, value in outcome.items() if key not in ("at_s", "do", "done", "why")}
    return " ".join((str(outcome.get("do", "?")), *_arguments(arguments)))


def result(outcome: Mapping[str, Any]) -> str:
    """Format whether an event of the timeline was done, and if not, why; of a long reason, the first paragraph."""
    first, _, _ = (outcome["why"] or "").partition("\n\n")
    return "done" if outcome["done"] else f"not done: {first}"


def _arguments(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={_argument(value)}" for key, value in values.items() if value is not None]


def _argument(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"{{{', '.join(_arguments(value))}}}"
    return f"[{', '.join(map(_argument, value))}]" if isinstance(value, list | tuple) else str(value)


def seconds(microseconds: int) -> str:
    """Format a time since the start of a replay in seconds, to the millisecond."""
    return f"{microseconds / 1e6:,.3f}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Format a list of names; those beyond `most` are counted."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
