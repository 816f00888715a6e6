"""Who is expected in a group, and who waits for them (KAFKA-8397). Data; what becomes of it is `expecting`'s."""

from dataclasses import dataclass, field
from math import inf

from fakebroker.coordinator.group.api import JoinGroup


@dataclass(slots=True, eq=False)
class Expected:
    """An instance that was registered beforehand and is no member yet.

    Attributes:
        member_id: The id that it will have.
        rebalance_timeout_ms: Given with the registration: so long it may stay away.
        deadline_ms: When it is not expected any more, unless somebody waits by then.
    """

    instance_id: str
    member_id: str
    rebalance_timeout_ms: int
    deadline_ms: float


@dataclass(slots=True, eq=False)
class Arrival:
    """A join that is to be one of several.

    Attributes:
        token: Who gets the answer.
        new_member_id: The id that it gets if it is that of a new member or of one without its id.
    """

    request: JoinGroup
    token: object
    new_member_id: str

    @property
    def member_id(self) -> str:
        return self.request.member_id or self.new_member_id


@dataclass(slots=True, eq=False)
class Expectations:
    """Who is expected in one group, and the joins that wait until all of them have come.

    The group does not know those who wait: what it is and does, it is and does without them.

    Attributes:
        instances: By instance id, in the order of registration.
        waiting: Joins by member id, in order of arrival; most of them of instances that are expected.
        gathering_deadline_ms: How long they wait; infinite if there are none.
    """

    instances: dict[str, Expected] = field(default_factory=dict)
    waiting: dict[str, Arrival] = field(default_factory=dict)
    gathering_deadline_ms: float = inf

    @property
    def missing(self) -> list[Expected]:
        """Those who have not come yet."""
        return [expected for expected in self.instances.values() if expected.member_id not in self.waiting]

    def deadline_ms(self) -> float:
        """When the waiting is over or, while nobody waits, when the next one is not expected any more."""
        if self.waiting:
            return self.gathering_deadline_ms
        return min((expected.deadline_ms for expected in self.instances.values()), default=inf)

    def find(self, member_id: str, instance_id: str | None) -> Expected | None:
        """Who is meant by an instance id, or else by a member id."""
        if instance_id is not None:
            return self.instances.get(instance_id)
        return next((expected for expected in self.instances.values() if expected.member_id == member_id), None)
