"""What clients share: finding coordinators and leaders, and the offsets that a group may have."""

from collections.abc import Iterable
from random import Random

from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.endurance.loop import Ask, Loop, Steps

PAUSE_S = 0.1
"""Between two attempts."""


def find_coordinator(loop: Loop, random: Random, key: str, key_type: int = 0) -> Steps:
    """Return the node id of a coordinator."""
    while True:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        answer = yield Ask(random.choice(loop.node_ids), request, 4)
        if answer is not None and answer.coordinators[0].error_code == 0:
            return answer.coordinators[0].node_id
        yield PAUSE_S


def find_leader(loop: Loop, random: Random, topic: str, partition: int) -> Steps:
    """Return the node id of the leader of a partition."""
    while True:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = yield Ask(random.choice(loop.node_ids), request, 9)
        if answer is not None:
            for each in answer.topics[0].partitions:
                if each.partition_index == partition and each.leader_id >= 0:
                    return each.leader_id
        yield PAUSE_S


class GroupOffsets:
    """The offsets that a group has committed. Each commit has a new offset.

    A commit without a response, or with an error, may have taken effect: then both offsets are possible.

    Args:
        loop: Gets the checks.
        group_id: The group.
        topic: The topic of all partitions.
    """

    def __init__(self, loop: Loop, group_id: str, topic: str) -> None:
        self._loop, self.group_id, self.topic = loop, group_id, topic
        self._possible: dict[int, set[int]] = {}
        self._in_flight: dict[int, set[int]] = {}
        self._epochs: dict[int, int] = {}
        self._next = 0

    def commit(self, node_id: int, member_id: str, epoch: int, partition: int, version: int) -> Steps:
        """Commit the next offset, and return the error; None if there was no response.

        Checks that no member of an earlier generation can commit after one of a later generation.
        """
        self._next += 1
        offset, newest_epoch = self._next, self._epochs.get(partition, 0)
        possible = self._possible.setdefault(partition, {-1})
        in_flight = self._in_flight.setdefault(partition, set())
        possible.add(offset)
        in_flight.add(offset)
        committed = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[committed])],
        )
        answer = yield Ask(node_id, request, version)
        in_flight.discard(offset)
        if answer is None:
            return None
        error = answer.topics[0].partitions[0].error_code
        if error == 0:
            text = f"group {self.group_id} {self.topic}-{partition}: commit with {epoch} after one with {newest_epoch}"
            self._loop.check("a commit of a former owner is refused", epoch >= newest_epoch, text)
            self._epochs[partition] = max(epoch, newest_epoch)
            possible.intersection_update({offset} | in_flight | {each for each in possible if each > offset})
        return error

    def fetch(self, node_id: int, partitions: Iterable[int]) -> Steps:
        """Fetch the committed offsets, and return the error; None if there was no response.

        Checks that no acknowledged commit is lost.
        """
        before = {partition: frozenset(self._possible.setdefault(partition, {-1})) for partition in partitions}
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[*before])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)])
        answer = yield Ask(node_id, request, 8)
        if answer is None:
            return None
        group = answer.groups[0]
        if group.error_code or any(each.error_code for topic in group.topics for each in topic.partitions):
            return group.error_code or -1
        for topic in group.topics:
            for each in topic.partitions:
                allowed = before[each.partition_index] | self._possible[each.partition_index]
                place = f"group {self.group_id} {self.topic}-{each.partition_index}"
                text = f"{place}: offset {each.committed_offset}, expected one of {sorted(allowed)[:5]}"
                self._loop.check("an acknowledged commit is not lost", each.committed_offset in allowed, text)
        return 0
