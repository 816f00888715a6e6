"""Batch joins (KAFKA-8397): one JoinGroup for many members, and the registration of static members before they join.

When an instance is registered, the group expects it: joins wait until all expected instances have joined, and one
rebalance adds them all. See `scenarios/proposals/batch-join.md`. Extends the classic group through the hook in
`classic/extension.py`. Start with `join_batch.py` (requests) and `expected_instances.py` (state).
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
    # Version 10 is the first that Kafka does not have. The proposal adds it, and versions 0 to 9 stay Kafka's.
    versions={"JoinGroup": Versions(0, 10)},
    apis=(JOIN_GROUP,),
    # The errors of Kafka's JoinGroup, and two for registrations: DUPLICATE_RESOURCE, if the instance is registered or a
    # member already, and INVALID_REQUEST, for an invalid or missing instance id. Each member has an error of its own.
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
