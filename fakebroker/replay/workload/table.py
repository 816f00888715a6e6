"""The base of all tables of a workload file, and types of values that several of them use."""

from collections.abc import Iterator

import msgspec

from fakebroker.errors import ConfigError

MOST_MEMBERS = 10_000
"""Maximum number of members of one group."""

Span = float | tuple[float, float]
"""Seconds, or their minimum and maximum: each member, or group, draws a value in between.

Checked by `check_span`: msgspec confuses the bound of a number with the length of a list where both are allowed.
"""


class Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of the file. Unknown keys are errors."""

    def __post_init__(self) -> None:
        if mistakes := list(self.broken_rules()):
            raise ConfigError.all_of(mistakes)

    def broken_rules(self) -> Iterator[ConfigError]:
        """Yield a mistake for each rule about the keys that the table breaks; each key has a valid type."""
        yield from ()


def ends(span: Span) -> tuple[float, float]:
    """Return the minimum and maximum seconds of a span."""
    return span if isinstance(span, tuple) else (span, span)


def check_span(key: str, span: Span | None) -> Iterator[ConfigError]:
    """Yield the mistake in a span, if there is one."""
    if span is None:
        return
    fewest, most = ends(span)
    if not 0 <= fewest <= most:
        value = list(span) if isinstance(span, tuple) else span
        yield ConfigError.of(key, value, "seconds >= 0, or [fewest, most]")
