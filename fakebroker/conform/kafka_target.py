"""The target of one transcript that is played on a Kafka cluster, in real time (trio).

A transcript expects that broker 1 coordinates its groups, that a session of 10 s ends after 10 s, and that it is alone.
So its names are chosen by their coordinator (`names.py`), `at +3s` waits, and its topics and groups are its own. What a
coordinator does after its response, such as writing markers, is waited for: requests that only read are repeated until
they return what is expected, for a while.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Protocol

import trio

from fakebroker.cluster.acl_rules import AclRule
from fakebroker.cluster.inspect.timelines import Timeline
from fakebroker.cluster.inspect.views import GroupView, MemberView, PendingOffsetView
from fakebroker.cluster.topics import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fakebroker.conform.members import Members
from fakebroker.conform.names import Names
from fakebroker.conform.player import SentRequest
from fakebroker.conform.raw_cluster import KafkaRequest, RawCluster
from fakebroker.conform.texts import group_text
from fakebroker.conform.transcript import Step, Transcript
from fakebroker.coordinator.consumer.records import partitions_in
from fakebroker.coordinator.consumer.states import MemberState
from fakebroker.coordinator.partitions import partition_for
from fakebroker.coordinator.records import Record, TransactionalRecord, TransactionEnd
from fakebroker.errors import FakebrokerError
from fakebroker.protocol.consumer_protocol import encode_assignment
from fakebroker.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from fakebroker.protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.end_txn import EndTxnRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import TopicPartition, partition_names

PARKED_AFTER_S = 0.06
"""How long a request without an answer is waited for before it counts as parked."""
ANSWERED_WITHIN_S = 8.0
"""How long an expected answer is waited for."""
REPEATED_FOR_S = 4.0
"""How long a request that only reads is repeated."""
_MARKERS_S = 2.0
_AFTER_A_MOVE_S = 0.15
_AFTER_A_CHANGE_S = 0.4
"""After this time the coordinators of groups know of new and deleted topics, too."""
_MARGIN_MS = 40
"""How much later than a deadline the next step is."""
_EARLY_MS = 250
"""How much earlier than the millisecond before a deadline a step is, since real steps take time."""

_READS = {
    *("fetch", "find", "describe", "list", "consumers", "offset", "producers", "transactions", "transaction", "locate"),
    *("features", "group", "read"),
}
_RETRIABLE = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "CONCURRENT_TRANSACTIONS",
    "UNSTABLE_OFFSET_COMMIT",
    "NOT_LEADER_OR_FOLLOWER",
)
"""Errors after which a client sends its request again."""
_CANDIDATES = 40
_MAX_NUMBER = 100_000


class BrokerControl(Protocol):
    """Stops and starts the brokers of a cluster."""

    def stop(self, node_id: int) -> Awaitable[None]: ...

    def start(self, node_id: int) -> Awaitable[None]: ...


@dataclass(slots=True)
class _Node:
    """A broker, by its node id in the transcript."""

    node_id: int
    up: bool = True


class KafkaTarget:
    """A Kafka cluster as the target of one transcript.

    Args:
        cluster: The cluster.
        transcript: The transcript.
        base: The start of the names of its topics, groups and transactional ids: letters, digits and dots.
        nodes: The node ids of its brokers, in the order of the transcript's.
        reserved: The partitions of `__consumer_offsets` for transcripts that move coordinators.
        control: Stops and starts brokers; None if they cannot be stopped.
        punctual: Whether times count from the start of the transcript, even if steps have taken longer.
    """

    def __init__(
        self,
        cluster: RawCluster,
        transcript: Transcript,
        base: str,
        nodes: Sequence[int],
        reserved: "Reserved",
        control: BrokerControl | None = None,
        *,
        punctual: bool = False,
    ) -> None:
        self._cluster, self._transcript, self._control = cluster, transcript, control
        self.names = Names(base, dict(enumerate(nodes, 1)), uses_empty_group=transcript.uses_empty_group)
        self._nodes = {node_id: _Node(node_id) for node_id in self.names.nodes}
        self._reserved, self._punctual = reserved, punctual
        self._topic_ids: dict[str, bytes] = {}
        self._coordinators: dict[tuple[str, int], int] = {}
        self._activity = trio.Event()
        self._repeated_since = 0.0
        self._start_s = self._anchor_s = 0.0
        self._now_ms = self._anchor_ms = 0
        self._created: dict[str, int] = {}
        self._ending: str | None = None
        self.log: list[str] = []

    def replicas_of(self, name: str, partitions: int) -> tuple[str, list[list[int]]]:
        """Return the name of a topic in the cluster, and the replicas of its partitions.

        The leaders are consecutive brokers, as in a fake cluster.
        """
        shift = len(self._created)
        nodes = list(self.names.nodes.values())[: self._transcript.brokers]
        # Without another replica a partition has no leader while its broker is stopped.
        wanted = int(str(self._transcript.config.get("default.replication.factor", 3)))
        count = 1 if self._control is not None else min(len(nodes), wanted)
        self._created[name] = partitions
        return self.names.topic(name), [
            [nodes[(shift + index + each) % len(nodes)] for each in range(count)] for index in range(partitions)
        ]

    async def begin(self) -> None:
        """Let the time of the transcript begin."""
        await self._learn_topics()
        self._start_s = self._anchor_s = trio.current_time()

    async def _learn_topics(self) -> None:
        found = await self._cluster.topics([self.names.topic(name) for name in self._created])
        self._topic_ids |= {self.names.topic_name(real): topic.topic_id for real, topic in found.items()}

    async def _create_topic(self, name: str, partitions: int) -> None:
        await self._cluster.create_topics(dict([self.replicas_of(name, partitions)]))
        await self._learn_topics()

    # Look-ups

    def brokers(self) -> Sequence[_Node]:
        return list(self._nodes.values())

    async def coordinator_of(self, group_id: str) -> int:
        return await self._coordinator("" if group_id == '""' else group_id, 0)

    async def transaction_coordinator_of(self, transactional_id: str) -> int:
        return await self._coordinator(transactional_id, 1)

    async def _coordinator(self, name: str, key_type: int) -> int:
        found = self._coordinators.get((name, key_type), NO_LEADER)
        if found == NO_LEADER:
            if self.names.is_missing(name, key_type):
                await self._choose(name, key_type)
            real = (self.names.transactional_id if key_type else self.names.group)(name)
            with trio.move_on_after(ANSWERED_WITHIN_S):
                while (found := (await self._cluster.find([real], key_type, node_id=self._any_node()))[real]) < 0:
                    await trio.sleep(0.05)
            found = self.names.node_name(found)
            self._coordinators[name, key_type] = found
        return found

    def _any_node(self) -> int:
        return self.names.nodes[self._up()[0].node_id]

    async def _choose(self, name: str, key_type: int) -> None:
        """Choose the name of a group or a transactional id, so that broker 1 coordinates it."""
        node = self.names.nodes[self._node_of(name, key_type)]
        partitions = await self._cluster.internal(TRANSACTIONS_TOPIC if key_type else OFFSETS_TOPIC)
        own = None if key_type else self._reserved.of(self._transcript.name)
        candidates: list[str] = []
        for number in range(_MAX_NUMBER):
            candidate = f"{self.names.base}.{number}.{name}"
            if partitions:
                partition = partition_for(candidate, len(partitions))
                if own is not None:
                    fits = partition == own
                else:
                    fits = partitions[partition][0] == node and (key_type == 1 or partition not in self._reserved)
                if not fits:
                    continue
            candidates.append(candidate)
            if len(candidates) == _CANDIDATES:
                break
        found = await self._cluster.find(candidates, key_type, node_id=self._any_node())
        for candidate in candidates:
            if found.get(candidate) == node:
                self.names.add(name, key_type, candidate)
                if key_type == 0 and partitions:
                    self.names.offsets_partition = partition_for(candidate, len(partitions))
                return
        raise FakebrokerError(f"none of {len(candidates)} names of {name} is coordinated by broker {node}")

    def _node_of(self, name: str, key_type: int) -> int:
        """Return the broker that coordinates a name in a fake cluster. With only one partition, this is broker 1."""
        topic = "transaction.state.log" if key_type else "offsets.topic"
        partitions = int(str(self._transcript.config.get(f"{topic}.num.partitions", 1)))
        return partition_for(name, partitions) % self._transcript.brokers + 1

    async def leader_of(self, place: TopicPartition) -> int:
        real = self.names.topic(place[0])
        found = (await self._cluster.topics([real]))[real]
        leaders = {each.partition_index: each.leader_id for each in found.partitions}
        leader = leaders.get(place[1], NO_LEADER)
        return self.names.node_name(leader) if leader >= 0 else NO_LEADER

    async def topic_ids(self) -> Mapping[str, bytes]:
        return self._topic_ids

    # Requests

    async def send(self, client_id: str, node_id: int, request: Message, version: int) -> "_Sent":
        for name, key_type in self.names.missing(request):
            await self._choose(name, key_type)
        real = self.names.request(request)
        address = self._cluster.nodes[self.names.nodes[node_id]]
        started = await self._cluster.start(address, real, version, client_id, lambda: self._activity.set())
        sent = _Sent(self.names, started, self._note)
        self._note(f"{client_id} to broker {node_id}: {request!r} (version {version})")
        if isinstance(real, EndTxnRequest | InitProducerIdRequest) and real.transactional_id:
            self._ending = real.transactional_id
        return sent

    def _note(self, text: str) -> None:
        """Add a request or a response to the log, with the time since the transcript began."""
        self.log.append(f"{trio.current_time() - self._start_s:+.3f} s {text}")

    async def settle(self, requests: Collection[SentRequest], answers: int) -> None:
        def ended() -> int:
            return sum(each.is_answered or each.is_connection_closed for each in requests)

        with trio.move_on_after(ANSWERED_WITHIN_S):
            while ended() < min(answers, len(requests)):
                await self._next_activity()
        with trio.move_on_after(PARKED_AFTER_S):
            while ended() < len(requests):
                await self._next_activity()
        if self._ending is not None:
            with trio.move_on_after(_MARKERS_S):
                await self._until_ended(self._ending)
            self._ending = None

    async def _until_ended(self, transactional_id: str) -> None:
        """Wait until the markers of a transaction are written, which happens after the response."""
        node_id = (await self._cluster.find([transactional_id], 1, node_id=self._any_node()))[transactional_id]
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        # While a broker is stopped, markers for its partitions are not written.
        while node_id != NO_LEADER and len(self._up()) == len(self._nodes):
            described: Any = await self._cluster.ask(request, Message, node_id)
            if not described.transaction_states[0].transaction_state.startswith("Prepare"):
                return
            await trio.sleep(0.02)

    async def _next_activity(self) -> None:
        await self._activity.wait()
        self._activity = trio.Event()

    async def repeats(self, step: Step, outcome: str, expected: str, attempt: int) -> bool:
        now = trio.current_time()
        if attempt == 1:
            self._repeated_since = now
        is_retriable = any(each in outcome and each not in expected for each in _RETRIABLE)
        is_read = step.verb in _READS and expected != "" and expected != "parked" and "wait" not in step.options
        limit_s = ANSWERED_WITHIN_S if is_retriable else REPEATED_FOR_S if is_read else 0.0
        if now - self._repeated_since >= limit_s:
            return False
        self._coordinators.clear()
        await trio.sleep(min(0.02 * attempt, 0.2))
        return True

    async def advance(self, by_ms: int) -> None:
        """Wait.

        The steps before have taken time. Timers that they have started end later by that, so the wait begins after
        them, unless the target is `punctual`. A step in the millisecond before a deadline is always early.
        """
        if self._now_ms % 1000 != 999:
            self._anchor_s, self._anchor_ms = trio.current_time(), self._now_ms
        self._now_ms += by_ms
        if self._now_ms % 1000 == 999:
            target_s = self._start_s + (self._now_ms - _EARLY_MS) / 1000
        elif self._punctual:
            target_s = self._start_s + (self._now_ms + _MARGIN_MS) / 1000
        else:
            target_s = self._anchor_s + (self._now_ms - self._anchor_ms + _MARGIN_MS) / 1000
        await trio.sleep_until(max(target_s, trio.current_time()))

    # Commands

    async def perform(self, event: Mapping[str, Any]) -> None:
        match event["do"]:
            case "group.move_coordinator":
                await self._move(OFFSETS_TOPIC, event["group_id"], 0, event["to"])
            case "topic.create":
                await self._create_topic(event["topic"], event.get("partitions", 1))
            case "topic.create_partitions":
                await self._cluster.create_partitions(self.names.topic(event["topic"]), event["total"])
                self._created[event["topic"]] = event["total"]
            case "topic.delete":
                faults = await self._cluster.delete_topics([self.names.topic(event["topic"])])
                if faults:
                    raise FakebrokerError("; ".join(faults))
                await self._cluster.wait_until_gone(self.names.topic(event["topic"]))
                del self._topic_ids[event["topic"]]
            case "broker.stop":
                assert self._control is not None
                node = self._nodes[event["node_id"]]
                node.up = False
                await self._control.stop(self.names.nodes[node.node_id])
                self._coordinators.clear()
                await self._cluster.wait_for_brokers([self.names.nodes[each.node_id] for each in self._up()])
            case "broker.start":
                await self._start(self._nodes[event["node_id"]])
            case "acls.allow" | "acls.deny" | "acls.remove":
                await self._change_acl(event)
            case command:
                raise AssertionError(command)
        if event["do"].startswith("topic."):
            await trio.sleep(_AFTER_A_CHANGE_S)

    async def _change_acl(self, event: Mapping[str, Any]) -> None:
        """Add or remove an ACL, as the commands of a fake cluster do: `allow` removes the ACL that denies the same."""
        for key, key_type in (("group", 0), ("transactional_id", 1)):
            if key in event and self.names.is_missing(event[key], key_type):
                await self._choose(event[key], key_type)
        names = {"topic": self.names.topic, "group": self.names.group, "transactional_id": self.names.transactional_id}
        arguments: dict[str, Any] = {
            key: names[key](value) if key in names else value for key, value in event.items() if key != "do"
        }
        if event["do"] == "acls.remove":
            await self._cluster.remove_acls([AclRule(**arguments).acl])
            return
        if event["do"] == "acls.allow":
            await self._cluster.remove_acls([AclRule(permission="deny", **arguments).acl])
        await self._cluster.add_acls([AclRule(permission=event["do"].removeprefix("acls."), **arguments).acl])

    async def start_brokers(self) -> None:
        """Start the brokers that are still stopped, and let them lead as before."""
        for node in self._nodes.values():
            if not node.up:
                await self._start(node)
        await self._cluster.elect_preferred()

    async def _start(self, node: _Node) -> None:
        assert self._control is not None
        await self._control.start(self.names.nodes[node.node_id])
        node.up = True
        self._coordinators.clear()
        await self._cluster.wait_for_brokers([self.names.nodes[each.node_id] for each in self._up()])

    def _up(self) -> list[_Node]:
        return [each for each in self._nodes.values() if each.up]

    async def _move(self, topic: str, name: str, key_type: int, to: int) -> None:
        if self.names.is_missing(name, key_type):
            await self._choose(name, key_type)
        partitions = await self._cluster.internal(topic)
        real = (self.names.transactional_id if key_type else self.names.group)(name)
        self._note(f"move of {topic} to {to}")
        await self._cluster.move(topic, partition_for(real, len(partitions)), self.names.nodes[to])
        self._coordinators.clear()
        await trio.sleep(_AFTER_A_MOVE_S)
        self._note("  moved")

    # Groups

    async def generation_of(self, group_id: str) -> int:
        raise AssertionError("only proposals need generations")

    async def rewrite_group_text(self, members: Members, group_id: str) -> str:
        raise AssertionError("only proposals have such groups")

    async def group_text(self, members: Members, group_id: str, expected: str) -> str:
        """Return the text of a group from Describe and List requests, and from the records in `__consumer_offsets`.

        Of a classic group in a rebalance, generation, leader and protocol are not visible; they are as expected.
        """
        node_id = self.names.nodes[await self.coordinator_of(group_id)]
        real = self.names.group(group_id)
        listed: Any = await self._cluster.ask(ListGroupsRequest(), Message, node_id)
        kind = next((each.group_type for each in listed.groups if each.group_id == real), None)
        if kind is None:
            return "Dead"
        records = await self._cluster.records_of_group(real)
        if kind.lower() == "consumer":
            state = next(each.group_state for each in listed.groups if each.group_id == real)
            return group_text(members, self._consumer_group(group_id, state, records))
        described: Any = await self._cluster.ask(
            DescribeGroupsRequest(groups=[real], include_authorized_operations=False), Message, node_id, 5
        )
        view = self._classic_group(group_id, described.groups[0], records)
        return _with_expected(group_text(members, view), expected, view.state)

    def _classic_group(self, group_id: str, described: Any, records: Iterable[Record]) -> GroupView:
        stored: GroupMetadataValue | None = None
        pending: dict[tuple[int, str, int], PendingOffsetView] = {}
        for each in records:
            if isinstance(each, TransactionEnd):
                pending = {key: view for key, view in pending.items() if key[0] != each.producer_id}
            elif isinstance(each, TransactionalRecord):
                topic, partition = each.key.topic, each.key.partition
                producer = self.names.producer_number(each.producer_id)
                view = PendingOffsetView(producer, self.names.topic_name(topic), partition, each.value.offset)
                pending[each.producer_id, topic, partition] = view
            elif isinstance(each.key, GroupMetadataKey):
                stored = each.value
        members = tuple(_member(each.member_id, each.client_id, each.group_instance_id) for each in described.members)
        return GroupView(
            group_id=group_id,
            state=described.group_state,
            generation_id=0 if stored is None else stored.generation,
            protocol_type=described.protocol_type or None,
            protocol_name=None if stored is None else stored.protocol,
            leader_id=stored.leader if stored and any(each.member_id == stored.leader for each in members) else None,
            members=members,
            history=Timeline(group_id, (), 0.0),
            pending_offsets=tuple(pending.values()),
            type="classic",
        )

    def _consumer_group(self, group_id: str, state: str, records: Iterable[Record]) -> GroupView:
        epoch = assignment_epoch = 0
        subscriptions: dict[str, Any] = {}
        current: dict[str, Any] = {}
        topics = {topic_id: name for name, topic_id in self._topic_ids.items()}
        for each in records:
            if isinstance(each, TransactionEnd):
                continue
            match each.key:
                case ConsumerGroupMetadataKey() if each.value is not None:
                    epoch = each.value.epoch
                case ConsumerGroupTargetAssignmentMetadataKey() if each.value is not None:
                    assignment_epoch = each.value.assignment_epoch
                case ConsumerGroupMemberMetadataKey(member_id=member_id):
                    subscriptions[member_id] = each.value
                case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                    current[member_id] = each.value
        members = []
        for member_id, subscription in subscriptions.items():
            now = current.get(member_id)
            if subscription is None or now is None:
                continue
            members.append(
                _member(
                    member_id,
                    subscription.client_id,
                    subscription.instance_id,
                    protocol_type="consumer",
                    assignment=encode_assignment(_places(partitions_in(now.assigned_partitions), topics)),
                    member_epoch=now.member_epoch,
                    state=MemberState(now.state).name,
                    pending_revocation_names=partition_names(
                        _places(partitions_in(now.partitions_pending_revocation), topics)
                    ),
                    type="consumer" if subscription.classic_member_metadata is None else "classic",
                )
            )
        return GroupView(
            group_id=group_id,
            state=state,
            generation_id=epoch,
            protocol_type="consumer",
            protocol_name=None,
            leader_id=None,
            members=tuple(members),
            history=Timeline(group_id, (), 0.0),
            type="consumer",
            assignment_epoch=assignment_epoch,
        )


class _Sent:
    """A request of a transcript, whose response has the names of the transcript."""

    def __init__(self, names: Names, request: KafkaRequest, note: Callable[[str], None]) -> None:
        self._names, self._request, self._note = names, request, note
        self._response: Message | None = None

    @property
    def is_answered(self) -> bool:
        return self._request.is_answered

    @property
    def is_connection_closed(self) -> bool:
        return self._request.is_connection_closed

    def response(self) -> Message:
        if self._response is None:
            self._response = self._names.response(self._request.response())
            self._note(f"  answer: {self._response!r}")
        return self._response


class Reserved:
    """Partitions of `__consumer_offsets` for transcripts that move their leaders. No other transcript uses them.

    Args:
        partitions: The partitions.
        owners: The transcripts. The partitions are given to them in turn, so several transcripts can share a partition.
    """

    def __init__(self, partitions: Sequence[int] = (), owners: Iterable[str] = ()) -> None:
        self._all = frozenset(partitions)
        self._owners = dict(zip(owners, cycle(partitions), strict=False))
        self._turns = {partition: trio.Lock() for partition in partitions}

    def of(self, owner: str) -> int | None:
        """Return the partition of a transcript; None if it has none of its own."""
        return self._owners.get(owner)

    def turn(self, owner: str) -> trio.Lock:
        """Return the lock that a transcript holds while it is played."""
        return self._turns[self._owners[owner]]

    def __contains__(self, partition: int) -> bool:
        return partition in self._all


def _member(member_id: str, client_id: str, instance_id: str | None, **more: Any) -> MemberView:
    fields = {"client_host": "", "session_timeout_ms": 0, "rebalance_timeout_ms": 0, "assignment": b"", **more}
    return MemberView(member_id=member_id, client_id=client_id, instance_id=instance_id, **fields)


def _places(assigned: Mapping[bytes, Iterable[int]], topics: Mapping[bytes, str]) -> list[TopicPartition]:
    """Return partitions by the names of their topics, without the partitions of deleted topics."""
    known = ((topics[topic], indexes) for topic, indexes in assigned.items() if topic in topics)
    return sorted((topic, index) for topic, indexes in known for index in indexes)


def _with_expected(text: str, expected: str, state: str) -> str:
    """Return the text of a classic group, whose parts that are not visible now are as expected."""
    if state in ("Stable", "Empty", "Dead"):
        return text
    visible = {_kind(part): part for part in text.split(", ")}
    parts = [part for part in expected.split(", ") if _kind(part) in ("generation", "protocol", "leader")]
    hidden = {_kind(part): part for part in parts}
    merged = {**visible, **hidden}
    order = ["state", "generation", "protocol", "leader", "members"]
    return ", ".join(merged[kind] for kind in [*order, *sorted(merged.keys() - set(order))] if kind in merged)


def _kind(part: str) -> str:
    for kind in ("generation", "leader", "members"):
        if part.startswith(f"{kind} "):
            return kind
    if part.startswith("producer "):
        return part
    return "protocol" if "/" in part else "state"
