"""The memory of groups that clients have made: each with one member, which has committed one offset.

    python -m tests.bench.made_groups

Prints one line of JSON. A process of its own, because seeded groups would leave free memory behind.
"""

import gc
import json
import os
from collections.abc import Sequence
from typing import TypeVar

from fakebroker import FakeCluster
from fakebroker.coordinator.partitions import MAX_HASHES, POSITIVE_HASHES
from fakebroker.protocol.consumer_protocol import encode_assignment, encode_subscription
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from fakebroker.protocol.schema import Message
from tests.bench.processes import resident_bytes
from tests.support.wire_client import WireClient

M = TypeVar("M", bound=Message)

WARM_GROUPS, MEASURED_GROUPS = 50_000, 50_000
"""After the first ones, what is bounded is full: the journal, the history with its numbers of dropped changes, and the
part of each log that is not compressed. Until they have doubled, the dict of groups grows once, as it does on average,
and both numbers are between two passes of compaction, which need memory until they end."""
IN_FLIGHT = 100
TIMEOUT_MS = 1_200_000
SUBSCRIPTION, ASSIGNMENT = encode_subscription(["orders"]), encode_assignment([("orders", 0), ("orders", 1)])


def fill_hashes() -> None:
    """Fill the kept hashes of keys, which are bounded."""
    for number in range(MAX_HASHES):
        POSITIVE_HASHES[f"key-{number:07}"]


def made_group_bytes() -> float:
    """Return the memory of a group whose member has joined with KIP-394, synced, and committed an offset."""
    config = {"group.initial.rebalance.delay.ms": 0}
    with FakeCluster(1, topics={"orders": 6}, config=config) as cluster, WireClient(cluster.brokers[0]) as wire:
        fill_hashes()
        _make(wire, range(WARM_GROUPS))
        before = resident_bytes(os.getpid())
        _make(wire, range(WARM_GROUPS, WARM_GROUPS + MEASURED_GROUPS))
        return (resident_bytes(os.getpid()) - before) / MEASURED_GROUPS


def _make(wire: WireClient, numbers: range) -> None:
    for start in numbers[::IN_FLIGHT]:
        group_ids = [f"group-{number:07}" for number in range(start, start + IN_FLIGHT)]
        rejected = _all(wire, [_join(group_id, "") for group_id in group_ids], 5, JoinGroupResponse)
        joins = [_join(group_id, each.member_id) for group_id, each in zip(group_ids, rejected, strict=True)]
        members = list(zip(group_ids, _all(wire, joins, 5, JoinGroupResponse), strict=True))
        for response in _all(wire, [_sync(*member) for member in members], 3, SyncGroupResponse):
            assert response.assignment == ASSIGNMENT
        for answer in _all(wire, [_commit(*member, start) for member in members], 7, OffsetCommitResponse):
            assert answer.topics[0].partitions[0].error_code == 0
    gc.collect()


def _all(wire: WireClient, requests: Sequence[Message], version: int, kind: type[M]) -> list[M]:
    for request in requests:
        wire.send(request, version)
    return [response for _ in requests if isinstance(response := wire.receive(), kind)]


def _join(group_id: str, member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=TIMEOUT_MS,
        rebalance_timeout_ms=TIMEOUT_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def _sync(group_id: str, joined: JoinGroupResponse) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=ASSIGNMENT)],
    )


def _commit(group_id: str, joined: JoinGroupResponse, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )


def main() -> None:
    print(json.dumps({"made_group_bytes": round(made_group_bytes(), 2)}))


if __name__ == "__main__":
    main()
