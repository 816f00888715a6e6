"""Commits of offsets that are given as plain values, in a short order."""

from collections.abc import Sequence
from typing import Any

from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition

Offset = tuple[str, int, int] | tuple[str, int, int, str]
"""Topic, partition, offset, and perhaps metadata."""


def commit(
    coordinator: Coordinator,
    offsets: Sequence[Offset],
    now_ms: float,
    generation_id: int = -1,
    member_id: str = "",
    *,
    group_id: str = "g",
    instance_id: str | None = None,
    retention_ms: int = -1,
    **fields: Any,
) -> list[ErrorCode]:
    """Commit offsets, by default not as a member; return their errors. All partitions have the same other fields."""
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_ms,
        topics=[],
    )
    wanted = [(topic, OffsetCommitRequestPartition(**_partition(*rest), **fields)) for topic, *rest in offsets]
    return coordinator.offsets.commit(request, wanted, now_ms)


def commit_in_transaction(
    coordinator: Coordinator,
    offsets: Sequence[Offset],
    now_ms: float,
    generation_id: int = -1,
    member_id: str = "",
    *,
    group_id: str = "g",
    instance_id: str | None = None,
    producer_id: int = 1,
    has_newer_errors: bool = False,
) -> list[ErrorCode]:
    """Commit offsets in a transaction, by default not as a member; return their errors."""
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=0,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[],
    )
    wanted = [(topic, TxnOffsetCommitRequestPartition(**_partition(*rest))) for topic, *rest in offsets]
    return coordinator.offsets.commit_pending(request, wanted, now_ms, has_newer_errors=has_newer_errors)


def _partition(index: int, offset: int, metadata: str | None = None) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
