"""Batch joins in one's hand: short calls for what `CoordinatorHarness` has no words for (KAFKA-8397)."""

from dataclasses import dataclass
from typing import Any

from fakebroker.coordinator.group.api import JoinResult
from fakebroker.coordinator.group.batch_join.batch import BatchJoin, BatchMember, BatchResult
from fakebroker.coordinator.group.batch_join.join_batch import join_batch
from fakebroker.errors import ErrorCode
from tests.support.coordinator.coordinator_harness import RANGE, REBALANCE_MS, SESSION_MS, Call, CoordinatorHarness

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(eq=False)
class BatchCall(Call):
    """A batch that was sent; it is its own token."""

    @property
    def batch(self) -> BatchResult:
        assert isinstance(self.result, BatchResult), "not answered"
        return self.result

    @property
    def results(self) -> tuple[JoinResult, ...]:
        return self.batch.results

    @property
    def errors(self) -> list[ErrorCode]:
        return [result.error for result in self.results]

    @property
    def member_ids(self) -> list[str]:
        return [result.member_id for result in self.results]

    @property
    def generation_id(self) -> int:
        return self.batch.generation.generation_id


def expected(instance_id: str | None, member_id: str = "") -> BatchMember:
    """One that is only to be expected."""
    return BatchMember(member_id=member_id, instance_id=instance_id, protocols=())


def joining(member_id: str = "", instance_id: str | None = None, protocols: Protocols = RANGE) -> BatchMember:
    return BatchMember(member_id=member_id, instance_id=instance_id, protocols=protocols)


def batch(driver: CoordinatorHarness, *members: BatchMember, **options: Any) -> BatchCall:
    """A JoinGroup of version 10."""
    call = BatchCall()
    request = BatchJoin(
        client_id=options.pop("client_id", "batcher"),
        client_host="/127.0.0.1",
        session_timeout_ms=options.pop("session_ms", SESSION_MS),
        rebalance_timeout_ms=options.pop("rebalance_ms", REBALANCE_MS),
        protocol_type=options.pop("protocol_type", "consumer"),
        members=members,
    )
    join_batch(driver.coordinator, options.pop("group_id", "g"), request, call, driver.now_ms)
    assert not options, options
    driver.settle()
    return call


def register(driver: CoordinatorHarness, *instance_ids: str, **options: Any) -> list[str]:
    """Registers instances; gives the member ids that they will have."""
    call = batch(driver, *map(expected, instance_ids), **options)
    assert call.errors == [ErrorCode.NONE] * len(instance_ids)
    return call.member_ids
