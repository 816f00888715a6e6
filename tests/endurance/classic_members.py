"""Members of classic groups, which join, commit, leave and vanish; and what they check."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.endurance.clients import PAUSE_S, GroupOffsets, find_coordinator
from tests.endurance.loop import Ask, Client, HangUp, Loop, Steps

SESSION_MS = 10_000
REBALANCE_MS = 10_000
_PARKED_S = 40.0
_MAX_GENERATIONS = 20
_FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


@dataclass
class ClassicGroup:
    """A group, whose members are all in this process.

    Attributes:
        offsets: Its offsets.
        partitions: The partitions of its topic.
        assigned: What leaders have assigned, by generation and leader: partitions by member id. The newest ones.
    """

    offsets: GroupOffsets
    partitions: range
    assigned: dict[tuple[int, str], dict[str, list[int]]] = field(default_factory=dict)

    def assign(self, joined: Any) -> dict[str, list[int]]:
        """Return a new assignment of a generation, by its leader."""
        ids = sorted(each.member_id for each in joined.members)
        assigned = {member_id: [*self.partitions[index :: len(ids)]] for index, member_id in enumerate(ids)}
        self.assigned[joined.generation_id, joined.leader] = assigned
        while len(self.assigned) > _MAX_GENERATIONS:
            del self.assigned[next(iter(self.assigned))]
        return assigned


@dataclass
class _Member:
    """One member.

    Attributes:
        member_id: Its member id; "" before it has one.
        node_id: The coordinator.
        generation_id: Its generation.
        partitions: What it may use.
    """

    loop: Loop
    group: ClassicGroup
    random: Random
    member_id: str = ""
    node_id: int = 0
    generation_id: int = -1
    partitions: list[int] = field(default_factory=list)

    def join(self) -> Steps:
        """Join and sync, until the member has an assignment."""
        while True:
            if not self.node_id:
                self.node_id = yield from find_coordinator(self.loop, self.random, self.group.offsets.group_id)
            joined = yield Ask(self.node_id, self._join_request(), 9, _PARKED_S)
            if joined is None:
                self.node_id = 0
            elif joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            elif joined.error_code:
                yield from self.fail(joined.error_code)
            else:
                self.member_id, self.generation_id = joined.member_id, joined.generation_id
                if (yield from self._sync(joined)):
                    return

    def _join_request(self) -> JoinGroupRequest:
        metadata = encode_subscription([self.group.offsets.topic])
        return JoinGroupRequest(
            group_id=self.group.offsets.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )

    def _sync(self, joined: Any) -> Steps:
        """Send the assignment, if this is the leader, and receive the own one. Return whether there is one."""
        offsets = self.group.offsets
        assigned = self.group.assign(joined) if joined.leader == self.member_id else {}
        request = SyncGroupRequest(
            group_id=offsets.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=encode_assignment([(offsets.topic, each) for each in partitions])
                )
                for member_id, partitions in assigned.items()
            ],
        )
        synced = yield Ask(self.node_id, request, 5, _PARKED_S)
        if synced is None:
            self.node_id = 0
            return False
        if synced.error_code:
            yield from self.fail(synced.error_code)
            return False
        self.partitions = [partition for _, partition in decode_assignment(synced.assignment)]
        expected = self.group.assigned.get((self.generation_id, joined.leader))
        if expected is not None:
            text = f"{self.member_id} of generation {self.generation_id} has {self.partitions}, not {expected}"
            held = sorted(expected.get(self.member_id, [])) == sorted(self.partitions)
            self.loop.check("a member has what the leader has assigned", held, text)
        return True

    def fail(self, error: int) -> Steps:
        """React to an error."""
        if error in _FORGOTTEN:
            self.member_id = ""
        elif error != ErrorCode.REBALANCE_IN_PROGRESS:
            self.node_id = 0
            yield PAUSE_S

    def work(self, requests: int) -> Steps:
        """Send heartbeats, commits and fetches of offsets, until an error occurs."""
        for _ in range(requests):
            drawn, partition = self.random.random(), self.random.choice(self.partitions) if self.partitions else None
            if drawn < 0.6 or partition is None:
                request = HeartbeatRequest(
                    group_id=self.group.offsets.group_id, generation_id=self.generation_id, member_id=self.member_id
                )
                answer = yield Ask(self.node_id, request, 4)
                error = None if answer is None else answer.error_code
            elif drawn < 0.85:
                error = yield from self.group.offsets.commit(
                    self.node_id, self.member_id, self.generation_id, partition, 8
                )
            else:
                error = yield from self.group.offsets.fetch(self.node_id, [partition])
            if error is None:
                self.node_id = 0
            if error != 0:
                yield from self.fail(error or ErrorCode.NOT_COORDINATOR)
                return

    def leave(self) -> Steps:
        """Leave the group, and forget the member id."""
        request = LeaveGroupRequest(
            group_id=self.group.offsets.group_id, members=[MemberIdentity(member_id=self.member_id)]
        )
        yield Ask(self.node_id or 1, request, 5)
        self.member_id = ""


def classic_member(loop: Loop, group: ClassicGroup, seed: str) -> Client:
    """A member that joins, works for a while, and then leaves, vanishes or joins again, for ever."""
    member = _Member(loop, group, Random(seed))
    while True:
        yield from member.join()
        yield from member.work(member.random.randint(20, 300))
        drawn = member.random.random()
        if drawn < 0.4:
            yield from member.leave()
            yield member.random.uniform(0, 3)
        elif drawn < 0.45:
            member.member_id = ""
            yield HangUp()
            yield member.random.uniform(0, 2 * SESSION_MS / 1000)
