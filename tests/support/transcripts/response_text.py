"""The text of responses and groups in transcripts. Leaves out values that differ between runs."""

import re
from collections import Counter
from collections.abc import Iterable

from fakebroker.cluster.inspect.views import GroupView
from fakebroker.coordinator.rewrite.group import RewriteGroup
from fakebroker.coordinator.rewrite.states import CoordinatorState
from fakebroker.protocol.consumer_protocol import decode_assignment, decode_subscription
from fakebroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
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
from fakebroker.protocol.messages.rewrite_join_group import RewriteJoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from fakebroker.protocol.schema import Message
from tests.support.transcripts.consumers import consumer_group_text, consumers_text, heartbeat_text, joined_places
from tests.support.transcripts.error_text import error_text
from tests.support.transcripts.members import Members, TranscriptMember
from tests.support.transcripts.transaction_text import transaction_text

_NO_OPERATIONS = -(2**31)


def answer_text(members: Members, member: TranscriptMember, response: Message) -> str:
    """Return the text of a response, which `members` has received before."""
    match response:
        case JoinGroupResponse() if response.member_join_response_list:
            return _batch(members, response)
        case JoinGroupResponse():
            return _joined(members, member, response)
        case RewriteJoinGroupResponse():
            return _registered(members, member, response)
        case SyncGroupResponse():
            assignment = _assignment(response.assignment) or "(empty)"
            return error_text(response.error_code) if response.error_code else f"assignment {assignment}"
        case HeartbeatResponse():
            return error_text(response.error_code)
        case LeaveGroupResponse():
            each = [
                f"{_identity(members, m.member_id, m.group_instance_id)} {error_text(m.error_code)}"
                for m in response.members
            ]
            return ", ".join(each) if each and not response.error_code else error_text(response.error_code)
        case OffsetCommitResponse():
            return _partition_errors(response)
        case OffsetFetchResponse():
            return _fetched(response)
        case TxnOffsetCommitResponse():
            return _partition_errors(response)
        case FindCoordinatorResponse():
            found = response.coordinators[0] if response.coordinators else response
            return error_text(found.error_code) if found.error_code else f"broker {found.node_id}"
        case ConsumerGroupHeartbeatResponse():
            own = members.label(response.member_id or "")
            return heartbeat_text(response, None if own == member.name else own, members.topic_ids)
        case ConsumerGroupDescribeResponse():
            return consumers_text(response, members.label)
    return transaction_text(response) or _administered(members, response)


def _administered(members: Members, response: Message) -> str:
    match response:
        case DescribeGroupsResponse():
            return "; ".join(_described(members, group) for group in response.groups)
        case ListGroupsResponse():
            listed = ", ".join(_listed(group) for group in response.groups) or "no groups"
            return error_text(response.error_code) if response.error_code else listed
        case DeleteGroupsResponse():
            return ", ".join(f"{_group_name(each.group_id)} {error_text(each.error_code)}" for each in response.results)
        case OffsetDeleteResponse():
            return _partition_errors(response) or error_text(response.error_code)
    raise AssertionError(response)


def _partition_errors(response: OffsetCommitResponse | OffsetDeleteResponse | TxnOffsetCommitResponse) -> str:
    return ", ".join(
        f"{topic.name}-{partition.partition_index} {error_text(partition.error_code)}"
        for topic in response.topics
        for partition in topic.partitions
    )


def _identity(members: Members, member_id: str, instance_id: str | None) -> str:
    return members.label(member_id, instance_id) or '""'


def _joined(members: Members, member: TranscriptMember, response: JoinGroupResponse) -> str:
    own = members.label(response.member_id)
    if response.error_code:
        return error_text(response.error_code) + (f", id {own}" if own else "")
    parts = [
        f"generation {response.generation_id}",
        response.protocol_name or "",
        f"leader {members.label(response.leader)}" if response.leader else "no leader",
    ]
    if response.members:
        parts.append(
            "members " + joined_ranges(members.label(m.member_id, m.group_instance_id) for m in response.members)
        )
    if response.skip_assignment:
        parts.append("skip assignment")
    if own != member.name:
        parts.append(f"id {own}")
    return ", ".join(parts)


def _registered(members: Members, member: TranscriptMember, response: RewriteJoinGroupResponse) -> str:
    """Return the generation and the number of partitions; which ones depends on the ids, which differ between runs."""
    if response.error_code:
        return error_text(response.error_code)
    owned = Counter({topic.topic_name: len(topic.partitions) for topic in response.partitions_to_own})
    parts = [f"generation {response.group_generation_id}"]
    parts += [f"{number} of {topic}" for topic, number in owned.items()] or ["no partitions"]
    own = members.label(response.consumer_id)
    return ", ".join(parts + ([f"id {own}"] if own != member.name else []))


