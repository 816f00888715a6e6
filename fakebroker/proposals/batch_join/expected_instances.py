"""Instances expected in a group, and the joins held back until all of them have arrived (KAFKA-8397). Plain data."""

from dataclasses import dataclass, field
from math import inf

from fakebroker.coordinator.context import RequestContext
from fakebroker.protocol.messages.join_group import JoinGroupRequest


@dataclass(slots=True, eq=False)
class ExpectedInstance:
    """A static instance that was registered in advance and has not become a member yet.

    Attributes:
        member_id: Member id reserved for the instance.
        rebalance_timeout_ms: How long the registration lasts without a join.
        deadline_ms: When the registration expires, unless a join is waiting by then.
    """

    instance_id: str
    member_id: str
    rebalance_timeout_ms: int
    deadline_ms: float


@dataclass(slots=True, eq=False)
class WaitingJoin:
    """A join that waits, or is handled, together with other joins.

    Attributes:
        context: The context of the request, or a `BatchContext`.
        new_member_id: The new id of a member that has joined without an id; else "".
    """

    request: JoinGroupRequest
    context: RequestContext
    new_member_id: str

    @property
    def member_id(self) -> str:
        return self.request.member_id or self.new_member_id


@dataclass(slots=True, eq=False)
class ExpectedInstances:
    """The instances that are expected in one group, and the joins that wait until all of them have joined.

    Waiting joins do not affect the state of the classic group.

    Attributes:
        instances: By instance id, in the order of registration.
        waiting: Joins by member id, in order of arrival. They belong to expected instances, and to other members of the
            same batches.
        waiting_deadline_ms: When the joins stop waiting; infinite if there are none.
    """

    instances: dict[str, ExpectedInstance] = field(default_factory=dict)
    waiting: dict[str, WaitingJoin] = field(default_factory=dict)
    waiting_deadline_ms: float = inf

    @property
    def missing(self) -> list[ExpectedInstance]:
        """The expected instances without a waiting join."""
        return [instance for instance in self.instances.values() if instance.member_id not in self.waiting]

    def deadline_ms(self) -> float:
        """Return when the joins stop waiting; without waiting joins, when the next registration expires."""
        if self.waiting:
            return self.waiting_deadline_ms
        return min((instance.deadline_ms for instance in self.instances.values()), default=inf)

    def find(self, member_id: str, instance_id: str | None) -> ExpectedInstance | None:
        """Return an expected instance by its instance id, or by its member id if `instance_id` is None."""
        if instance_id is not None:
            return self.instances.get(instance_id)
        return next((instance for instance in self.instances.values() if instance.member_id == member_id), None)
