"""What answers and groups are called in a transcript: one form for each, without anything that differs between runs."""

import re
from collections.abc import Iterable

from fakebroker.cluster.inspect.views import GroupView
from fakebroker.errors import ErrorCode
from fakebroker.protocol.consumer_protocol import decode_subscription
from fakebroker.protocol.messages.delete_groups import DeleteGroupsResponse
from fakebroker.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupResponse
from fakebroker.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.offset_delete import OffsetDeleteResponse
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from fakebroker.protocol.schema import Message
from tests.transcripts.cast import Cast, Member

_NOT_ASKED = -(2**31)


def error_text(code: int) -> str:
    """An error code: its number and Kafka's name; NONE has no number."""
    return f"{code} {ErrorCode(code).name}" if code else "NONE"


def answer_text(cast: Cast, member: Member, response: Message) -> str:
    """What a member was answered, once the cast has heard it."""
    match response:
        case JoinGroupResponse() if response.member_join_response_list:
            return _batch(cast, response)
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
            return _partition_errors(response)
        case OffsetFetchResponse():
            return _fetched(response)
        case FindCoordinatorResponse():
            found = response.coordinators[0] if response.coordinators else response
            return error_text(found.error_code) if found.error_code else f"broker {found.node_id}"
    return _administered(cast, response)


def _administered(cast: Cast, response: Message) -> str:
    match response:
        case DescribeGroupsResponse():
            return "; ".join(_described(cast, group) for group in response.groups)
        case ListGroupsResponse():
            listed = ", ".join(_listed(group) for group in response.groups) or "no groups"
            return error_text(response.error_code) if response.error_code else listed
        case DeleteGroupsResponse():
            return ", ".join(f"{_group_name(each.group_id)} {error_text(each.error_code)}" for each in response.results)
        case OffsetDeleteResponse():
            return _partition_errors(response) or error_text(response.error_code)
    raise AssertionError(response)


def _partition_errors(response: OffsetCommitResponse | OffsetDeleteResponse) -> str:
    return ", ".join(
        f"{topic.name}-{partition.partition_index} {error_text(partition.error_code)}"
        for topic in response.topics
        for partition in topic.partitions
    )


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
        parts.append("members " + in_ranges(cast.label(m.member_id, m.group_instance_id) for m in response.members))
    if response.skip_assignment:
        parts.append("skip assignment")
    if own != member.name:
        parts.append(f"id {own}")
    return ", ".join(parts)


def _batch(cast: Cast, response: JoinGroupResponse) -> str:
    """The generation of those who have joined one, and after that who was told what."""
    told: dict[str, list[str]] = {}
    for each in response.member_join_response_list:
        label = cast.label(each.member.member_id, each.member.group_instance_id) or '""'
        outcome = error_text(each.error_code) if each.error_code else "expected" if label[0] == "@" else "joined"
        told.setdefault(outcome, []).append(label)
    parts = [f"{outcome}: {in_ranges(labels)}" for outcome, labels in told.items()]
    if "joined" in told:
        leads = f"generation {response.generation_id}, {response.protocol_name}, leader {cast.label(response.leader)}"
        labels = [cast.label(m.member_id, m.group_instance_id) for m in response.members]
        parts.insert(0, leads + (f", members {in_ranges(labels)}" if labels else ""))
    return "; ".join(parts)


def in_ranges(labels: Iterable[str]) -> str:
    """Labels with blanks between them; three or more in a row that are numbered are a range, `M[1-9]`."""
    runs: list[tuple[str, list[int], str]] = []
    for label in labels:
        number = re.search(r"\d+", label)
        if number is None or label.count(number[0]) != len(re.findall(r"\d+", label)):
            runs.append((label, [], label))
            continue
        stem = label.replace(number[0], "*")
        if runs and runs[-1][0] == stem and runs[-1][1][-1] + 1 == int(number[0]):
            runs[-1][1].append(int(number[0]))
        else:
            runs.append((stem, [int(number[0])], label))
    return " ".join(" ".join(_run(*run)) for run in runs)


def _run(stem: str, numbers: list[int], label: str) -> list[str]:
    if len(numbers) < 3:
        return [stem.replace("*", str(number)) for number in numbers] or [label]
    return [stem.replace("*", f"[{numbers[0]}-{numbers[-1]}]", 1)]


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


def _group_name(group_id: str) -> str:
    return group_id or '""'


def _described(cast: Cast, group: DescribedGroup) -> str:
    """A group as DescribeGroups tells of it; what is empty is left out."""
    parts = [error_text(group.error_code)] if group.error_code else []
    parts += [group.group_state] if group.group_state else []
    if group.protocol_type:
        parts.append("/".join(filter(None, [group.protocol_type, group.protocol_data])))
    if group.members:
        parts.append("members " + in_ranges(_described_member(cast, member) for member in group.members))
    if group.authorized_operations != _NOT_ASKED:
        parts.append(f"operations {group.authorized_operations}")
    return f"{_group_name(group.group_id)} {', '.join(parts)}"


def _described_member(cast: Cast, member: DescribedGroupMember) -> str:
    """A member, its metadata in brackets, and its assignment."""
    label = _seen(cast, member.member_id, member.group_instance_id, member.client_id)
    metadata = f"[{_metadata(member.member_metadata)}]" if member.member_metadata else ""
    assignment = f"={member.member_assignment.decode()}" if member.member_assignment else ""
    return label + metadata + assignment


def _metadata(metadata: bytes) -> str:
    """The topics of a subscription, or the text that it is instead."""
    if metadata.startswith(b"\0"):
        return ",".join(decode_subscription(metadata).topics)
    return metadata.decode()


def _listed(group: ListedGroup) -> str:
    parts = [_group_name(group.group_id), group.protocol_type or "-", group.group_state, group.group_type]
    return " ".join(filter(None, parts))


def group_text(cast: Cast, group: GroupView) -> str:
    """A group as it is; what it has not got is left out. In brackets stands who has not been told its id yet."""
    if group.state == "Dead":
        return group.state
    labels = {m.member_id: _seen(cast, m.member_id, m.instance_id, m.client_id) for m in group.members}
    parts = [group.state, f"generation {group.generation_id}"]
    if group.protocol_type is not None:
        parts.append(f"{group.protocol_type}/{group.protocol_name or '-'}")
    if group.leader_id is not None:
        parts.append(f"leader {labels[group.leader_id]}")
    if group.members:
        parts.append("members " + in_ranges(labels.values()))
    return ", ".join(parts)


def _seen(cast: Cast, member_id: str, instance_id: str | None, client_id: str) -> str:
    return cast.label(member_id, instance_id) if cast.knows(member_id) else f"({client_id})"
