"""The text of responses and groups in transcripts. Leaves out times, and other values that differ between runs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable

from fakebroker.cluster.inspect.views import GroupView, MemberView
from fakebroker.conform.consumers import TopicIds, places
from fakebroker.conform.members import Members, TranscriptMember
from fakebroker.errors import ErrorCode
from fakebroker.proposals.batch_join.messages import BatchJoinGroupResponse
from fakebroker.proposals.consumer_rewrite.group import RewriteGroup
from fakebroker.proposals.consumer_rewrite.messages import RewriteJoinGroupResponse
from fakebroker.proposals.consumer_rewrite.states import CoordinatorState
from fakebroker.protocol.consumer_protocol import decode_assignment, decode_subscription
from fakebroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from fakebroker.protocol.messages.api_versions import ApiVersionsResponse
from fakebroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from fakebroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from fakebroker.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from fakebroker.protocol.messages.delete_records import DeleteRecordsResponse
from fakebroker.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from fakebroker.protocol.messages.describe_producers import DescribeProducersResponse, ProducerState
from fakebroker.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TransactionState as DescribedTransaction,
)
from fakebroker.protocol.messages.end_txn import EndTxnResponse
from fakebroker.protocol.messages.fetch import FetchResponse, PartitionData
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.init_producer_id import InitProducerIdResponse
from fakebroker.protocol.messages.join_group import JoinGroupResponse
from fakebroker.protocol.messages.leave_group import LeaveGroupResponse
from fakebroker.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from fakebroker.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse
from fakebroker.protocol.messages.list_transactions import ListTransactionsResponse
from fakebroker.protocol.messages.offset_commit import OffsetCommitResponse
from fakebroker.protocol.messages.offset_delete import OffsetDeleteResponse
from fakebroker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from fakebroker.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from fakebroker.protocol.messages.sync_group import SyncGroupResponse
from fakebroker.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from fakebroker.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from fakebroker.protocol.records import RecordBatch, decode_records, split_batches
from fakebroker.protocol.schema import Message
from fakebroker.protocol.transaction_markers import AbortedBatches, marker_in
from fakebroker.topic_partition import TopicPartition, by_topic

_NO_OPERATIONS = -(2**31)
_DEFAULT_INTERVAL_MS = 5_000
_NAMES = {each.value: each.name for each in ErrorCode}

Label = Callable[[str, str | None], str]
"""Returns the name of a member, given its member id and its instance id."""


def error_text(code: int) -> str:
    """Return number and name of an error code; NONE without its number. Newer releases have codes without a name."""
    if code == 0:
        return "NONE"
    return f"{code} {_NAMES.get(code, 'unknown')}"


def answer_text(members: Members, member: TranscriptMember, response: Message) -> str:
    """Return the text of a response, which `members` has received before."""
    match response:
        case BatchJoinGroupResponse():
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
            return "; ".join(_described(members, group) for group in sorted(response.groups, key=_group_id))
        case ListGroupsResponse():
            listed = ", ".join(sorted(_listed(group) for group in response.groups)) or "no groups"
            return error_text(response.error_code) if response.error_code else listed
        case DeleteGroupsResponse():
            results = sorted(response.results, key=_group_id)
            return ", ".join(f"{_group_name(each.group_id)} {error_text(each.error_code)}" for each in results)
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
            "members " + sorted_ranges(members.label(m.member_id, m.group_instance_id) for m in response.members)
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


def _batch(members: Members, response: BatchJoinGroupResponse) -> str:
    """Return the names of members by the result of their join. If members joined, the generation comes first."""
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


def sorted_ranges(labels: Iterable[str]) -> str:
    """Join names in their natural order, because members of a group have no order."""
    return joined_ranges(sorted(labels, key=_natural))


def _natural(label: str) -> list[tuple[int, str]]:
    """Return the key that sorts M2 before M10, and (A) as A."""
    return [(int(each), "") if each.isdigit() else (0, each) for each in re.split(r"(\d+)", label.lstrip("("))]


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
    return ", ".join(sorted(old + new)) or "no offsets"


def _offset(topic: str, partition: OffsetFetchResponsePartition | OffsetFetchResponsePartitions) -> str:
    text = f"{topic}-{partition.partition_index}={partition.committed_offset}"
    text += f" epoch {partition.committed_leader_epoch}" if partition.committed_leader_epoch != -1 else ""
    text += f" {partition.metadata!r}" if partition.metadata else ""
    return text + (f" {error_text(partition.error_code)}" if partition.error_code else "")


def _group_id(result: DescribedGroup | DeletableGroupResult | DescribedConsumerGroup) -> str:
    """Return the key that orders results: Kafka returns them by partition, and in any order."""
    return result.group_id


def _group_name(group_id: str) -> str:
    return group_id or '""'


def _described(members: Members, group: DescribedGroup) -> str:
    """Return the text of a group in DescribeGroups, without empty fields."""
    parts = [error_text(group.error_code)] if group.error_code else []
    parts += [group.group_state] if group.group_state else []
    if group.protocol_type:
        parts.append("/".join(filter(None, [group.protocol_type, group.protocol_data])))
    if group.members:
        parts.append("members " + sorted_ranges(_described_member(members, member) for member in group.members))
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
        parts.append("members " + sorted_ranges(labels.values()))
    parts += [
        f"producer {each.producer_id} has {each.topic}-{each.partition}={each.offset} pending"
        for each in group.pending_offsets
    ]
    return ", ".join(parts)


def _member_label(members: Members, member_id: str, instance_id: str | None, client_id: str) -> str:
    return members.label(member_id, instance_id) if members.has_label(member_id) else f"({client_id})"


# Members of consumer groups


def heartbeat_text(response: ConsumerGroupHeartbeatResponse, own: str | None, topic_ids: TopicIds) -> str:
    """Return the text of a ConsumerGroupHeartbeat: the epoch, and the assignment if the response has one.

    Args:
        response: The response.
        own: The name of the member id, if it differs from the member's name; else None.
        topic_ids: The topics.
    """
    if response.error_code:
        return error_text(response.error_code)
    parts = [f"epoch {response.member_epoch}"]
    if response.assignment is not None:
        parts.append(f"assignment {joined_places(places(response, topic_ids))}")
    if response.member_epoch > 0 and response.heartbeat_interval_ms != _DEFAULT_INTERVAL_MS:
        parts.append(f"interval {response.heartbeat_interval_ms} ms")
    return ", ".join(parts + ([f"id {own}"] if own else []))


def consumers_text(response: ConsumerGroupDescribeResponse, label: Label) -> str:
    """Return the text of a ConsumerGroupDescribe."""
    return "; ".join(_described_consumer_group(group, label) for group in sorted(response.groups, key=_group_id))


def _described_consumer_group(group: DescribedConsumerGroup, label: Label) -> str:
    name = group.group_id or '""'
    if group.error_code:
        return f"{name} {error_text(group.error_code)}"
    epochs = f"epoch {group.group_epoch}, assignment epoch {group.assignment_epoch}"
    parts = [f"{name} {group.group_state}, {epochs}, {group.assignor_name}"]
    parts += sorted((_described_consumer(member, label) for member in group.members), key=_natural)
    if group.authorized_operations != _NO_OPERATIONS:
        parts.append(f"operations {group.authorized_operations}")
    return ", ".join(parts)


def _described_consumer(member: DescribedConsumer, label: Label) -> str:
    subscription = ",".join([*sorted(member.subscribed_topic_names), *filter(None, [member.subscribed_topic_regex])])
    rack = f" rack {member.rack_id}" if member.rack_id else ""
    now, target = _described_places(member.assignment), _described_places(member.target_assignment)
    text = f"{label(member.member_id, member.instance_id)}[{subscription}]{rack} at {member.member_epoch} has {now}"
    return text if now == target else f"{text} of {target}"


def _described_places(assignment: DescribedAssignment) -> str:
    return joined_places(
        sorted((topic.topic_name, each) for topic in assignment.topic_partitions for each in topic.partitions)
    )


def consumer_group_text(group: GroupView, label: Callable[[MemberView], str]) -> str:
    """Return the text of a consumer group as its coordinator has it, with the states of its members."""
    parts = [group.state, f"epoch {group.generation_id}"]
    if group.assignment_epoch != group.generation_id:
        parts.append(f"assignment epoch {group.assignment_epoch}")
    return ", ".join([*parts, *sorted((_member(each, label(each)) for each in group.members), key=_natural)])


def _member(member: MemberView, name: str) -> str:
    state = (member.state or "").removesuffix("_PARTITIONS")
    kind = " classic" if member.type == "classic" else ""
    text = f"{name}{kind} {state} at {member.member_epoch} has {joined_places(member.assigned_partitions or ())}"
    return f"{text} gives up {joined_places(member.pending_revocation)}" if member.pending_revocation else text


def joined_places(places: Iterable[TopicPartition]) -> str:
    """Return partitions by topic, such as news-0,1,2; `nothing` if there are none."""
    return (
        " ".join(f"{topic}-{','.join(map(str, indexes))}" for topic, indexes in by_topic(places).items()) or "nothing"
    )


# Producers, readers and admins of transactions


def transaction_text(response: Message) -> str:
    """Return the text of a response to a producer, a reader or an admin of transactions, else ""."""
    match response:
        case InitProducerIdResponse() | EndTxnResponse():
            if response.error_code or response.producer_id < 0:
                return error_text(response.error_code)
            return f"producer {response.producer_id}, epoch {response.producer_epoch}"
        case AddPartitionsToTxnResponse():
            return _added_text(response)
        case AddOffsetsToTxnResponse():
            return error_text(response.error_code)
        case ProduceResponse():
            rows = [(topic.name, each) for topic in response.responses for each in topic.partition_responses]
            return ", ".join(_produced_text(name, each) for name, each in rows)
        case FetchResponse():
            return ", ".join(_fetched_text(each) for topic in response.responses for each in topic.partitions)
        case ListOffsetsResponse():
            return ", ".join(_offset_text(each) for topic in response.topics for each in topic.partitions)
    return _described_text(response)


def _described_text(response: Message) -> str:
    match response:
        case DescribeProducersResponse():
            return "; ".join(
                error_text(each.error_code)
                if each.error_code
                else ", ".join(sorted(map(_producer_text, each.active_producers))) or "no producers"
                for topic in response.topics
                for each in topic.partitions
            )
        case DescribeTransactionsResponse():
            return "; ".join(map(_transaction_text, response.transaction_states))
        case ListTransactionsResponse():
            if response.error_code:
                return error_text(response.error_code)
            found = sorted(f"{each.transactional_id} {each.transaction_state}" for each in response.transaction_states)
            unknown = [f"unknown state {each}" for each in response.unknown_state_filters]
            return ", ".join([*(found or ["no transactions"]), *unknown])
        case WriteTxnMarkersResponse():
            return ", ".join(
                f"{topic.name}-{each.partition_index} {error_text(each.error_code)}"
                for result in response.markers
                for topic in sorted(result.topics, key=lambda topic: topic.name)
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            )
        case DeleteRecordsResponse():
            return ", ".join(
                error_text(each.error_code) if each.error_code else f"starts at {each.low_watermark}"
                for topic in response.topics
                for each in topic.partitions
            )
        case ApiVersionsResponse():
            levels = {each.name: each.max_version_level for each in response.finalized_features}
            return f"transaction.version {levels.get('transaction.version', 'not finalized')}"
    return ""


def _added_text(response: AddPartitionsToTxnResponse) -> str:
    rows = [*response.results_by_topic_v3_and_below]
    rows += [topic for each in response.results_by_transaction for topic in each.topic_results]
    texts = [
        f"{topic.name}-{each.partition_index} {error_text(each.partition_error_code)}"
        for topic in rows
        for each in topic.results_by_partition
    ]
    return ", ".join(sorted(texts)) or error_text(response.error_code)


def _produced_text(topic: str, row: PartitionProduceResponse) -> str:
    outcome = error_text(row.error_code) if row.error_code else f"at {row.base_offset}"
    return f"{topic}-{row.index} {outcome}" + (", with a message" if row.error_code and row.error_message else "")


def _fetched_text(data: PartitionData) -> str:
    if data.error_code:
        return f"{error_text(data.error_code)}, stable {data.last_stable_offset}"
    batches = split_batches(data.records or b"")
    parts = [" ".join(_batch_text(each) for each in batches) or "nothing"]
    parts.append(f"stable {data.last_stable_offset}, end {data.high_watermark}")
    if data.aborted_transactions:
        in_order = sorted(data.aborted_transactions, key=lambda each: each.first_offset)
        listed = " ".join(f"{each.producer_id}@{each.first_offset}" for each in in_order)
        skipped = AbortedBatches(data.aborted_transactions)
        kept = [each for each in batches if not skipped.contain(each) and not each.is_control]
        parts += [f"aborted {listed}", f"visible {' '.join(map(_batch_text, kept)) or 'nothing'}"]
    return ", ".join(parts)


def _batch_text(batch: RecordBatch) -> str:
    if (marker := marker_in(batch)) is not None:
        return f"{'COMMIT' if marker.is_commit else 'ABORT'}/{batch.producer_epoch}@{batch.base_offset}"
    return " ".join(f"{(each.value or b'').decode()}@{each.offset}" for each in decode_records(batch))


def _offset_text(row: ListOffsetsPartitionResponse) -> str:
    return error_text(row.error_code) if row.error_code else f"offset {row.offset}"


def _producer_text(producer: ProducerState) -> str:
    text = f"producer {producer.producer_id} epoch {producer.producer_epoch} sequence {producer.last_sequence}"
    text += f" coordinator {producer.coordinator_epoch}"
    start = producer.current_txn_start_offset
    return text if start < 0 else f"{text} open at {start}"


def _transaction_text(found: DescribedTransaction) -> str:
    if found.error_code:
        return error_text(found.error_code)
    places = sorted(f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions)
    return " ".join(
        [found.transaction_state, f"producer {found.producer_id}", f"epoch {found.producer_epoch}", *places]
    )
