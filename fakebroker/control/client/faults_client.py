"""A fault in force in another process, as its client has it. Standard library alone."""

from types import TracebackType
from typing import Protocol, Self

from fakebroker.cluster.faults.rule import Fault
from fakebroker.control.client.http import NotThere


class Source(Protocol):
    """What is needed of a client."""

    def get(self, path: str) -> dict[str, int]: ...

    def delete(self, path: str) -> None: ...


class RemoteFault:
    """A fault in force. As a context manager it is removed at the end.

    Attributes:
        id: What it is called there.
        fault: What it does.
    """

    def __init__(self, source: Source, fault_id: str, fault: Fault) -> None:
        self._source = source
        self._hits = 0
        self.id = fault_id
        self.fault = fault

    @property
    def hits(self) -> int:
        """How many requests it did its work on; of one that is removed, as many as when that was known last."""
        try:
            self._hits = self._source.get(f"faults/{self.id}")["hits"]
        except NotThere as error:
            _check_about_fault(error)
        return self._hits

    def remove(self) -> None:
        """End it, if it is still in force."""
        self._hits = self.hits
        try:
            self._source.delete(f"faults/{self.id}")
        except NotThere as error:
            _check_about_fault(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def _check_about_fault(error: NotThere) -> None:
    """Raise what tells of something else that is not there, such as the cluster."""
    if error.field != "fault":
        raise error
