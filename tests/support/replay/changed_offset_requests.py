"""A coordinator that changes commits and fetches of offsets before it handles them."""

from collections.abc import Sequence
from typing import NamedTuple

from fakebroker.coordinator.api import OffsetToCommit
from fakebroker.coordinator.committed_offsets import CommittedOffsets
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.errors import ErrorCode


class Commit(NamedTuple):
    """The group and the member of an OffsetCommit."""

    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None


class ChangesOffsetRequests(Coordinator):
    """Calls its methods before each commit and each fetch."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]  # those of the coordinator
        self.offsets = _Offsets(self)

    def answer_at_once(self, commit: Commit, now_ms: float) -> ErrorCode | None:
        """Return the error code for all partitions of a commit that is not handled, else None."""
        return None

    def changed_commit(self, commit: Commit) -> Commit:
        """Return the commit that is handled."""
        return commit

    def fetch_epoch(self, group_id: str, member_id: str, member_epoch: int) -> int:
        """Return the epoch with which a fetch is checked."""
        return member_epoch


class _Offsets(CommittedOffsets):
    """The offsets of such a coordinator."""

    def __init__(self, coordinator: ChangesOffsetRequests) -> None:
        vars(self).update(vars(coordinator.offsets))
        self._coordinator = coordinator

    def commit(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        now_ms: float,
    ) -> list[ErrorCode]:
        commit = Commit(group_id, generation_id, member_id, instance_id)
        if (error := self._coordinator.answer_at_once(commit, now_ms)) is not None:
            return [error] * len(offsets)
        return super().commit(*self._coordinator.changed_commit(commit), offsets, now_ms)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        epoch = self._coordinator.fetch_epoch(group_id, member_id or "", member_epoch)
        return super().check_fetch(group_id, member_id, epoch)
