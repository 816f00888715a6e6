"""Members of consumer groups (KIP-848), and what they check."""

from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from tests.endurance.clients import PAUSE_S, GroupOffsets, find_coordinator
from tests.endurance.loop import Ask, Client, HangUp, Loop, Steps

REBALANCE_MS = 60_000
_VANISHED_S = 3.0
_LEAVING, _JOINING = -1, 0
_FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


@dataclass
class ConsumerGroup:
    """A group, whose members are all in this process.

    Attributes:
        offsets: Its offsets.
        owners: The members that use a partition, as they know themselves.
    """

    offsets: GroupOffsets
    owners: dict[int, str] = field(default_factory=dict)

    def release(self, member_id: str, keep: frozenset[int] = frozenset()) -> None:
        """A member stops using its partitions, except some."""
        for partition in [each for each, owner in self.owners.items() if owner == member_id and each not in keep]:
            del self.owners[partition]


@dataclass
class _Member:
    loop: Loop
    group: ConsumerGroup
    random: Random
    member_id: str = ""
    node_id: int = 0
    epoch: int = _JOINING
    owned: frozenset[int] = frozenset()
    topic_id: bytes = bytes(16)

    def start(self) -> None:
        """Begin as a new member."""
        self.member_id, self.epoch, self.owned = str(UUID(int=self.random.getrandbits(128))), _JOINING, frozenset()

    def heartbeat(self) -> Steps:
        """Send a heartbeat, and take or give up partitions. Return the error; None if there was no response."""
        is_full = self.epoch == _JOINING or self.random.random() < 0.5
        owned = [HeartbeatTopicPartitions(topic_id=self.topic_id, partitions=sorted(self.owned))] if self.owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.offsets.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            subscribed_topic_names=[self.group.offsets.topic] if is_full else None,
            topic_partitions=owned if is_full else None,
        )
        answer = yield Ask(self.node_id, request, 1)
        if answer is None:
            return None
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self._take(answer.assignment)
                # What was given up is confirmed at once, so that the others need not wait.
                is_full = False
        return answer.error_code

    def _take(self, assignment: Any) -> None:
        """Give up what is no longer assigned, and use what is."""
        assigned: set[int] = set()
        for topic in assignment.topic_partitions:
            self.topic_id = topic.topic_id
            assigned.update(topic.partitions)
        self.group.release(self.member_id, frozenset(assigned))
        for partition in assigned - self.owned:
            owner = self.group.owners.get(partition)
            text = f"group {self.group.offsets.group_id}: {partition} is given to {self.member_id}, {owner} has it"
            self.loop.check("a partition has one owner", owner in (None, self.member_id), text)
            self.group.owners[partition] = self.member_id
        self.owned = frozenset(assigned)

    def end(self) -> None:
        """Forget the membership."""
        self.group.release(self.member_id)
        self.start()

    def step(self) -> Steps:
        """Send one request. Return the error; None if there was no response."""
        drawn = self.random.random()
        if drawn < 0.6 or not self.owned or self.epoch <= 0:
            return (yield from self.heartbeat())
        partition = self.random.choice(sorted(self.owned))
        if drawn < 0.85:
            return (yield from self.group.offsets.commit(self.node_id, self.member_id, self.epoch, partition, 9))
        return (yield from self.group.offsets.fetch(self.node_id, [partition]))


def consumer_member(loop: Loop, group: ConsumerGroup, seed: str) -> Client:
    """A member that joins, works for a while, and then leaves or vanishes, for ever."""
    member = _Member(loop, group, Random(seed))
    member.start()
    while True:
        for _ in range(member.random.randint(50, 500)):
            if not member.node_id:
                member.node_id = yield from find_coordinator(loop, member.random, group.offsets.group_id)
            error = yield from member.step()
            if error is None or error not in (0, ErrorCode.STALE_MEMBER_EPOCH, *_FENCED):
                member.node_id = 0
                yield PAUSE_S
            elif error in _FENCED:
                member.end()
        if member.epoch <= 0:
            continue
        group.release(member.member_id)
        if member.random.random() < 0.8 and member.node_id:
            member.epoch, member.owned = _LEAVING, frozenset()
            yield from member.heartbeat()
        else:
            yield HangUp()
        member.end()
        yield member.random.uniform(0, _VANISHED_S)
