"""`SnapshotDict`, a dict whose keys can be recorded after each change. Does not depend on groups."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Never, TypeVar

V = TypeVar("V")

_MOST_COPIED = 32


class _Prefix(Collection[str]):
    """The first keys of a list that may grow."""

    __slots__ = ("_count", "keys")

    def __init__(self, keys: list[str], count: int) -> None:
        self.keys = keys
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return islice(self.keys, self._count)

    def __contains__(self, key: object) -> bool:
        return any(each == key for each in self)


class SnapshotDict(dict[str, V]):
    """A dict with fast snapshots of its keys: while keys are only added, a snapshot takes constant time on average.

    For example, a group records its members after each JoinGroup. The time for this does not grow with the group.
    """

    # The last snapshot, whose list the next one extends; None if a key was removed since. It is missing before the
    # first one: an `__init__` would take longer than to create the dict.
    __slots__ = ("_last",)
    _last: _Prefix | None

    def snapshot(self) -> Collection[str]:
        """Return the keys in their order. They do not change when the dict does."""
        count = len(self)
        if count <= _MOST_COPIED:
            return tuple(self)
        last: _Prefix | None = getattr(self, "_last", None)
        if last is not None and len(last) == count:
            return last
        if last is None:
            keys = list(self)
        else:
            keys = last.keys
            keys += list(islice(reversed(self), count - len(keys)))[::-1]
        self._last = last = _Prefix(keys, count)
        return last

    def pop(self, *key_and_default: Any) -> Any:
        self._last = None
        return dict.pop(self, *key_and_default)

    def __delitem__(self, key: str) -> None:
        self._last = None
        super().__delitem__(key)

    def popitem(self) -> tuple[str, V]:
        self._last = None
        return super().popitem()

    def clear(self) -> None:
        self._last = None
        super().clear()


class _NoEntries(SnapshotDict[Any]):
    """The type of `NO_ENTRIES`. Removing a key that it does not have is allowed."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> Never:
        raise TypeError("the shared empty dict cannot have entries: expected another dict")

    __setitem__ = setdefault = update = __ior__ = _refuse


NO_ENTRIES: SnapshotDict[Any] = _NoEntries()
"""An empty dict that objects share until they have entries: a million dicts without entries take 60 MB."""
