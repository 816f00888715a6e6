"""`SnapshotDict`, a dict whose keys can be recorded after each change. Does not depend on groups."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Never, TypeVar

V = TypeVar("V")

KeySnapshot = tuple[Sequence[str], int]
"""The keys of a dict at some time: the first ones of a sequence, which may have grown since, and their number."""

NO_KEYS: KeySnapshot = (), 0

_MOST_COPIED = 32


class SnapshotDict(dict[str, V]):
    """A dict of which snapshots of the keys take constant time on average while keys are only added.

    So a group that records its members after each JoinGroup takes as long for each of them, however large it is.
    """

    __slots__ = ("_snapshot",)

    def __init__(self, items: Iterable[tuple[str, V]] = ()) -> None:
        super().__init__(items)
        # The keys in order, for the next snapshot to extend; None if a key was removed since the last one.
        self._snapshot: list[str] | None = None

    def snapshot(self) -> KeySnapshot:
        """Return the keys in their order."""
        count = len(self)
        if count <= _MOST_COPIED:
            return tuple(self), count
        keys = self._snapshot
        if keys is None:
            keys = self._snapshot = list(self)
        elif count > len(keys):
            keys += list(islice(reversed(self), count - len(keys)))[::-1]
        return keys, count

    def pop(self, *key_and_default: Any) -> Any:
        self._snapshot = None
        return super().pop(*key_and_default)

    def __delitem__(self, key: str) -> None:
        self._snapshot = None
        super().__delitem__(key)

    def popitem(self) -> tuple[str, V]:
        self._snapshot = None
        return super().popitem()

    def clear(self) -> None:
        self._snapshot = None
        super().clear()


class _NoEntries(SnapshotDict[Any]):
    """The type of `NO_ENTRIES`. Removing a key that it does not have is allowed."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> Never:
        raise TypeError("the shared empty dict cannot have entries: expected another dict")

    __setitem__ = setdefault = update = __ior__ = _refuse


NO_ENTRIES: SnapshotDict[Any] = _NoEntries()
"""An empty dict that objects share until they have entries: a million dicts without entries take 60 MB."""


def no_entries() -> SnapshotDict[Any]:
    """Return `NO_ENTRIES`, as a default of dataclasses."""
    return NO_ENTRIES
