"""The handles that commands return: context managers that undo the command on exit."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from fakebroker.cluster.faults.append_failures import AppendFailure
from fakebroker.cluster.faults.injection import ActiveFault


class RemovedOnExit(ABC):
    """A context manager that is removed on exit."""

    @abstractmethod
    def remove(self) -> None:
        """Remove it. Does nothing if it was removed before."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class FaultHandle(RemovedOnExit):
    """A fault that was added to a cluster. As a context manager, it removes the fault on exit.

    Attributes:
        fault: The definition: matching requests and the effect.
    """

    def __init__(self, fault: ActiveFault, remove: Callable[[ActiveFault], None]) -> None:
        self._active = fault
        self._remove = remove
        self.fault = fault.fault

    @property
    def hits(self) -> int:
        """Number of requests that the fault has affected."""
        return self._active.hits

    @property
    def errors(self) -> tuple[str, ...]:
        """The first errors of its actions (`before` and `then`), as text."""
        return tuple(self._active.errors)

    def is_of(self, fault: ActiveFault) -> bool:
        """Return whether this is a handle of the given fault."""
        return self._active is fault

    def remove(self) -> None:
        """Remove the fault. Responses that it delays are still sent when they are due."""
        self._remove(self._active)

    def __repr__(self) -> str:
        return f"<{self.fault!r}, {self.hits} hits>"


class AppendFailureHandle(RemovedOnExit):
    """Appends that fail. As a context manager, it lets no more appends fail on exit.

    Attributes:
        id: Its id in the control API.
    """

    def __init__(self, failure: AppendFailure, remove: Callable[[AppendFailure], None]) -> None:
        self._failure = failure
        self._remove = remove
        self.id = failure.id

    @property
    def hits(self) -> int:
        """Number of appends that have failed."""
        return self._failure.hits

    def remove(self) -> None:
        """Let no more appends fail."""
        self._remove(self._failure)


class Hold:
    """Something that lasts until it is released: a held state, held reassignments, an ACL. Releases it on exit."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
