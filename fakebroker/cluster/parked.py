"""Where requests wait: each kind in one place.

| what waits | where |
|---|---|
| JoinGroup and SyncGroup, for other members | `Group.parked_joins`, `parked_syncs` and `held_sync` |
| a Fetch, for records | `FetchPurgatory` |
| a request to a transaction coordinator whose record is held | `Transaction.held`, as `ParkedRequest` |
| markers, for a partition that can take them | `Transactions.waiting` |
| Produce and TxnOffsetCommit, for a transaction coordinator | `produce.Produce`, `txn_offset_commit.Commit` |
| a large Produce, for its next part | `Cluster.unfinished` |
| a request or response that a fault delays | `FaultInjector` |

All others are handled to their end at once: appends are synchronous. Answers leave when the data directory has what
they say; the server holds them until then.
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
