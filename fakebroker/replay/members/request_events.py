"""Makes the `Event` of a request and its response. Does not depend on members or clocks."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from fakebroker.client.brokers import Exchange
from fakebroker.client.errors import ClientClosed
from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.client.member.reactions import error_in
from fakebroker.client.member.requests import Identity, fetched_offsets
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupRequest
from fakebroker.protocol.consumer_protocol import decode_assignment
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.protocol.registry import api_of
from fakebroker.replay.members.events import Event, event_of
from fakebroker.replay.members.request_outcomes import missing_because
from fakebroker.replay.script.script import Script

NOT_SENT = -1
"""The version of a request that was not sent, because there was no connection."""

REBALANCE_REQUESTS = (JoinGroupRequest, SyncGroupRequest)
"""Requests that a broker may answer much later."""

API_NAMES: dict[type[GroupRequest], str] = {
    JoinGroupRequest: "JoinGroup",
    SyncGroupRequest: "SyncGroup",
    HeartbeatRequest: "Heartbeat",
    OffsetCommitRequest: "OffsetCommit",
    OffsetFetchRequest: "OffsetFetch",
    LeaveGroupRequest: "LeaveGroup",
    RewriteJoinGroupRequest: "JoinGroup",
    ConsumerGroupHeartbeatRequest: "ConsumerGroupHeartbeat",
}

NO_NAMES: Mapping[bytes, str] = MappingProxyType({})


class SentRequest(NamedTuple):
    """What an event records about sending a request: times in microseconds since the Unix epoch, version, node id."""

    scheduled_us: int
    sent_us: int
    version: int
    broker: int


def to_us(moment_ms: float) -> int:
    """Convert milliseconds to the whole microseconds of events."""
    return round(moment_ms * 1000)


def exchange_event(exchange: Exchange, broker: int, now_ms: float) -> Event:
    """Return the event of a request that a look-up, a load or a reader has sent, without the contents of its response.

    Args:
        exchange: The request, which has ended.
        broker: Node id of the broker; -1 if it is unknown.
        now_ms: When it has ended.
    """
    failure = exchange.failure
    return Event(
        scheduled_us=to_us(exchange.scheduled_ms),
        sent_us=to_us(min(exchange.sent_ms, now_ms)),
        latency_us=to_us(now_ms - exchange.scheduled_ms) if failure is None else None,
        api=api_of(exchange.request).name,
        version=exchange.version,
        broker=broker,
        until_us=None if failure is None or isinstance(failure, ClientClosed) else to_us(now_ms),
        missing=None if failure is None else missing_because(failure),
    )


def heartbeat_event(
    sent: SentRequest,
    latency_us: int | None,
    error: int | None,
    request: HeartbeatRequest,
    script: Script,
    missing: str | None = None,
) -> Event:
    """Return the event of a Heartbeat, with or without a response. A fast path: most requests are heartbeats."""
    scheduled_us, sent_us, version, broker = sent
    return event_of((
        scheduled_us, sent_us, latency_us, "Heartbeat", version, broker,
        script.group, script.member, request.generation_id, error, None, None, "request", 1, None, missing,
        request.member_id, script.instance_id, None, None, None, None, None, "members", None, None, None,
    ))  # fmt: skip


def commit_event(sent: SentRequest, latency_us: int, identity: Identity, script: Script) -> Event:
    """Return the event of an OffsetCommit that was accepted for all partitions, without the offsets."""
    return Event(
        sent.scheduled_us,
        sent.sent_us,
        latency_us,
        "OffsetCommit",
        sent.version,
        sent.broker,
        script.group,
        script.member,
        identity.generation_id,
        ErrorCode.NONE.value,
        member_id=identity.member_id,
        instance_id=script.instance_id,
    )


def consumer_heartbeat_event(
    sent: SentRequest,
    latency_us: int | None,
    request: ConsumerGroupHeartbeatRequest,
    response: ConsumerGroupHeartbeatResponse | None,
    script: Script,
    names: Mapping[bytes, str],
    missing: str | None = None,
) -> Event:
    """Return the event of a ConsumerGroupHeartbeat, with or without a response.

    Args:
        sent: When and where it was sent.
        latency_us: Time until the response.
        request: The request.
        response: The response; None without one.
        script: The script of its member.
        names: Names of topics by id.
        missing: Why there is no response, as in `Event.missing`.
    """
    scheduled_us, sent_us, version, broker = sent
    epoch, assigned = request.member_epoch, None
    if response is not None and not response.error_code:
        epoch = response.member_epoch
        if response.assignment is not None:
            assigned = _named(response.assignment.topic_partitions, names)
    return Event(
        *(scheduled_us, sent_us, latency_us, "ConsumerGroupHeartbeat", version, broker, script.group, script.member),
        generation=epoch if epoch > 0 else None,
        error=None if response is None else response.error_code,
        assigned=assigned,
        missing=missing,
        member_id=request.member_id,
        instance_id=script.instance_id,
        epoch=request.member_epoch,
        owned=None if request.topic_partitions is None else _named(request.topic_partitions, names),
    )


def _named(topics: Iterable[HeartbeatTopicPartitions], names: Mapping[bytes, str]) -> list[str]:
    """Return partitions with the names of their topics, or with their ids where these are unknown."""
    return [
        f"{names.get(topic.topic_id) or topic.topic_id.hex()}-{index}" for topic in topics for index in topic.partitions
    ]


def answered_event(
    sent: SentRequest,
    latency_us: int,
    request: GroupRequest,
    response: GroupResponse,
    script: Script,
    names: Mapping[bytes, str] = NO_NAMES,
) -> Event:
    """Return the event of a request with a response. `names` has the names of topics by id."""
    if type(request) is HeartbeatRequest:
        assert type(response) is HeartbeatResponse
        return heartbeat_event(sent, latency_us, response.error_code, request, script)
    if type(request) is ConsumerGroupHeartbeatRequest:
        assert type(response) is ConsumerGroupHeartbeatResponse
        return consumer_heartbeat_event(sent, latency_us, request, response, script, names)
    error = int(_error(response))
    generation, member_id = _generation(request), _member_id(request)
    assigned = leader = protocol = members = offsets = None
    match response:
        case OffsetCommitResponse():
            assert isinstance(request, OffsetCommitRequest)
            offsets = _acknowledged(request, response)
        case JoinGroupResponse():
            member_id = response.member_id or member_id
            if not error:
                generation, leader, protocol = response.generation_id, response.leader, response.protocol_name
                members = len(response.members)
        case SyncGroupResponse() if not error:
            assigned = _assigned(response)
        case OffsetFetchResponse() if not error:
            offsets = [(f"{topic}-{each}", offset) for (topic, each), offset in fetched_offsets(response)]
    scheduled_us, sent_us, version, broker = sent
    return event_of((
        scheduled_us, sent_us, latency_us, API_NAMES[type(request)], version, broker,
        script.group, script.member, generation, error, None, assigned, "request", 1, None, None,
        member_id or None, script.instance_id, leader, protocol, members, offsets, None, "members", None, None, None,
    ))  # fmt: skip


def unanswered_event(
    sent: SentRequest, request: GroupRequest, script: Script, missing: str, names: Mapping[bytes, str] = NO_NAMES
) -> Event:
    """Return the event of a request without a response.

    Args:
        sent: When and where it was sent.
        request: The request.
        script: The script of its member.
        missing: Why there is no response, as in `Event.missing`.
        names: Names of topics by id.
    """
    if isinstance(request, HeartbeatRequest):
        return heartbeat_event(sent, None, None, request, script, missing)
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return consumer_heartbeat_event(sent, None, request, None, script, names, missing)
    return Event(
        *(sent.scheduled_us, sent.sent_us, None, API_NAMES[type(request)], sent.version, sent.broker),
        group=script.group,
        member=script.member,
        generation=_generation(request),
        missing=missing,
        member_id=_member_id(request) or None,
        instance_id=script.instance_id,
    )


def _generation(request: GroupRequest) -> int | None:
    match request:
        case SyncGroupRequest():
            return request.generation_id
        case OffsetCommitRequest():
            return request.generation_id_or_member_epoch
        case OffsetFetchRequest() if request.groups[0].member_id is not None:
            return request.groups[0].member_epoch
    return None


def _member_id(request: GroupRequest) -> str:
    match request:
        case LeaveGroupRequest():
            return request.members[0].member_id if request.members else request.member_id
        case OffsetFetchRequest():
            return request.groups[0].member_id or ""  # without one in the classic protocol
        case RewriteJoinGroupRequest():
            return request.consumer_id
    return request.member_id


def _error(response: GroupResponse) -> int:
    if isinstance(response, LeaveGroupResponse):
        return next((member.error_code for member in response.members if member.error_code), response.error_code)
    if isinstance(response, OffsetCommitResponse) and is_accepted(response):
        return ErrorCode.NONE  # a fast path: commits are frequent
    return error_in(response)


def is_accepted(response: OffsetCommitResponse) -> bool:
    """Return whether a commit was accepted for all partitions."""
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code:
                return False
    return True


def _assigned(response: SyncGroupResponse) -> list[str] | None:
    """Return the assigned partitions; None if the assignment cannot be decoded."""
    try:
        return [f"{topic}-{partition}" for topic, partition in decode_assignment(response.assignment)]
    except ProtocolError:
        return None


def _acknowledged(request: OffsetCommitRequest, response: OffsetCommitResponse) -> list[tuple[str, int]]:
    accepted = {
        (topic.name, each.partition_index)
        for topic in response.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }
    return [
        (f"{topic.name}-{each.partition_index}", each.committed_offset)
        for topic in request.topics
        for each in topic.partitions
        if (topic.name, each.partition_index) in accepted
    ]
