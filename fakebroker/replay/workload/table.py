"""The base class of all tables of a workload file, the reader of files, and the type of time spans."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fakebroker.errors import ConfigError

MOST_MEMBERS = 10_000
"""Maximum number of members of one group."""

Span = float | tuple[float, float]
"""Seconds, or a minimum and maximum between which each member, or group, draws a value.

Its bounds are checked by `check_span`, not by annotations: in a union, msgspec would apply the bound of the number to
the length of the list.
"""


class Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of the file. Its fields are the keys; unknown keys are errors."""

    def __post_init__(self) -> None:
        if mistakes := list(self.broken_rules()):
            raise ConfigError.all_of(mistakes)

    def broken_rules(self) -> Iterator[ConfigError]:
        """Yield mistakes in combinations of keys; the types of the values have been checked before."""
        yield from ()


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file.

    Raises:
        ConfigError: It cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError.of("file", str(path), f"a file that can be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: expected TOML: {error}", expected="TOML") from None


def ends(span: Span) -> tuple[float, float]:
    """Return the minimum and maximum seconds of a span."""
    return span if isinstance(span, tuple) else (span, span)


def check_span(key: str, span: Span | None) -> Iterator[ConfigError]:
    """Yield the mistake in an invalid span."""
    if span is None:
        return
    least_s, most_s = ends(span)
    if not 0 <= least_s <= most_s:
        value = list(span) if isinstance(span, tuple) else span
        yield ConfigError.of(key, value, "seconds >= 0, or [minimum, maximum]")
