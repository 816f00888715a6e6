"""The base of views that are compared without a part of their fields."""

from typing import Any

import msgspec

_NOT_COMPARED = frozenset({"history", "text"})


class View(msgspec.Struct, frozen=True, eq=False):
    """A view that is compared without its history and its text. `repr` omits the history."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and type(other) is type(self) and other._compared() == self._compared()

    def __ne__(self, other: object) -> bool:  # not derived from `__eq__`, because `Struct` defines it
        return not self == other

    def __hash__(self) -> int:
        return hash(self._compared())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "history")
        return f"{type(self).__name__}({shown})"

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in _NOT_COMPARED)


def without_history(view: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a view except `history`, by name."""
    return {name: value for name, value in msgspec.structs.asdict(view).items() if name != "history"}
