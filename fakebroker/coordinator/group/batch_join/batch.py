"""A batch JoinGroup under way (KAFKA-8397): each of its members has a seat, and the last answer answers all.

A seat is the token of one member's join, so that groups park it like any other. Knows no group.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from fakebroker.coordinator.group.api import BatchMember, BatchResult, JoinResult
from fakebroker.errors import ErrorCode


@dataclass(slots=True, eq=False)
class Batch:
    """One batch.

    Attributes:
        token: Who gets its answer; nobody, if it is None.
        members: As they were asked for.
        results: What each has been told so far, by its place.
    """

    token: object
    members: tuple[BatchMember, ...]
    results: dict[int, JoinResult] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return len(self.results) == len(self.members)

    def result(self) -> BatchResult:
        """The one answer: the generation is that of its leader, if it is in the batch, and else of the first."""
        results = tuple(self.results[index] for index in range(len(self.members)))
        joined = [result for result in results if not result.error and result.generation_id >= 0]
        leading = [result for result in joined if result.members]
        generation = next(iter([*leading, *joined]), JoinResult(ErrorCode.NONE))
        return BatchResult(generation, self.members, results)


@dataclass(slots=True, eq=False)
class Seat:
    """The place of one member in a batch."""

    batch: Batch
    index: int


def drop(token: object, answer: Callable[[object, JoinResult], None]) -> None:
    """Ends a join in whose place another of the same member has come: one alone is never answered, as in Kafka."""
    if isinstance(token, Seat):
        answer(token, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS))
