"""The histories of what coordinators manage, groups or transactional ids: their newest moments. Bounded in size.

The coordinator decides what a moment contains. Groups and ids that were deleted or have moved keep their history.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import msgspec

DEAD = "Dead"
"""The state of a group or a transactional id that does not exist."""

LOADED = "loaded from the log"
"""The cause of the first moment after a coordinator has loaded a group or a transactional id."""

MAX_MOMENTS_OF_ONE = 256
"""Maximum number of moments that are kept of one group or transactional id."""
MAX_MOMENTS = 20_000
"""Maximum number of moments that are kept in all."""
MAX_SIZE_OF_ONE = 250_000
"""Maximum size of the kept moments of one group or transactional id; see `RecordedMoment.size`."""
MAX_SIZE = 2_000_000
"""Maximum size of all kept moments. Member ids take 8 bytes each."""
_PORTIONS = 16
"""Above a maximum, a sixteenth of the moments is dropped: many at once take less time than one after the other."""
MAX_WITHOUT_MOMENTS = 20_000
"""Maximum number of groups or ids without a kept moment of which the number of dropped moments is known."""

M_co = TypeVar("M_co", covariant=True)
M = TypeVar("M")


class Recorded(Protocol[M_co]):
    """A moment as it was recorded. It is converted when it is read.

    Attributes:
        at_ms: The time of the change, by the brokers' clock.
        size: How many member ids or partitions it has, about.
    """

    @property
    def at_ms(self) -> float: ...

    @property
    def size(self) -> int: ...

    def moment(self) -> M_co:
        """Return the moment for readers; a moment that was converted before returns itself."""


R = TypeVar("R", bound=Recorded[Any])


class DroppedMoments(msgspec.Struct, frozen=True):
    """The moments of a group or a transactional id that are no longer in its history, because the history is limited.

    Attributes:
        count: The number of moments that are known to be dropped.
        until_ms: When the last of these moments was recorded, by the brokers' clock; None without such a moment.
        is_exact: Whether `count` includes all dropped moments. Counts are kept for a limited number of groups and ids.
    """

    count: int = 0
    until_ms: float | None = None
    is_exact: bool = True

    def __bool__(self) -> bool:
        """Whether moments were dropped, or may have been."""
        return self.count > 0 or not self.is_exact

    def __str__(self) -> str:
        """Return a clause such as "3 earlier changes were dropped"; "" if none were."""
        changes = f"{self.count} earlier change{'s were' if self.count != 1 else ' was'} dropped"
        if self.is_exact:
            return f"{changes} from the history" if self.count else ""
        return f"{changes} from the history, or more" if self.count else "earlier changes may have been dropped"


NOTHING_DROPPED = DroppedMoments()


@dataclass(slots=True)
class _Kept(Generic[M]):
    """The history of one group or id: its kept moments, their size, and what was dropped."""

    moments: list[Recorded[M]]  # At most a few hundred: an empty deque takes ten times as much memory.
    dropped: int
    dropped_until_ms: float | None
    is_exact: bool
    size: int = 0


class BoundedHistory(Generic[R, M]):
    """The newest moments of all groups, or of all transactional ids, and how many were dropped.

    Each key (group or id) has limits. Above one of them, its oldest moments are dropped, but never its newest. All keys
    together have limits, too. Above one of them, the key that has not changed for longest loses its oldest moments, and
    in the end its newest. Above a limit on the number, a sixteenth more is dropped (`_PORTIONS`).

    Args:
        max_moments_of_one: The number of moments that are kept of one key.
        max_moments: The number of moments that are kept in all.
        max_size_of_one: The size of the kept moments of one key.
        max_size: The size of all kept moments.
        max_without_moments: How many keys that have lost all moments still have a count of them.

    Attributes:
        listeners: Called with a key and its new moments, oldest first, after each request or timer that has changed it.
        dropped: How many moments were dropped in all.
    """

    def __init__(
        self,
        max_moments_of_one: int = MAX_MOMENTS_OF_ONE,
        max_moments: int = MAX_MOMENTS,
        max_size_of_one: int = MAX_SIZE_OF_ONE,
        max_size: int = MAX_SIZE,
        max_without_moments: int = MAX_WITHOUT_MOMENTS,
    ) -> None:
        self.max_moments_of_one, self.max_moments = max_moments_of_one, max_moments
        self.max_size_of_one, self.max_size = max_size_of_one, max_size
        self.max_without_moments = max_without_moments
        self.listeners: list[Callable[[str, Sequence[R]], None]] = []
        self.dropped = 0
        self._count = self._size = 0
        # The key without changes for longest, or whose last moment was dropped first, comes first. In a plain dict,
        # finding the first key takes longer the more keys before it were removed.
        self._kept: OrderedDict[str, _Kept[M]] = OrderedDict()
        self._without_moments: OrderedDict[str, DroppedMoments] = OrderedDict()
        self._unknown = NOTHING_DROPPED  # Of keys in neither of them.

    def keep(self, key: str, moments: Sequence[R]) -> None:
        """Add moments of a key, oldest first, and drop those that exceed the limits."""
        kept = self._kept.get(key)
        if kept is None:
            dropped = self._without_moments.pop(key, self._unknown)
            kept = self._kept[key] = _Kept([], dropped.count, dropped.until_ms, dropped.is_exact)
        else:
            self._kept.move_to_end(key)
        size = sum([moment.size for moment in moments])
        kept.moments += moments
        kept.size += size
        self._size += size
        self._count += len(moments)
        for listener in self.listeners:
            listener(key, moments)
        if len(kept.moments) > self.max_moments_of_one or kept.size > self.max_size_of_one:
            self._limit(key, kept)
        if self._count > self.max_moments:
            excess = self._count - self.max_moments + self.max_moments // _PORTIONS
            while excess:
                oldest, of_oldest = next(iter(self._kept.items()))
                count = min(excess, len(of_oldest.moments))
                self._drop(oldest, of_oldest, count)
                excess -= count
        while self._size > self.max_size:
            oldest, of_oldest = next(iter(self._kept.items()))
            self._drop(oldest, of_oldest, 1)

    def _limit(self, key: str, kept: _Kept[M]) -> None:
        """Drop the oldest moments of a key that exceed its limits, except the newest one."""
        moments = kept.moments
        count = 0
        if len(moments) > self.max_moments_of_one:
            count = len(moments) - self.max_moments_of_one + self.max_moments_of_one // _PORTIONS
        size = kept.size - sum([moment.size for moment in moments[:count]])
        while size > self.max_size_of_one and count < len(moments) - 1:
            size -= moments[count].size
            count += 1
        if count:
            self._drop(key, kept, count)

    def _drop(self, key: str, kept: _Kept[M], count: int) -> None:
        """Drop the oldest moments of a key, and the key itself if none is left."""
        dropped = kept.moments[:count]
        del kept.moments[:count]
        size = sum([moment.size for moment in dropped])
        kept.size -= size
        self._size -= size
        self._count -= count
        self.dropped += count
        kept.dropped += count
        kept.dropped_until_ms = dropped[-1].at_ms
        if kept.moments:
            return
        self._without_moments[key] = self.dropped_of(key)
        del self._kept[key]
        if len(self._without_moments) > self.max_without_moments:
            forgotten = self._without_moments.pop(next(iter(self._without_moments)))
            until_ms = max(forgotten.until_ms or 0.0, self._unknown.until_ms or 0.0)
            self._unknown = DroppedMoments(0, until_ms, is_exact=False)

    def of(self, key: str) -> tuple[M, ...]:
        """Return the kept moments of a key, oldest first. An unknown key has none."""
        kept = self._kept.get(key)
        if kept is None:
            return ()
        # Each moment is converted once.
        read = tuple(each.moment() for each in kept.moments)
        kept.moments = list(read)  # type: ignore[arg-type]  # a converted moment returns itself
        return read

    def dropped_of(self, key: str) -> DroppedMoments:
        """Return which moments of a key are no longer kept."""
        kept = self._kept.get(key)
        if kept is None:
            return self._without_moments.get(key, self._unknown)
        return DroppedMoments(kept.dropped, kept.dropped_until_ms, kept.is_exact)

    def count_of(self, key: str) -> int:
        """Return how many moments of a key were recorded, as far as is known; see `DroppedMoments.is_exact`."""
        kept = self._kept.get(key)
        return (0 if kept is None else len(kept.moments)) + self.dropped_of(key).count

    def since(self, key: str, count: int) -> tuple[M, ...]:
        """Return the kept moments of a key that were recorded when `count_of` was at least this, oldest first."""
        recorded = self.count_of(key)
        new = recorded - count if count <= recorded else recorded
        moments = self.of(key)
        return moments[-new:] if new else ()

    def is_complete_since(self, key: str, count: int) -> bool:
        """Return whether `since` returns all moments, and none of them was dropped."""
        dropped = self.dropped_of(key)
        return dropped.count <= count and (dropped.is_exact or self.count_of(key) >= count)

    def newest(self, count: int) -> list[str]:
        """Return the keys that changed last, at most `count`, the newest first."""
        return list(islice(reversed(self._kept), count))

    def __len__(self) -> int:
        return self._count
