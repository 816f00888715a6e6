"""Batch JoinGroup requests and results (KAFKA-8397), and a batch in progress. Plain data."""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from fakebroker.coordinator.api import JoinResult
from fakebroker.errors import ErrorCode


class BatchMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a batch. A member without protocols does not join: its instance id is registered as expected."""

    member_id: str
    instance_id: str | None
    protocols: tuple[tuple[str, bytes], ...]


class BatchJoin(msgspec.Struct, frozen=True, kw_only=True):
    """One JoinGroup request for many members, with common values for client, timeouts and protocol type."""

    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    members: tuple[BatchMember, ...]


class BatchResult(msgspec.Struct, frozen=True):
    """The result of a batch.

    Attributes:
        generation: The result that the joined members of the batch have in common. It lists the members of the
            generation if the leader is in the batch. Its generation id is -1 if no member has joined.
        members: The members of the request.
        results: The result of each member, in the same order.
    """

    generation: JoinResult
    members: tuple[BatchMember, ...]
    results: tuple[JoinResult, ...]


@dataclass(slots=True, eq=False)
class Batch:
    """A batch in progress: collects the members' results and answers when all are known.

    Attributes:
        token: The token of the request.
        members: The members of the request.
        results: The results that are known, by the index of the member.
    """

    token: object
    members: tuple[BatchMember, ...]
    results: dict[int, JoinResult] = field(default_factory=dict)

    def add_result(self, index: int, result: JoinResult, send: Callable[[object, object], None]) -> None:
        """Set the result of one member. With the last result, `send` is called with the token and the `BatchResult`."""
        self.results[index] = result
        if len(self.results) == len(self.members):
            send(self.token, self.result())

    def result(self) -> BatchResult:
        """Return the result of the batch; `generation` is the result of the leader, else of the first joined member."""
        results = tuple(self.results[index] for index in range(len(self.members)))
        joined = [result for result in results if not result.error and result.generation_id >= 0]
        leading = [result for result in joined if result.members]
        generation = next(iter([*leading, *joined]), JoinResult(ErrorCode.NONE))
        return BatchResult(generation, self.members, results)


@dataclass(slots=True, eq=False)
class BatchToken:
    """Identifies the join of one member of a batch. The group parks it like the token of a request.

    Attributes:
        index: The index of the member in the batch.
    """

    batch: Batch
    index: int
