"""The members of a transcript: their state, and the requests they send.

Does not depend on a cluster. Member ids differ between runs, so transcripts use the name of the member that got the id.
"""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from fakebroker.conform.consumers import TranscriptConsumer, describe, stored
from fakebroker.conform.producers import PRODUCER_VERBS, TranscriptProducer
from fakebroker.conform.transcript import Step, TranscriptError, expand_range, relative
from fakebroker.errors import ErrorCode
from fakebroker.proposals.batch_join.messages import (
    BatchJoinGroupRequest,
    BatchJoinGroupRequestMember,
    BatchJoinGroupResponse,
)
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupRequest, RewriteJoinGroupResponse
from fakebroker.protocol.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.messages.list_groups import ListGroupsRequest
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fakebroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fakebroker.protocol.schema import Message
from fakebroker.topic_partition import by_topic, parse_partition

_AFTER = {
    ErrorCode.NONE: "beat",
    ErrorCode.REBALANCE_IN_PROGRESS: "join",
    ErrorCode.ILLEGAL_GENERATION: "join",
}
"""The next request of a client that follows the protocol, by the answer to its sync or heartbeat."""

_STATIC_FROM = {"join": 5, "sync": 3, "beat": 3, "leave": 3, "commit": 7, "txn-commit": 3}


SESSION_MS, REBALANCE_MS = 10_000, 60_000
"""The timeouts of a first join that does not have them."""


@dataclass(slots=True)
class TranscriptMember:
    """One member: its identity according to the responses, and the fields of its last join. Later joins repeat them.

    Attributes:
        topics, strategy: The subscription and the strategy of the proposal `rewrite`.
        next_verb: The next step of a client that follows the protocol; "" if that is undefined.
        producer: Its transactional producer.
        consumer: Its state as a member of a consumer group. Its epoch is `generation_id`.
    """

    name: str
    group_id: str = "g"
    member_id: str = ""
    generation_id: int = -1
    protocol_name: str | None = None
    instance_id: str | None = None
    protocol_type: str = "consumer"
    protocols: list[str] = field(default_factory=lambda: ["range"])
    metadata: bytes = b"-"
    session_timeout_ms: int = SESSION_MS
    rebalance_timeout_ms: int = REBALANCE_MS
    topics: list[str] = field(default_factory=lambda: ["news"])
    strategy: str = "range"
    next_verb: str = ""
    producer: TranscriptProducer = field(default_factory=lambda: TranscriptProducer(count()))
    consumer: TranscriptConsumer = field(default_factory=TranscriptConsumer)

    def update(self, step: Step) -> None:
        """Set the group, and the fields of a join, from the options of a step."""
        options = step.options
        self.group_id = options.get("group", self.group_id)
        self.producer.begin(step)
        if step.verb == "register":
            self.topics = options.get("topics", self.topics)
            self.strategy = options.get("strategy", self.strategy)
            self.session_timeout_ms = options.get("session", self.session_timeout_ms)
        if "static" in options and (step.verb in ("join", "batch") or self.joins_consumer_group(step)):
            self.instance_id = None if options["static"] == "none" else _unquoted(options["static"])
        if step.verb not in ("join", "batch"):
            return
        self.protocol_type = _unquoted(options.get("type", self.protocol_type))
        self.protocols = [name for name in options.get("protocols", self.protocols) if name != "none"]
        self.session_timeout_ms = options.get("session", self.session_timeout_ms)
        self.rebalance_timeout_ms = options.get("rebalance", self.rebalance_timeout_ms)
        if "meta" in options:
            self.metadata = options["meta"].encode()
        if "topics" in options:
            self.consumer.topics = options["topics"]
        if "topics" in options or "owns" in options:
            owned = self.consumer.owned(options.get("owns", "none"))
            self.metadata = encode_subscription(self.consumer.topics, owned)

    def joins_consumer_group(self, step: Step) -> bool:
        """Whether a step is a ConsumerGroupHeartbeat with epoch 0."""
        return step.verb == "consume" and step.options.get("epoch", max(0, self.generation_id)) == 0


