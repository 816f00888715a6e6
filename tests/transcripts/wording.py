"""What answers and groups are called in a transcript: one form for each, without anything that differs between runs."""

from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from fakebroker.protocol.schema import Message
from fakebroker.server.views import GroupView, MemberView
from tests.transcripts.cast import Cast, Member


def error_text(code: int) -> str:
    """An error code: its number and Kafka's name; NONE has no number."""
    return f"{code} {ErrorCode(code).name}" if code else "NONE"


def answer_text(cast: Cast, member: Member, response: Message) -> str:
    """What a member was answered, once the cast has heard it."""
    match response:
        case JoinGroupResponse():
            return _joined(cast, member, response)
        case SyncGroupResponse():
            assignment = response.assignment.decode() or "(empty)"
            return error_text(response.error_code) if response.error_code else f"assignment {assignment}"
        case HeartbeatResponse():
            return error_text(response.error_code)
        case LeaveGroupResponse():
            each = [
                f"{_identity(cast, m.member_id, m.group_instance_id)} {error_text(m.error_code)}"
                for m in response.members
            ]
            return ", ".join(each) if each and not response.error_code else error_text(response.error_code)
        case OffsetCommitResponse():
            return ", ".join(
                f"{topic.name}-{partition.partition_index} {error_text(partition.error_code)}"
                for topic in response.topics
                for partition in topic.partitions
            )
        case OffsetFetchResponse():
            return _fetched(response)
        case FindCoordinatorResponse():
            found = response.coordinators[0] if response.coordinators else response
            return error_text(found.error_code) if found.error_code else f"broker {found.node_id}"
    raise AssertionError(response)


def _identity(cast: Cast, member_id: str, instance_id: str | None) -> str:
    return cast.label(member_id, instance_id) or '""'


def _joined(cast: Cast, member: Member, response: JoinGroupResponse) -> str:
    own = cast.label(response.member_id)
    if response.error_code:
        return error_text(response.error_code) + (f", id {own}" if own else "")
    parts = [
        f"generation {response.generation_id}",
        response.protocol_name or "",
        f"leader {cast.label(response.leader)}",
    ]
    if response.members:
        parts.append("members " + " ".join(cast.label(m.member_id, m.group_instance_id) for m in response.members))
    if response.skip_assignment:
        parts.append("skip assignment")
    if own != member.name:
        parts.append(f"id {own}")
    return ", ".join(parts)


def _fetched(response: OffsetFetchResponse) -> str:
    error_code = response.groups[0].error_code if response.groups else response.error_code
    if error_code:
        return error_text(error_code)
    old = [_offset(topic.name, each) for topic in response.topics for each in topic.partitions]
    new = [
        _offset(topic.name, each) for group in response.groups for topic in group.topics for each in topic.partitions
    ]
    return ", ".join(old + new) or "no offsets"


def _offset(topic: str, partition: OffsetFetchResponsePartition | OffsetFetchResponsePartitions) -> str:
    text = f"{topic}-{partition.partition_index}={partition.committed_offset}"
    text += f" epoch {partition.committed_leader_epoch}" if partition.committed_leader_epoch != -1 else ""
    text += f" {partition.metadata!r}" if partition.metadata else ""
    return text + (f" {error_text(partition.error_code)}" if partition.error_code else "")


def group_text(cast: Cast, group: GroupView) -> str:
    """A group as it is; what it has not got is left out. In brackets stands who has not been told its id yet."""
    if group.state == "Dead":
        return group.state
    labels = {m.member_id: _seen(cast, m) for m in group.members}
    parts = [group.state, f"generation {group.generation_id}"]
    if group.protocol_type is not None:
        parts.append(f"{group.protocol_type}/{group.protocol_name or '-'}")
    if group.leader_id is not None:
        parts.append(f"leader {labels[group.leader_id]}")
    if group.members:
        parts.append("members " + " ".join(labels.values()))
    return ", ".join(parts)


def _seen(cast: Cast, member: MemberView) -> str:
    label = cast.label(member.member_id, member.instance_id)
    return label if cast.knows(member.member_id) else f"({member.client_id})"
