"""Batch joins (KAFKA-8397): one JoinGroup for many members, and instances that are expected before they join.

See `scenarios/proposals/batch-join.md`. Extends the classic group through the hook in `classic/extension.py`.
Start with `join_batch.py` (requests) and `expected_instances.py` (state).
"""

from collections.abc import Callable
from typing import Any

from fakebroker.coordinator.classic.extension import GroupExtension
from fakebroker.proposals import Proposal
from fakebroker.proposals.batch_join.messages import JOIN_GROUP
from fakebroker.protocol.schema import Versions


class BatchJoin(Proposal, frozen=True):
    """The hooks of the proposal."""

    def extension(self) -> Callable[[Any], GroupExtension]:
        from fakebroker.proposals.batch_join.batch_join_extension import BatchJoinExtension

        return BatchJoinExtension


PROPOSAL = BatchJoin(
    name="batch-join",
    versions={"JoinGroup": Versions(0, 10)},
    apis=(JOIN_GROUP,),
    errors={
        "JoinGroup": (
            "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR INVALID_GROUP_ID "
            "GROUP_AUTHORIZATION_FAILED UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION REBALANCE_IN_PROGRESS "
            "INCONSISTENT_GROUP_PROTOCOL INVALID_SESSION_TIMEOUT MEMBER_ID_REQUIRED GROUP_MAX_SIZE_REACHED "
            "UNSUPPORTED_VERSION DUPLICATE_RESOURCE INVALID_REQUEST",
            "join_group_members",
            "member_join_response_list",
        )
    },
)