class Members:
    """The members of one transcript, and the names of their member ids.

    Attributes:
        topic_ids: The ids of topics by name, also of deleted ones. The caller adds new ones.
    """

    def __init__(self) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self._members: dict[str, TranscriptMember] = {}
        self._labels: dict[str, str] = {}
        self._timestamps = count(1_000)
        self._batches: dict[str, list[list[str]]] = {}

    def all(self) -> list[TranscriptMember]:
        """Return the members in the order of their first steps."""
        return list(self._members.values())

    def member(self, name: str) -> TranscriptMember:
        """Return a member, which is added if it is new."""
        if name not in self._members:
            self._members[name] = TranscriptMember(name, producer=TranscriptProducer(self._timestamps))
        return self._members[name]

    def label(self, member_id: str, instance_id: str | None = None) -> str:
        """Return the name of a member id: the member that got the id, and the instance id. `A#2` is the second id of A.

        The id that is reserved for an expected instance is named `@instance`.
        """
        if self._labels.get(member_id, "").startswith("@"):
            return self._labels[member_id]
        return self._labels.get(member_id, member_id) + (f"@{instance_id}" if instance_id else "")

    def has_label(self, member_id: str) -> bool:
        """Whether a member has got this id in an answer."""
        return member_id in self._labels

    def receive(self, member: TranscriptMember, request: Message, response: Message) -> None:
        """Update a member from the answer to a request: its id, generation and protocol, and its producer."""
        member.producer.receive(request, response)
        match response:
            case SyncGroupResponse() | HeartbeatResponse():
                member.next_verb = _AFTER.get(ErrorCode(response.error_code), "")
                if isinstance(response, SyncGroupResponse) and response.assignment.startswith(b"\0"):
                    member.consumer.assigned = decode_assignment(response.assignment)
            case BatchJoinGroupResponse():
                for name, result in zip(
                    self._batches[member.name].pop(0), response.member_join_response_list, strict=True
                ):
                    self._receive_join(name, result.member.member_id, result.error_code, response)
            case JoinGroupResponse():
                self._receive_join(member.name, response.member_id, response.error_code, response)
            case ConsumerGroupHeartbeatResponse() if not response.error_code:
                assert response.member_id is not None
                self._name_id(member.name, response.member_id)
                member.member_id, member.generation_id = response.member_id, max(0, response.member_epoch)
                member.consumer.receive(response, self.topic_ids)
            case RewriteJoinGroupResponse() if not response.error_code:
                self._name_id(member.name, response.consumer_id)
                member.member_id, member.generation_id = response.consumer_id, response.group_generation_id

    def _receive_join(
        self, name: str, member_id: str, error_code: int, response: JoinGroupResponse | BatchJoinGroupResponse
    ) -> None:
        """Update a member, or the name of an expected instance, `@instance`, from the result of its join."""
        self._name_id(name, member_id)
        if name.startswith("@"):
            return
        member = self.member(name)
        if error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            member.member_id = member_id
            member.next_verb = "join" if error_code else "sync"
        if not error_code:
            member.generation_id = response.generation_id
            member.protocol_name = response.protocol_name

    def _name_id(self, name: str, member_id: str) -> None:
        label = self._labels.get(member_id, "@")
        if member_id not in ("", "unknown") and label.startswith("@"):
            earlier = sum(label.partition("#")[0] == name for label in self._labels.values())
            self._labels[member_id] = f"{name}#{earlier + 1}" if earlier and name != label else name

    def id_of(self, label: str, place: str) -> str:
        """Return the member id with this name. `unknown` is an id that no member has got, `none` is an empty id."""
        if label in ("unknown", "none"):
            return "" if label == "none" else label
        for member_id, known in self._labels.items():
            if known == label:
                return member_id
        names = ", ".join([*self._labels.values(), "unknown", "none"])
        raise TranscriptError(f"{place}: member id {label!r}: expected one of {names}")

    def request(self, step: Step) -> tuple[TranscriptMember, Message, int]:
        """Return the member of a step, its request, and the version of the request."""
        assert step.actor is not None
        member = self.member(step.actor)
        member.update(step)
        _, version = step.request
        return member, self._build(step, member, version), version

    def _build(self, step: Step, member: TranscriptMember, version: int) -> Message:
        match step.verb:
            case "join":
                return self._join(step, member, version)
            case "batch":
                return self._batch(step, member)
            case "register":
                return self._register(step, member)
            case "sync":
                return self._sync(step, member, version)
            case "beat":
                member_id, generation_id, instance_id = self._identity(step, member, version)
                return HeartbeatRequest(
                    group_id=_unquoted(member.group_id),
                    generation_id=generation_id,
                    member_id=member_id,
                    group_instance_id=instance_id,
                )
            case "leave":
                return self._leave(step, member, version)
            case "commit":
                return self._commit(step, member, version)
            case "consume" | "store-member" | "consumers":
                return self._consume(step, member)
            case "txn-commit":
                return self._commit_in_transaction(step, member, version)
            case verb if verb in PRODUCER_VERBS:
                return member.producer.request(step, _unquoted(member.group_id), version)
            case "fetch":
                return self._fetch(step, member, version)
            case "find":
                return _find(_unquoted(member.group_id), version)
        return _administer(step, _unquoted(member.group_id))

    def _identity(self, step: Step, member: TranscriptMember, version: int) -> tuple[str, int, str | None]:
        options = step.options
        member_id = member.member_id
        if "as" in options:
            member_id = member.name if options["as"] == "own" else self.id_of(options["as"], step.place)
        instance_id = options.get("static", member.instance_id)
        if instance_id == "none" or version < _STATIC_FROM.get(step.verb, 0):
            instance_id = None
        return member_id, relative(options.get("gen", member.generation_id), member.generation_id), instance_id

    def _join(self, step: Step, member: TranscriptMember, version: int) -> JoinGroupRequest:
        member_id, _, instance_id = self._identity(step, member, version)
        return JoinGroupRequest(
            group_id=_unquoted(member.group_id),
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=member.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=member.metadata) for name in member.protocols],
        )

    def _register(self, step: Step, member: TranscriptMember) -> RewriteJoinGroupRequest:
        return RewriteJoinGroupRequest(
            group_id=_unquoted(member.group_id),
            session_timeout_ms=member.session_timeout_ms,
            topics=member.topics,
            consumer_id=self.id_of(step.options["as"], step.place) if "as" in step.options else member.member_id,
            partition_assignment_strategy=member.strategy,
        )

    def _batch(self, step: Step, asker: TranscriptMember) -> BatchJoinGroupRequest:
        """Return a JoinGroup for many members; the options of the step apply to each."""
        names, members = [], []
        for word in (each for words in step.words for each in expand_range(words)):
            name, _, instance_id = word.partition("@")
            names.append(name or word)
            if not name:
                members.append(BatchJoinGroupRequestMember(member_id="", group_instance_id=instance_id, protocols=[]))
                continue
            member = self.member(name)
            member.update(step)
            member.instance_id = instance_id or member.instance_id
            protocols = [JoinGroupRequestProtocol(name=each, metadata=member.metadata) for each in member.protocols]
            members.append(
                BatchJoinGroupRequestMember(
                    member_id=member.member_id, group_instance_id=member.instance_id, protocols=protocols
                )
            )
        self._batches.setdefault(asker.name, []).append(names)
        return BatchJoinGroupRequest(
            group_id=_unquoted(asker.group_id),
            session_timeout_ms=asker.session_timeout_ms,
            rebalance_timeout_ms=asker.rebalance_timeout_ms,
            protocol_type=asker.protocol_type,
            join_group_members=members,
        )

    def _sync(self, step: Step, member: TranscriptMember, version: int) -> SyncGroupRequest:
        member_id, generation_id, instance_id = self._identity(step, member, version)
        given = [word.split("=") for word in step.words]
        protocol = step.options.get("protocol", member.protocol_name)
        return SyncGroupRequest(
            group_id=_unquoted(member.group_id),
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=step.options.get("type", member.protocol_type),
            protocol_name=None if protocol == "none" else protocol or member.protocols[0],
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=self.id_of(label, step.place),
                    assignment=encode_assignment(member.consumer.owned(text)) if "-" in text else text.encode(),
                )
                for label, text in given
            ],
        )

    def _leave(self, step: Step, member: TranscriptMember, version: int) -> LeaveGroupRequest:
        member_id, _, instance_id = self._identity(step, member, version)
        if version < 3:
            return LeaveGroupRequest(group_id=_unquoted(member.group_id), member_id=member_id)
        leaving = [word.partition("@") for word in step.words]
        members = [
            MemberIdentity(member_id=self.id_of(label or "none", step.place), group_instance_id=instance or None)
            for label, _, instance in leaving
        ]
        own = MemberIdentity(member_id=member_id, group_instance_id=instance_id)
        return LeaveGroupRequest(group_id=_unquoted(member.group_id), members=members or [own])

    def _commit(self, step: Step, member: TranscriptMember, version: int) -> OffsetCommitRequest:
        member_id, generation_id, instance_id = self._identity(step, member, version)
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for word in step.words:
            (name, index), offset = parse_partition(word.split("=")[0]), int(word.split("=")[1])
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, partitions=[]))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=step.options.get("epoch", -1),
                    committed_metadata=step.options.get("metadata"),
                )
            )
        return OffsetCommitRequest(
            group_id=_unquoted(member.group_id),
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=step.options.get("retention", -1),
            topics=list(topics.values()),
        )

    def _commit_in_transaction(self, step: Step, member: TranscriptMember, version: int) -> TxnOffsetCommitRequest:
        member_id, generation_id, instance_id = self._identity(step, member, version)
        transactional_id, producer_id, epoch = member.producer.sent(step)
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for word in step.words:
            (name, index), offset = parse_partition(word.split("=")[0]), int(word.split("=")[1])
            partition = TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=step.options.get("metadata")
            )
            topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name, partitions=[])).partitions.append(partition)
        identity: dict[str, Any] = {
            "generation_id_or_member_epoch": generation_id,
            "member_id": member_id,
            "group_instance_id": instance_id,
        }
        return TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=_unquoted(member.group_id),
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=list(topics.values()),
            **(identity if version >= _STATIC_FROM["txn-commit"] else {}),
        )

    def _consume(self, step: Step, member: TranscriptMember) -> Message:
        group_id = _unquoted(member.group_id)
        if step.verb == "consumers":
            return describe(step, group_id)
        member_id, epoch, instance_id = self._identity(step, member, 0)
        member_id = member.name if not member_id and "as" not in step.options else member_id
        epoch = max(0, epoch)
        epoch = relative(step.options.get("epoch", epoch), epoch)
        if step.verb == "store-member":
            return stored(step, group_id, member_id, epoch, self.topic_ids)
        identity = member_id, epoch, _unquoted(instance_id) if instance_id else None
        return member.consumer.heartbeat(step, group_id, identity, self.topic_ids)

    def _fetch(self, step: Step, member: TranscriptMember, version: int) -> OffsetFetchRequest:
        request = _fetch(step, _unquoted(member.group_id), version)
        if {"as", "gen", "member"} & step.options.keys():
            (group,) = request.groups
            group.member_id, group.member_epoch, _ = self._identity(step, member, version)
        return request


