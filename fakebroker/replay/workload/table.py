"""What all tables of a workload file have in common: their base, and the kinds of values that many of them take.

Knows none of the tables.
"""

import math
from typing import Annotated

import msgspec
from msgspec import Meta

MOST_MEMBERS = 10_000
"""Of one group."""

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]
PositiveSeconds = Annotated[float, Meta(gt=0)]
Rate = Annotated[float, Meta(gt=0)]

Span = float | tuple[float, float]
"""A number of seconds, or the fewest and the most of them: each member, or group, draws its own in between.

It is checked by hand: msgspec mixes up the bound of a number and the length of a list where a value may be either.
"""


class Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of the file: a key that is not known is a mistake."""


def ends(span: Span) -> tuple[float, float]:
    """The fewest and the most seconds of a span."""
    return span if isinstance(span, tuple) else (span, span)


def check_span(key: str, span: Span | None) -> None:
    """Look whether a span can be.

    Raises:
        ValueError: It cannot.
    """
    if span is None:
        return
    fewest, most = ends(span)
    if not (0 <= fewest <= most and math.isfinite(most)):
        told = list(span) if isinstance(span, tuple) else f"{span:g}"
        raise ValueError(f"{key}: expected seconds, 0 or more, or [fewest, most], got {told}")
