"""Phrases of explanations: durations, numbers with nouns, lists of names, tables."""

from collections.abc import Iterable, Sequence
from math import inf

MAX_NAMES = 8
"""The maximum number of names in a list; the others are counted."""

_LONG_S = 600
"""Durations from this number of seconds on are given in minutes, hours or days."""


def seconds_text(duration_ms: float) -> str:
    """Return a duration such as "9.4 s", "25 min 10 s" or "6 d 23 h"."""
    seconds = max(0.0, duration_ms) / 1000
    if seconds < _LONG_S or seconds == inf:
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds % 60)} s"


def lower_first(text: str) -> str:
    """Return a sentence for use after a colon."""
    return text[:1].lower() + text[1:]


def counted(count: int, what: str) -> str:
    """Return a number and a noun, such as "1 member" or "2 members"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, whose cells are padded to the widths of their columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def listed(names: Iterable[str]) -> str:
    """Return the first names, separated by commas, and the number of the others."""
    all_names = list(names)
    omitted = len(all_names) - MAX_NAMES
    return ", ".join(all_names[:MAX_NAMES]) + (f" and {omitted} more" if omitted > 0 else "")
