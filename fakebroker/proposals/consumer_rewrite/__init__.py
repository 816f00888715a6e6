"""The consumer rewrite design, which was implemented once and replaced before 0.9: the coordinator assigns partitions.

One JoinGroup joins a consumer, and the generation is in every heartbeat. Group metadata is in a registry
(`registry.py`), for which the cluster stands in. Independent of other groups. See `scenarios/proposals/rewrite.md`.
Start with `states.py` (the answer to each request in each state) and `coordinator.py` (the requests, and how
contradictions of the document are read); `rewrite_groups.py` has the coordinators of a cluster.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

from fakebroker.proposals import Proposal, new_api

if TYPE_CHECKING:
    from fakebroker.cluster.broker import BrokerNode
    from fakebroker.cluster.proposed_groups import ProposedGroups
    from fakebroker.cluster.topics import Topics

JOIN_GROUP = new_api("rewrite", "JoinGroup", "0", messages="messages.RewriteJoinGroup", handler="handlers.join_group")


APIS = (
    # OffsetCommit keeps all versions: version 1 is the document's, and administrators use others.
    new_api("rewrite", "OffsetCommit", "0-10", handler="handlers.offset_commit"),
    JOIN_GROUP,
    new_api("rewrite", "Heartbeat", "0", handler="handlers.heartbeat"),
)


class ConsumerRewrite(Proposal, frozen=True):
    """The hooks of the proposal."""

    def new_groups(
        self,
        brokers: "Mapping[int, BrokerNode]",
        topics: "Topics",
        now_ms: Callable[[], float],
        new_id: Callable[[], str],
        disconnect: Callable[[Hashable], None],
    ) -> "ProposedGroups":
        from fakebroker.proposals.consumer_rewrite.rewrite_groups import RewriteGroups

        return RewriteGroups(brokers, topics, now_ms, new_id, disconnect)


PROPOSAL = ConsumerRewrite(
    name="rewrite",
    # The document's ConsumerMetadata is version 0 of FindCoordinator.
    versions={**{api.name: api.versions for api in APIS}, "SyncGroup": None, "LeaveGroup": None},
    apis=APIS,
    errors={
        "JoinGroup": (
            "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR INVALID_REQUEST ILLEGAL_GENERATION "
            "INCONSISTENT_GROUP_PROTOCOL UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT UNSUPPORTED_ASSIGNOR",
            "",
            "",
        )
    },
    is_stored=False,
)
