"""Which records a reader gets: all, or only those outside of open and aborted transactions (KIP-98)."""

from typing import Literal

from fakebroker.errors import ConfigError, one_of

IsolationLevel = Literal["read_uncommitted", "read_committed"]

_NUMBERS: dict[str, int] = {"read_uncommitted": 0, "read_committed": 1}


def isolation_number(level: str) -> int:
    """Return the number of an isolation level in requests.

    Raises:
        ConfigError: The level does not exist.
    """
    if level not in _NUMBERS:
        raise ConfigError.of("isolation_level", level, one_of(_NUMBERS, level))
    return _NUMBERS[level]
