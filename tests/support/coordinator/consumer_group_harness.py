"""One coordinator of consumer groups (KIP-848) with its log, topics and clock; invariants hold after every step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any
from unittest.mock import patch

from fakebroker.cluster.logs.coordinator_records import parse_record, record_key, record_value
from fakebroker.coordinator.config import CoordinatorConfig
from fakebroker.coordinator.consumer.config import ConsumerGroupConfig
from fakebroker.coordinator.consumer.group import ConsumerGroup
from fakebroker.coordinator.consumer.member import ConsumerGroupMember, Partitions
from fakebroker.coordinator.consumer.states import UNREVOKED_PARTITIONS
from fakebroker.coordinator.consumer.subscriptions import Subscriptions, TopicMetadata, topic_hash
from fakebroker.coordinator.context import OwnContext, RequestContext
from fakebroker.coordinator.group_controls import GroupControls
from fakebroker.coordinator.group_coordinator import Coordinator
from fakebroker.coordinator.group_history import ChangedGroup, History, MemberChange, Moment, RecordedMoment
from fakebroker.coordinator.history import DEAD
from fakebroker.coordinator.records import KeyedRecord, Record, TransactionalRecord, TransactionEnd
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)

START_MS = 1_700_000_000_000.0
SESSION_MS = 45_000
REBALANCE_MS = 60_000
GROUP = "g"

Owned = Mapping[str, set[int]]
"""Partitions by the name of their topic."""


class FakeTopics:
    """Topics that tests change."""

    def __init__(self, **topics: int) -> None:
        self.version = self.created_version = 0
        self._topics: dict[str, TopicMetadata] = {}
        self._racks: dict[str, tuple[str, ...]] = {}
        self._ids = count(1)
        for name, partitions in topics.items():
            self.create(name, partitions)

    def create(self, name: str, partitions: int) -> None:
        self._topics[name] = TopicMetadata(next(self._ids).to_bytes(16, "big"), name, partitions)
        self.version += 1
        self.created_version = self.version

    def move(self, name: str, *racks: str) -> None:
        """Let all partitions of a topic have one replica in each of some racks."""
        self._racks[name] = racks
        self.version += 1

    def grow(self, name: str, partitions: int) -> None:
        self._topics[name] = self._topics[name]._replace(partition_count=partitions)
        self.version += 1

    def delete(self, name: str) -> None:
        del self._topics[name]
        self.version += 1

    def names(self) -> list[str]:
        return list(self._topics)

    def all(self) -> list[TopicMetadata]:
        return list(self._topics.values())

    def named(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def hash_of(self, name: str) -> int:
        topic = self._topics[name]
        return topic_hash(topic, [self._racks.get(name, ())] * topic.partition_count)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((each.name for each in self._topics.values() if each.topic_id == topic_id), None)

    def ids(self, partitions: Owned) -> dict[bytes, frozenset[int]]:
        return {self._topics[name].topic_id: frozenset(indexes) for name, indexes in partitions.items()}

    def by_name(self, partitions: Mapping[bytes, frozenset[int]]) -> dict[str, set[int]]:
        return {self.name_of(topic_id) or topic_id.hex(): set(indexes) for topic_id, indexes in partitions.items()}


class ConsumerGroupHarness:
    """A coordinator that leads all offsets partitions. Member ids are those of the caller, or end in a number.

    Records pass through their encoding, so that a failover loads what Kafka's bytes contain.

    Attributes:
        log: All appended records, decoded.
        batches: The records of each append.
        append_error: The error of all appends, if set.
        controls: The manual settings by group id.
        history: The history of the groups. `check` compares it with them.
    """

    def __init__(self, topics: FakeTopics | None = None, **config: Any) -> None:
        self.topics = topics or FakeTopics(orders=6)
        self.now_ms = START_MS
        self.log: list[Record] = []
        self.batches: list[list[Record]] = []
        self.append_error: ErrorCode | None = None
        self.config = CoordinatorConfig(
            consumer=ConsumerGroupConfig(topics=self.topics, **{"assignment_interval_ms": 0, **config}),
            offsets_topic_num_partitions=1,
        )
        self._ids = count(1)
        self._coordinator_id = 0
        self.controls: dict[str, GroupControls] = {}
        self.history = History()
        self.history.name_of = self.topics.name_of
        self.history.listeners.append(self._on_moments)
        self._last: dict[str, tuple[str, int, int | None, dict[str, MemberChange | None]]] = {}
        self.coordinator = self._new_coordinator()
        self.coordinator.lead(0, self.now_ms)

    def _new_coordinator(self) -> Coordinator:
        self._coordinator_id += 1

        def record(group: ChangedGroup, now_ms: float) -> None:
            self.history.record(group, now_ms, self._coordinator_id)

        return Coordinator(
            self.config, lambda: f"00000000-0000-0000-0000-{next(self._ids):012d}", self._append, self.controls, record
        )

    def _on_moments(self, group_id: str, moments: Sequence[RecordedMoment]) -> None:
        """Follow the history: what each member has according to its moments."""
        for moment in map(RecordedMoment.moment, moments):
            state, _, _, members = (DEAD, 0, None, {}) if moment.state_from == DEAD else self._last[group_id]
            assert moment.state_from == state, moment
            changes = {each.member_id: each for each in moment.changes}
            followed = {each: changes.get(each, members.get(each)) for each in moment.members}
            assert {*moment.joined, *changes} <= followed.keys()
            assert {*members} - {*followed} == set(moment.left), moment
            self._last[group_id] = moment.state_to, moment.generation_id, moment.assignment_epoch, followed

    def _append(self, partition: int, records: tuple[Record, ...]) -> ErrorCode:
        if self.append_error is None:
            self.batches.append([])
            for record in records:
                if not isinstance(record, TransactionalRecord | TransactionEnd):
                    parsed = parse_record(record_key(record), record_value(record))
                    assert parsed == record, "the encoding lost something"
                self.batches[-1].append(record)
            self.log += self.batches[-1]
        return self.append_error or ErrorCode.NONE

    def keyed(self, batch: int = -1) -> list[KeyedRecord]:
        """Return the records of a batch, without ends of transactions."""
        return [record for record in self.batches[batch] if not isinstance(record, TransactionEnd)]

    # Requests

    def send(
        self, member_id: str = "", epoch: int = 0, owned: Owned | None = None, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; one with epoch 0 has everything that a member that joins has to report.

        Fields are those of the request and of its context, except: `reported` are its partitions by the id of their
        topic, and `requires_member_id` makes it a request of version 1. In version 0, the coordinator chooses ids.
        """
        request, context = self._request(member_id, epoch, owned, **fields)
        consumer, appends = self.coordinator.groups.consumer, len(self.batches)
        short = consumer.extend_session(request, context, self.now_ms)
        with patch.object(consumer, "extend_session", return_value=None):
            result = self.coordinator.consumer_group_heartbeat(request, context, self.now_ms)
        if short is not None:
            assert (result, len(self.batches)) == (short, appends), "the short path differs from the usual one"
        self.check()
        return result

    def extend_session(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse | None:
        """Send a heartbeat on the short path only; return its response, or None if it needs more."""
        return self.coordinator.groups.consumer.extend_session(*self._request(member_id, epoch, **fields), self.now_ms)

    def _request(
        self,
        member_id: str,
        epoch: int,
        owned: Owned | None = None,
        *,
        requires_member_id: bool = False,
        client_id: str = "client",
        **fields: Any,
    ) -> tuple[ConsumerGroupHeartbeatRequest, RequestContext]:
        if epoch == 0:
            joining = {"subscribed_topic_names": ("orders",), "rebalance_timeout_ms": REBALANCE_MS, "reported": {}}
            fields = joining | fields
        if owned is not None:
            fields["reported"] = self.topics.ids(owned)
        if fields.get("subscribed_topic_names") is not None:
            fields["subscribed_topic_names"] = list(fields["subscribed_topic_names"])
        if (reported := fields.pop("reported", None)) is not None:
            fields["topic_partitions"] = [
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in reported.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            **{"group_id": GROUP, **fields}, member_id=member_id, member_epoch=epoch
        )
        return request, OwnContext(int(requires_member_id), client_id, "/127.0.0.1")

    def stay(self, member_id: str, owned: Owned | None = None, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat in the epoch of the member."""
        return self.send(member_id, self.member(member_id).member_epoch, owned, **fields)

    def settle(self, *member_ids: str) -> None:
        """Let members give up what they have to and get the rest, until the group is stable."""
        for _ in range(10):
            for member_id in member_ids or tuple(self.group.members):
                self.stay(member_id, self.assigned(member_id))
        assert self.group.state.value == "Stable", self.group.members

    def advance(self, ms: float) -> None:
        self.now_ms += ms
        self.coordinator.queue.run(self.now_ms)
        self.check()

    def fail_over(self) -> None:
        """Replace the coordinator by one that loads the log."""
        before = self.coordinator.groups.consumer.get(GROUP)
        self.coordinator = self._new_coordinator()
        self.coordinator.start_loading(0)
        self.coordinator.finish_loading(0, self.log, self.now_ms)
        if before is not None:
            assert contents(self.group) == contents(before), "the failover changed the group"
        self.check()

    # State

    @property
    def group(self) -> ConsumerGroup:
        return self.coordinator.groups.consumer[GROUP]

    def member(self, member_id: str) -> ConsumerGroupMember:
        return self.group.members[member_id]

    def assigned(self, member_id: str) -> dict[str, set[int]]:
        return self.topics.by_name(self.member(member_id).assigned)

    def pending(self, member_id: str) -> dict[str, set[int]]:
        return self.topics.by_name(self.member(member_id).pending_revocation)

    def assignment(self, result: ConsumerGroupHeartbeatResponse) -> dict[str, set[int]] | None:
        assigned = assigned_partitions(result)
        return None if assigned is None else self.topics.by_name(assigned)

    def check(self) -> None:
        """Check the invariants of all groups."""
        for group in self.coordinator.groups.consumer:
            check_group(group)
            is_stable = all(each.is_reconciled_to(group.assignment_epoch) for each in group.members.values())
            assert is_stable == (group.state.value == "Stable") or group.state.value in ("Empty", "Assigning")
            state, epoch, assignment_epoch, members = self._last[group.group_id]
            assert (state, epoch, assignment_epoch) == (group.state.value, group.group_epoch, group.assignment_epoch)
            assert list(members) == list(group.members)
            for member_id, change in members.items():
                member = group.members[member_id]
                expected = member.member_epoch, member.state.name, sum(map(len, member.assigned.values()))
                assert change is not None, "the moment of its join has the member"
                assert (change.member_epoch, change.state, len(change.assigned)) == expected
                assert len(change.pending_revocation) == sum(map(len, member.pending_revocation.values()))

    def moments(self) -> tuple[Moment, ...]:
        """Return the moments of the group."""
        return self.history.of(GROUP)


def assigned_partitions(result: ConsumerGroupHeartbeatResponse) -> Partitions | None:
    """Return the assignment in a response; None if it has none."""
    if result.assignment is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in result.assignment.topic_partitions}


def contents(group: ConsumerGroup) -> tuple[object, ...]:
    """Return what the log has of a group."""
    epochs = group.group_epoch, group.assignment_epoch, group.target_timestamp_ms, group.metadata_hash
    return (
        *epochs,
        group.members,
        group.target,
        group.static_members,
        group.subscriptions,
        group.votes,
        list(group.offsets),
    )


def check_group(group: ConsumerGroup) -> None:
    """Check that each partition has one owner, in its epoch, and that epochs, counts and timers fit together."""
    recounted = Subscriptions().after([], group.members.values())
    assert (group.subscriptions.names, group.subscriptions.regexes) == (recounted.names, recounted.regexes)
    assert group.subscriptions.resolved.keys() <= recounted.regexes.keys()
    owners: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        assert member.member_epoch <= group.assignment_epoch, f"{member} is ahead of the assignment"
        is_fenced = member.member_epoch == 0 and not member.assigned and member.previous_epoch > 0
        assert member.member_epoch > 0 or member.member_epoch == -2 or is_fenced, member
        assert bool(member.pending_revocation) <= (member.state is UNREVOKED_PARTITIONS), member
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, indexes in partitions.items():
                for index in indexes:
                    owner = owners.setdefault((topic_id, index), member.member_id)
                    assert owner == member.member_id, f"{topic_id.hex()}-{index} has two owners"
                    assert group.partition_epoch(topic_id, index) == member.member_epoch
        for place, epoch in member.older_epochs.items():
            assert owners.get(place) == member.member_id, f"{member} has an epoch of a partition that it does not have"
            assert epoch > 0, member
            assert epoch < member.member_epoch or member.member_epoch <= 0, member
    subscriptions = Subscriptions()
    for member in group.members.values():
        subscriptions.add(member)
    assert (group.subscriptions.names, group.subscriptions.regexes) == (subscriptions.names, subscriptions.regexes)
    assert group.votes == Counter(each.server_assignor for each in group.members.values() if each.server_assignor)
    assert group.session_deadlines.keys() == group.members.keys()
    assert group.rebalance_deadlines.keys() <= group.members.keys()
    assert group.target.keys() <= group.members.keys()
    assert group.assignment_epoch <= group.group_epoch
    assert set(group.static_members.values()) <= group.members.keys()
    assert group.deadline_ms <= group.earliest_deadline()