def _find(group_id: str, version: int) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=group_id)
    return FindCoordinatorRequest(coordinator_keys=[group_id])


def _administer(step: Step, group_id: str) -> Message:
    """Return an administrative request for the groups of the step, or for the group of the member."""
    groups = [_unquoted(word) for word in step.words] or [group_id]
    options = step.options
    match step.verb:
        case "describe":
            return DescribeGroupsRequest(groups=groups, include_authorized_operations="operations" in options)
        case "list":
            return ListGroupsRequest(states_filter=options.get("states", []), types_filter=options.get("types", []))
        case "delete":
            return DeleteGroupsRequest(groups_names=groups)
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for name, indexes in _topics(step).items()
    ]
    return OffsetDeleteRequest(group_id=group_id, topics=topics)


def _fetch(step: Step, group_id: str, version: int) -> OffsetFetchRequest:
    topics, require_stable = _topics(step), "stable" in step.options
    if version < 8:
        old = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        return OffsetFetchRequest(group_id=group_id, topics=old or None, require_stable=require_stable)
    new = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=new or None)]
    return OffsetFetchRequest(groups=groups, require_stable=require_stable)


def _topics(step: Step) -> dict[str, list[int]]:
    """Return the partitions of a step, by topic."""
    return by_topic(map(parse_partition, step.words))


def _unquoted(text: str) -> str:
    """Return a text of a step, where `""` is the empty one."""
    return "" if text == '""' else text
