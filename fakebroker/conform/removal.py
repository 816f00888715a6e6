"""Removes the groups and topics of transcripts from a Kafka cluster (trio)."""

from collections.abc import Iterable, Sequence
from typing import Any

import trio

from fakebroker.cluster.topics import NO_LEADER
from fakebroker.conform.names import Names
from fakebroker.conform.raw_cluster import RawCluster
from fakebroker.errors import ErrorCode, FakebrokerError
from fakebroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fakebroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fakebroker.protocol.messages.delete_groups import DeleteGroupsRequest
from fakebroker.protocol.messages.describe_groups import DescribeGroupsRequest
from fakebroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from fakebroker.protocol.messages.init_producer_id import InitProducerIdRequest
from fakebroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fakebroker.protocol.schema import Message

_ATTEMPTS = 20
_GONE = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)


async def remove(cluster: RawCluster, names: Sequence[Names]) -> list[str]:
    """Remove all groups and topics, and end open transactions.

    Returns:
        A sentence for each thing that could not be removed. Transactional ids cannot be removed; they expire.
    """
    left: list[str] = []
    try:
        await cluster.remove_acls()
        await _end_transactions(cluster, [each for own in names for each in own.transactional_ids])
        left += await delete_groups(cluster, [each for own in names for each in own.groups])
        left += await cluster.delete_topics([each for own in names for each in own.topics])
        await cluster.restore()
    except (FakebrokerError, trio.TooSlowError) as error:
        left.append(f"what was not removed yet: {error}")
    return left


async def _by_coordinator(cluster: RawCluster, keys: Sequence[str], key_type: int) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    if keys:
        for key, node_id in (await cluster.find(keys, key_type)).items():
            found.setdefault(node_id, []).append(key)
    found.pop(NO_LEADER, None)
    return found


async def _end_transactions(cluster: RawCluster, transactional_ids: Sequence[str]) -> None:
    for node_id, ids in (await _by_coordinator(cluster, transactional_ids, 1)).items():
        described: Any = await cluster.ask(DescribeTransactionsRequest(transactional_ids=ids), Message, node_id)
        for each in described.transaction_states:
            if each.transaction_state == "Ongoing":
                request = InitProducerIdRequest(transactional_id=each.transactional_id, transaction_timeout_ms=60_000)
                await cluster.ask(request, Message, node_id)


async def delete_groups(cluster: RawCluster, groups: Sequence[str]) -> list[str]:
    """Delete groups, also with members. Return a sentence for each one that could not be deleted."""
    remaining = list(groups)
    faults: dict[str, str] = {}
    for attempt in range(_ATTEMPTS):
        faults = {}
        for node_id, ids in (await _by_coordinator(cluster, remaining, 0)).items():
            response: Any = await cluster.ask(DeleteGroupsRequest(groups_names=ids), Message, node_id)
            failed = {each.group_id: ErrorCode(each.error_code) for each in response.results}
            failed = {group_id: error for group_id, error in failed.items() if error not in _GONE}
            await _remove_members(
                cluster, node_id, [group for group, error in failed.items() if error == ErrorCode.NON_EMPTY_GROUP]
            )
            faults |= {group_id: error.name for group_id, error in failed.items()}
        remaining = list(faults)
        if not remaining:
            break
        await trio.sleep(0.05 * attempt)
    return [f"group {group_id}: {error}" for group_id, error in faults.items()]


async def _remove_members(cluster: RawCluster, node_id: int, groups: Iterable[str]) -> None:
    """Let all members of groups leave."""
    for group_id in groups:
        described: Any = await cluster.ask(DescribeGroupsRequest(groups=[group_id]), Message, node_id, 5)
        members = [
            MemberIdentity(member_id=each.member_id, group_instance_id=each.group_instance_id)
            for each in described.groups[0].members
        ]
        if members:
            await cluster.ask(LeaveGroupRequest(group_id=group_id, members=members), Message, node_id)
            continue
        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        consumers: Any = await cluster.ask(request, Message, node_id)
        for each in consumers.groups[0].members:
            leave = ConsumerGroupHeartbeatRequest(
                group_id=group_id, member_id=each.member_id, member_epoch=-1, instance_id=each.instance_id
            )
            await cluster.ask(leave, Message, node_id)
            classic = MemberIdentity(member_id=each.member_id, group_instance_id=each.instance_id)
            await cluster.ask(LeaveGroupRequest(group_id=group_id, members=[classic]), Message, node_id)
