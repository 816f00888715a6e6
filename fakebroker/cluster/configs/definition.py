"""One config as Kafka defines it: its type, its default, and which values it takes (Kafka's ConfigDef).

Knows no certain config, and not what any of them does.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

Value = int | float | bool | str

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")


class ConfigType(IntEnum):
    """Kafka's types, by their numbers in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """What is known about one config.

    Attributes:
        type: Its type.
        default: Its value where nobody gives one; None where it has none.
        low: The least number, where its type has smaller ones.
        high: The largest number, where its type has larger ones.
        choices: The only texts it may have, or that the items of a list may have; () for any.
        about: One sentence about what it does, "" where the fake cluster only keeps it.
    """

    type: ConfigType
    default: Value | None
    low: float = float("-inf")
    high: float = float("inf")
    choices: tuple[str, ...] = ()
    about: str = ""

    @property
    def default_text(self) -> str | None:
        """The default as Kafka writes it."""
        return None if self.default is None else config_text(self.default)

    def value_fault(self, value: str) -> str | None:
        """What is expected instead of this value, or None if it is a good one."""
        text = value.strip()
        if self.type is ConfigType.BOOLEAN:
            return None if text.lower() in ("true", "false") else "expected true or false"
        if self.is_number:
            return self._number_fault(text)
        wrong = [item for item in items_of(text, self.type) if self.choices and item not in self.choices]
        return f"{wrong[0]!r} is none of {', '.join(self.choices)}" if wrong else None

    def _number_fault(self, text: str) -> str | None:
        try:
            number = float(text) if self.type is ConfigType.DOUBLE else _whole_number(text)
        except ValueError:
            return f"expected a number of type {self.type.name}"
        low, high = self.bounds
        if self.choices and str(number) not in self.choices:
            return f"expected one of {', '.join(self.choices)}"
        return None if low <= number <= high else f"expected {low} to {high}"

    @property
    def is_number(self) -> bool:
        return self.type is ConfigType.DOUBLE or self.type in _BITS

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest number, those of its type included."""
        if self.type not in _BITS:
            return self.low, self.high
        limit = 1 << _BITS[self.type] - 1
        return max(-limit, self.low), min(limit - 1, self.high)

    def told(self, value: str) -> str:
        """A good value as DescribeConfigs tells it: read, and written again."""
        text = value.strip()
        if self.type is ConfigType.BOOLEAN:
            return text.lower()
        if self.type in _BITS:
            return str(int(text))
        if self.type is ConfigType.DOUBLE:
            return str(float(text))
        return ",".join(items_of(text, self.type))


def items_of(text: str, type_: ConfigType) -> list[str]:
    """The items of a list; any other text is the one item."""
    if type_ is not ConfigType.LIST:
        return [text]
    return [item.strip() for item in text.split(",")] if text else []


def config_text(value: Value) -> str:
    """A config's value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _whole_number(text: str) -> int:
    """A number as Java reads it, which knows no underscores.

    Raises:
        ValueError: It is none.
    """
    if not _WHOLE_NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)
