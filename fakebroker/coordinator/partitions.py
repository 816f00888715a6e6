"""The partitions of an internal topic that a coordinator leads or loads, and the partition of each id."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from fakebroker.errors import ErrorCode

K = TypeVar("K")

MAX_HASHES = 200_000
"""Maximum number of keys whose hash is kept."""

_UINT32_MASK = 0xFFFF_FFFF
_INT32_MIN = -(2**31)


def _utf16_units(text: str) -> tuple[int, ...]:
    # As in Java, a string may contain a lone surrogate; "surrogatepass" encodes it as one unit.
    encoded = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(encoded) // 2}H", encoded)


def java_string_length(text: str) -> int:
    """Return the length as Java's `String.length` counts it: characters above U+FFFF count twice."""
    if text.isascii():
        return len(text)
    return len(text) + sum(character > "\uffff" for character in text)


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: a signed 32-bit number over UTF-16 units."""
    value = 0
    for unit in _utf16_units(text):
        value = (31 * value + unit) & _UINT32_MASK
    return value - 2**32 if value >> 31 else value


class Hashes(dict[K, int]):
    """The hashes of keys seen recently, as Kafka's `Utils.abs(key.hashCode())`; a new key is hashed when looked up.

    The number of keys is limited to `MAX_HASHES`; hashing costs twenty times as much as looking up.

    Args:
        text_of: Returns the text of a key, which is hashed.
    """

    __slots__ = ("_text_of",)

    def __init__(self, text_of: Callable[[K], str]) -> None:
        self._text_of = text_of

    def __missing__(self, key: K) -> int:
        if len(self) >= MAX_HASHES:
            self.clear()
        value = java_string_hash(self._text_of(key))
        self[key] = value = 0 if value == _INT32_MIN else abs(value)
        return value


POSITIVE_HASHES: Hashes[str] = Hashes(str)
"""The hash by key."""


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of `__consumer_offsets` (or `__transaction_state`) that `key` belongs to.

    Kafka's `Utils.abs(key.hashCode()) % partitionCount`, where the absolute value of the smallest int is 0.

    Args:
        key: A group id or a transactional id; may be empty.
        partition_count: The number of partitions of the internal topic, at least 1.
    """
    if partition_count < 1:
        raise ValueError(f"partition_count={partition_count}: expected an integer >= 1")
    return POSITIVE_HASHES[key] % partition_count


R = TypeVar("R")

Append = Callable[[int, tuple[R, ...]], ErrorCode]
"""Append a batch of records to a partition of the internal topic: all of them, or none.

Called with the index of the partition and the records. Returns NONE if the records are in the log, else the error.
"""


@dataclass(slots=True, eq=False)
class LedPartition:
    """A partition that the coordinator leads. Also an entry of the timer queue, for periodic work on the partition.

    Attributes:
        partition: The index of the partition in the internal topic.
        led_since_ms: When the coordinator became the leader; periodic work is due at full intervals from then on.
        scheduled_ms, timer_number: See `TimerEntry`.
    """

    partition: int
    led_since_ms: float
    scheduled_ms: float = inf
    timer_number: int = 0

    def interval_end_ms(self, interval_ms: int, now_ms: float) -> float:
        """Return the end of the interval that contains `now_ms`; intervals are counted from `led_since_ms`."""
        return self.led_since_ms + ((now_ms - self.led_since_ms) // interval_ms + 1) * interval_ms


class Partitions:
    """All partitions of an internal topic. Each is led, is being loaded, or neither.

    The state of a coordinator is kept by key (such as a group id), and each key belongs to a partition. Requests are
    accepted only for partitions that are led.

    Args:
        count: The number of partitions.

    Attributes:
        count: The number of partitions; changes only while none is led or loaded.
        led: The partitions that are led, by index.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.led: dict[int, LedPartition] = {}
        self._loading: dict[int, None] = {}

    def partition_for(self, key: str) -> int:
        """Return the index of the partition that a key belongs to."""
        return partition_for(key, self.count)

    def error_for(self, key: str) -> ErrorCode:
        """Return NONE if the partition of a key is led, else COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        index = partition_for(key, self.count)
        if index in self.led:
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._loading else ErrorCode.NOT_COORDINATOR

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being loaded, so that not all keys are known."""
        return bool(self._loading)

    def lead(self, index: int, now_ms: float) -> None:
        """Lead a partition, which may have been loading. Does nothing if it is already led."""
        self._loading.pop(index, None)
        self.led.setdefault(index, LedPartition(index, now_ms))

    def start_loading(self, index: int) -> None:
        """Mark a partition as being loaded.

        Raises:
            RuntimeError: The partition is led.
        """
        if index in self.led:
            raise RuntimeError(f"offsets partition {index} is led; it has to be resigned before it can be loaded")
        self._loading[index] = None

    def end_loading(self, index: int) -> None:
        """Remove the mark of `start_loading`; the caller leads the partition if loading has succeeded.

        Raises:
            RuntimeError: The partition is not being loaded.
        """
        if index not in self._loading:
            raise RuntimeError(f"offsets partition {index} is not being loaded")
        del self._loading[index]

    def resign(self, index: int) -> None:
        """Stop leading or loading a partition."""
        self._loading.pop(index, None)
        if (led := self.led.pop(index, None)) is not None:
            led.scheduled_ms = inf
