"""The definition of one config: its type, its default and its valid values (Kafka's ConfigDef)."""

import re
from enum import IntEnum

import msgspec

Value = int | float | bool | str

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")


class ConfigType(IntEnum):
    """Types of configs, with their numbers in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


class ConfigKey(msgspec.Struct, frozen=True):
    """The definition of one config.

    Attributes:
        type: Its type.
        default: Its default value; None if it has none.
        low: Lower bound of numbers; the range of the type also applies.
        high: Upper bound of numbers; the range of the type also applies.
        choices: The valid values, or the valid items of a list; empty if all are valid.
        ignores_case: Whether the choices, which are lower-case, are valid in upper case, too.
        pattern: A regular expression that valid values match, without spaces; empty if all are valid.
        expected: Describes `pattern` in error messages.
        about: Its documentation in one sentence; may be empty.
        broker_name: For a topic config, the broker config that is its default (ServerTopicConfigSynonyms); empty if
            there is none.
    """

    type: ConfigType
    default: Value | None
    low: float = float("-inf")
    high: float = float("inf")
    choices: tuple[str, ...] = ()
    ignores_case: bool = False
    pattern: str = ""
    expected: str = ""
    about: str = ""
    broker_name: str = ""

    @property
    def default_text(self) -> str | None:
        """The default in Kafka's notation."""
        return None if self.default is None else config_text(self.default)

    def value_error(self, value: str) -> str | None:
        """Return why a value is invalid, such as "expected true or false"; None if it is valid."""
        text = value.strip()
        if self.type is ConfigType.BOOLEAN:
            return None if text.lower() in ("true", "false") else "expected true or false"
        if self.is_number:
            return self._number_error(text)
        if self.pattern and not re.fullmatch(self.pattern, self.normalized(text)):
            return f"expected {self.expected}"
        items = items_of(text.lower() if self.ignores_case else text, self.type)
        wrong = [item for item in items if self.choices and item not in self.choices]
        return f"{wrong[0]!r} is none of {', '.join(self.choices)}" if wrong else None

    def _number_error(self, text: str) -> str | None:
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
        """The smallest and the largest valid number."""
        if self.type not in _BITS:
            return self.low, self.high
        limit = 1 << _BITS[self.type] - 1
        return max(-limit, self.low), min(limit - 1, self.high)

    def normalized(self, value: str) -> str:
        """Return a valid value in the notation of DescribeConfigs, such as "60" for " +60 "."""
        text = value.strip()
        if self.type is ConfigType.BOOLEAN:
            return text.lower()
        if self.type in _BITS:
            return str(int(text))
        if self.type is ConfigType.DOUBLE:
            return str(float(text)).replace("e+", "E").replace("e", "E")  # As Java writes an exponent.
        return ",".join(items_of(text, self.type))


def items_of(text: str, type_: ConfigType) -> list[str]:
    """Return the items of a list config, or the value as the only item for other types."""
    if type_ is not ConfigType.LIST:
        return [text]
    return [item.strip() for item in text.split(",")] if text else []


def config_text(value: Value) -> str:
    """Return a value in Kafka's notation."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _whole_number(text: str) -> int:
    """Parse an integer as Java does, which does not allow underscores.

    Raises:
        ValueError: The text is not an integer.
    """
    if not _WHOLE_NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)