def rewrite_group_text(members: Members, state: CoordinatorState, group: RewriteGroup | None) -> str:
    """Return the text of a group of the proposal `rewrite`, as its coordinator has it."""
    if group is None:
        return f"{state.value}, no group"
    parts = [state.value, f"generation {group.generation_id}", group.strategy]
    for kind, ids in (("consumers", group.consumers), ("expired", group.expired)):
        if ids:
            known = sorted(members.label(each) if members.has_label(each) else "(new)" for each in ids)
            parts.append(f"{kind} {joined_ranges(known)}")
    return ", ".join(parts)


def _batch(members: Members, response: JoinGroupResponse) -> str:
    """Return the generation of a batch, if there is one, and the names of the members by the result of each."""
    by_outcome: dict[str, list[str]] = {}
    for each in response.member_join_response_list:
        label = members.label(each.member.member_id, each.member.group_instance_id) or '""'
        outcome = error_text(each.error_code) if each.error_code else "expected" if label[0] == "@" else "joined"
        by_outcome.setdefault(outcome, []).append(label)
    parts = [f"{outcome}: {joined_ranges(labels)}" for outcome, labels in by_outcome.items()]
    if "joined" in by_outcome:
        leads = (
            f"generation {response.generation_id}, {response.protocol_name}, leader {members.label(response.leader)}"
        )
        labels = [members.label(m.member_id, m.group_instance_id) for m in response.members]
        parts.insert(0, leads + (f", members {joined_ranges(labels)}" if labels else ""))
    return "; ".join(parts)


def joined_ranges(labels: Iterable[str]) -> str:
    """Join names with blanks; three or more with consecutive numbers are a range, `M[1-9]`."""
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


def _described(members: Members, group: DescribedGroup) -> str:
    """Return the text of a group in DescribeGroups, without empty fields."""
    parts = [error_text(group.error_code)] if group.error_code else []
    parts += [group.group_state] if group.group_state else []
    if group.protocol_type:
        parts.append("/".join(filter(None, [group.protocol_type, group.protocol_data])))
    if group.members:
        parts.append("members " + joined_ranges(_described_member(members, member) for member in group.members))
    if group.authorized_operations != _NO_OPERATIONS:
        parts.append(f"operations {group.authorized_operations}")
    return f"{_group_name(group.group_id)} {', '.join(parts)}"


def _described_member(members: Members, member: DescribedGroupMember) -> str:
    """Return a member with its metadata in brackets and its assignment."""
    label = _member_label(members, member.member_id, member.group_instance_id, member.client_id)
    metadata = f"[{_metadata(member.member_metadata)}]" if member.member_metadata else ""
    assignment = f"={_assignment(member.member_assignment)}" if member.member_assignment else ""
    return label + metadata + assignment


def _assignment(assignment: bytes) -> str:
    """Return the partitions of an assignment, or the assignment as text."""
    if assignment.startswith(b"\0"):
        return joined_places(sorted(decode_assignment(assignment)))
    return assignment.decode()


def _metadata(metadata: bytes) -> str:
    """Return the topics of a subscription, or the metadata as text."""
    if metadata.startswith(b"\0"):
        return ",".join(decode_subscription(metadata).topics)
    return metadata.decode()


def _listed(group: ListedGroup) -> str:
    parts = [_group_name(group.group_id), group.protocol_type or "-", group.group_state, group.group_type]
    return " ".join(filter(None, parts))


def group_text(members: Members, group: GroupView) -> str:
    """Return the text of a group, without empty fields. Members that have not got their id yet are in parentheses."""
    if group.state == "Dead":
        return group.state
    if group.type == "consumer":
        return consumer_group_text(group, lambda m: _member_label(members, m.member_id, m.instance_id, m.client_id))
    labels = {m.member_id: _member_label(members, m.member_id, m.instance_id, m.client_id) for m in group.members}
    parts = [group.state, f"generation {group.generation_id}"]
    if group.protocol_type is not None:
        parts.append(f"{group.protocol_type}/{group.protocol_name or '-'}")
    if group.leader_id is not None:
        parts.append(f"leader {labels[group.leader_id]}")
    if group.members:
        parts.append("members " + joined_ranges(labels.values()))
    parts += [
        f"producer {each.producer_id} has {each.topic}-{each.partition}={each.offset} pending"
        for each in group.pending_offsets
    ]
    return ", ".join(parts)


def _member_label(members: Members, member_id: str, instance_id: str | None, client_id: str) -> str:
    return members.label(member_id, instance_id) if members.has_label(member_id) else f"({client_id})"
