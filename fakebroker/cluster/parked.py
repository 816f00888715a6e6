"""Where requests wait: each kind in one place.

| what waits | where |
|---|---|
| JoinGroup and SyncGroup, for other members | `Group.parked_joins` and `parked_syncs` |
| the leader's SyncGroup, while a test holds the group | `Group.held_sync` |
| JoinGroup in a group with expected instances (KAFKA-8397), for those | `BatchJoinExtension` |
| JoinGroup and SyncGroup of the proposal `rewrite`, for other members | `coordinator/rewrite/group.py` |
| a Fetch, for records | `FetchPurgatory` |
| another request of a transaction, while a test holds its record | `Transaction.held`, with a `ParkedRequest` |
| Produce and TxnOffsetCommit, while a test holds their record | `Transaction.held`, with the `Produce` or `Commit` |
| a Produce, for the end of the last transaction | `Transactions.verifications` |
| markers, for a partition that can take them | `Transactions.waiting` |
| a large Produce, for its next part | `Cluster.unfinished` |
| a request or response that an injected fault delays | `FaultInjector` |
| a request, for commands that an injected fault runs before it | `PendingActions` |
| a JoinGroup or SyncGroup response that a test delays | `SyncDelays` |

All others are handled to their end at once: appends are synchronous. A response may still wait in the server: for its
quota, for an injected latency, or until the data directory has what the response says.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fakebroker.cluster.call import Call
from fakebroker.protocol.schema import Message


class Parked(Protocol):
    """The token of a request to a transaction coordinator, see `TransactionCoordinator.answers`."""

    def released(self, result: Any) -> None:
        """Continue with the result of the request, which was parked until now."""


class AnsweringCluster(Protocol):
    """The part of a cluster that answers late."""

    now_ms: float

    def answer(self, call: Call, response: Message | None, now_ms: float) -> None: ...


class ParkedRequest(NamedTuple):
    """A request that is answered with the result of the transaction coordinator.

    Attributes:
        cluster: The cluster.
        call: The request.
        respond: Makes the response.
    """

    cluster: AnsweringCluster
    call: Call
    respond: Callable[[Call, Any], Message]

    def released(self, result: Any) -> None:
        self.cluster.answer(self.call, self.respond(self.call, result), self.cluster.now_ms)
