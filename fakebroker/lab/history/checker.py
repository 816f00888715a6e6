"""Checks the invariants that a design can promise, in one run."""

import msgspec

from fakebroker.lab.invariants import ALL_OWNED, LIVE_STAYS, NONE_SKIPPED, ONE_OWNER
from fakebroker.lab.script import BrokerEvent, MemberEvent, TopicEvent
from fakebroker.lab.world.members import MemberProcess
from fakebroker.lab.world.world import World
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition


class Violation(msgspec.Struct, frozen=True):
    """An invariant does not hold.

    Attributes:
        invariant: Its name.
        at_ms: When, from the start of the run.
        what: What has happened, in words.
    """

    invariant: str
    at_ms: float
    what: str


class InvariantChecker:
    """Checks the invariants in one run; a `world.Observer`.

    Attributes:
        violations: At most one of each invariant, the first.
    """

    def __init__(self) -> None:
        self.violations: dict[str, Violation] = {}
        self._disturbed: set[int] = set()
        self._removed: set[int] = set()
        self._is_disturbed = False  # A broker has failed.

    def watch(self, world: World) -> None:
        """Check this run; call it before the run."""
        self._world = world

    def finish(self) -> None:
        """Check what has to hold at the end of the run."""
        at_ms = self._world.script.duration_ms
        for group in self._world.ownership.groups.values():
            if group.live and not group.is_complete:
                self._violated(ALL_OWNED, at_ms, f"group {group.group_id} is not complete")
        skipped = self._world.ownership.repeated_and_lost()[1]
        if skipped:
            self._violated(NONE_SKIPPED, at_ms, f"{skipped} records were skipped")

    def _violated(self, invariant: str, at_ms: float, what: str) -> None:
        self.violations.setdefault(invariant, Violation(invariant, at_ms, what))

    # world.Observer

    def sent(self, at_ms: float, member: MemberProcess, message: Message, node_id: int, *, to_member: bool) -> None:
        """Messages have no part in invariants."""

    def happened(self, at_ms: float, event: MemberEvent | BrokerEvent | TopicEvent) -> None:
        match event:
            case MemberEvent(do="start"):
                pass
            case MemberEvent():
                self._disturbed.add(event.member)
            case BrokerEvent():
                self._is_disturbed = True

    def changed(self, at_ms: float, member: MemberProcess) -> None:
        if not member.owned:  # It knows that it was removed. Until then it may get an assignment that was on its way.
            self._removed.discard(member.number)
        self._check_owners(at_ms, member.group_id)

    def expelled(self, at_ms: float, member: MemberProcess) -> None:
        self._removed.add(member.number)
        is_running = member.member is not None
        if is_running and not self._is_disturbed and member.number not in self._disturbed:
            self._violated(LIVE_STAYS, at_ms, f"member {member.number} was removed, but it runs")

    def _check_owners(self, at_ms: float, group_id: str) -> None:
        group = self._world.ownership.groups[group_id]
        if not group.doubles:
            return
        owners: dict[TopicPartition, list[int]] = {}
        for number, owned in group.owned.items():
            if number not in self._removed:
                for partition in owned:
                    owners.setdefault(partition, []).append(number)
        for (topic, index), numbers in owners.items():
            if len(numbers) > 1:
                names = " and ".join(f"member {number}" for number in numbers)
                self._violated(ONE_OWNER, at_ms, f"{topic}-{index} is owned by {names}")
                return
