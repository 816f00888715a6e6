"""The base of all tables of a workload file, and types of values that several of them use."""

import math
from typing import Annotated

import msgspec
from msgspec import Meta

MOST_MEMBERS = 10_000
"""Maximum number of members of one group."""

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]
PositiveSeconds = Annotated[float, Meta(gt=0)]
Rate = Annotated[float, Meta(gt=0)]

Span = float | tuple[float, float]
"""Seconds, or their minimum and maximum: each member, or group, draws a value in between.

Checked by `check_span`: msgspec confuses the bound of a number with the length of a list where both are allowed.
"""


class Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of the file. Unknown keys are errors."""


def ends(span: Span) -> tuple[float, float]:
    """Return the minimum and maximum seconds of a span."""
    return span if isinstance(span, tuple) else (span, span)


def check_span(key: str, span: Span | None) -> None:
    """Check a span.

    Raises:
        ValueError: It is invalid.
    """
    if span is None:
        return
    fewest, most = ends(span)
    if not (0 <= fewest <= most and math.isfinite(most)):
        shown = list(span) if isinstance(span, tuple) else f"{span:g}"
        raise ValueError(f"{key}: expected seconds, 0 or more, or [fewest, most], got {shown}")
