"""A coordinator that changes commits and fetches of offsets before it handles them."""

from collections.abc import Sequence

from fakebroker.coordinator.committed_offsets import CommittedOffsets
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition


class ChangesOffsetRequests(Coordinator):
    """Calls its methods before each commit and each fetch."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]  # those of the coordinator
        self.offsets = _Offsets(self)

    def answer_at_once(self, request: OffsetCommitRequest, now_ms: float) -> ErrorCode | None:
        """Return the error code for all partitions of a commit that is not handled, else None."""
        return None

    def changed_commit(self, request: OffsetCommitRequest) -> OffsetCommitRequest:
        """Return the commit that is handled."""
        return request

    def fetch_epoch(self, group_id: str, member_id: str, member_epoch: int) -> int:
        """Return the epoch with which a fetch is checked."""
        return member_epoch


class _Offsets(CommittedOffsets):
    """The offsets of such a coordinator."""

    def __init__(self, coordinator: ChangesOffsetRequests) -> None:
        vars(self).update(vars(coordinator.offsets))
        self._coordinator = coordinator

    def commit(
        self, request: OffsetCommitRequest, offsets: Sequence[tuple[str, OffsetCommitRequestPartition]], now_ms: float
    ) -> list[ErrorCode]:
        if (error := self._coordinator.answer_at_once(request, now_ms)) is not None:
            return [error] * len(offsets)
        return super().commit(self._coordinator.changed_commit(request), offsets, now_ms)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        epoch = self._coordinator.fetch_epoch(group_id, member_id or "", member_epoch)
        return super().check_fetch(group_id, member_id, epoch)
