"""Context managers that undo a command on exit."""

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from fakebroker.errors import ConfigError


class Hold:
    """What a command does until it is undone: a held state, held markers, an ACL. Undone on exit."""

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __enter__(self) -> "Hold":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ConfigError):  # It was undone before.
            self._undo()
