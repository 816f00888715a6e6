"""Handles that the commands in `commands.py` return."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from fakebroker.cluster.faults.injection import ActiveFault


class FaultHandle:
    """A fault in force. As a context manager it is removed at the end.

    Attributes:
        fault: The requests that it matches, and its effect.
    """

    def __init__(self, fault: ActiveFault, remove: Callable[[ActiveFault], None]) -> None:
        self._active = fault
        self._remove = remove
        self.fault = fault.fault

    @property
    def hits(self) -> int:
        """How many requests it has taken effect on."""
        return self._active.hits

    def is_of(self, fault: ActiveFault) -> bool:
        """Whether this is the handle of an active fault."""
        return self._active is fault

    def remove(self) -> None:
        """Remove the fault; responses that it delays are still sent when they are due."""
        self._remove(self._active)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<{self.fault!r}, {self.hits} hits>"


class Hold:
    """A group that is held in a state; as a context manager it is released at the end, unless it has been before."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
