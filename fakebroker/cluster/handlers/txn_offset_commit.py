"""TxnOffsetCommit: commit offsets of a group in a transaction (KIP-98, KIP-447).

Unknown partitions get an error here. Then the offsets partition of the group is verified, or added to the transaction
(KIP-890); the group coordinator handles the rest.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, refusal, topic_error, transaction_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.transaction_verification import Verification, is_enabled
from fakebroker.cluster.late_response import LateResponse
from fakebroker.cluster.topics import OFFSETS_TOPIC
from fakebroker.coordinator.group.api import OffsetToCommit
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_VERIFIES, _LOOKS_FOR_TOPIC = Release(3, 7), Release(4, 0)
"""The first releases that verify partitions, and that look for the topic of the group's offsets."""

_FIRST_VERSION_OF_LOADING, _FIRST_VERSION_OF_ABORTABLE, _FIRST_VERSION_THAT_ADDS = 2, 4, 5
_FIRST_VERSION_WITH_TOPIC_IDS = 6  # KIP-1319

Key = tuple[str, bytes]
"""The name and the id of a topic, of which a request has one."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> Message | None:
    request: TxnOffsetCommitRequest = call.request
    denied = transaction_error(cluster, call, AclOperation.WRITE, request.transactional_id)
    if denied := denied or group_error(cluster, call, AclOperation.READ, request.group_id):
        return refusal(call, denied)
    by_id = call.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    refused: dict[Key, TxnOffsetCommitResponseTopic] = {}
    accepted: list[tuple[str, Key, list[TxnOffsetCommitRequestPartition]]] = []
    for topic in request.topics:
        key = topic.name, topic.topic_id
        known = cluster.topics.find(topic.name, topic.topic_id, by_id=by_id)
        if known is None and by_id:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            error = topic_error(cluster, call, AclOperation.READ, topic.name if known is None else known.name)
        if known is None or error:
            # Unlike a known one, such a topic is in the response without partitions, too.
            _refuse(refused, key, topic.partitions, error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        unknown = [each for each in topic.partitions if known.partition(each.partition_index) is None]
        if unknown:
            _refuse(refused, key, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if len(unknown) < len(topic.partitions):
            accepted.append((known.name, key, [each for each in topic.partitions if each not in unknown]))
    if not accepted:
        return _response(refused, [])
    offsets = [_offset(name, each) for name, _, partitions in accepted for each in partitions]

    def respond(errors: list[ErrorCode]) -> TxnOffsetCommitResponse:
        left = iter(errors)
        answered = [
            TxnOffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[_result(each, _in_version(next(left), call.api_version)) for each in partitions],
            )
            for _, (name, topic_id), partitions in accepted
        ]
        return _response(refused, answered)

    late: LateResponse[list[ErrorCode]] = LateResponse(respond)

    def verified(error: ErrorCode) -> None:
        if error:
            late([error] * len(offsets))
            return
        call.broker.coordinator.offsets.commit_pending(
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            request.producer_id,
            request.producer_epoch,
            offsets,
            cluster.now_ms,
            late,
            has_newer_errors=by_id,
        )

    _verify(cluster, call, verified)
    return late.take(cluster, call)


def _offset(topic: str, partition: TxnOffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        topic=topic,
        partition=partition.partition_index,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata,
    )


def _verify(cluster: "Cluster", call: Call, done: Callable[[ErrorCode], None]) -> None:
    """Check that the transaction may commit offsets of the group; `done` is called with NONE or the error."""
    request: TxnOffsetCommitRequest = call.request
    adds = call.api_version >= _FIRST_VERSION_THAT_ADDS
    if not request.group_id:
        done(ErrorCode.INVALID_GROUP_ID)
    elif call.broker.coordinator.error_for(request.group_id) is ErrorCode.NOT_COORDINATOR:
        is_missing = OFFSETS_TOPIC not in cluster.topics and call.broker.release >= _LOOKS_FOR_TOPIC
        done(ErrorCode.COORDINATOR_NOT_AVAILABLE if is_missing else ErrorCode.NOT_COORDINATOR)
    elif adds or (call.broker.release >= _VERIFIES and is_enabled(cluster)):
        partition = cluster.offsets_partition_of(request.group_id)
        producer = request.transactional_id, request.producer_id, request.producer_epoch
        has_abortable = call.api_version >= _FIRST_VERSION_OF_ABORTABLE
        verification = Verification(call.api.name, *producer, adds=adds, has_abortable=has_abortable)
        error = verification.error_of_epoch(partition, call.broker.release)
        if error or partition.log.producers.has_open(request.producer_id, request.producer_epoch):
            done(error)
        else:
            place = partition.topic.name, partition.index
            verification.ask(cluster, [place], lambda errors: done(errors.get(place, ErrorCode.NONE)))
    else:
        done(ErrorCode.NONE)


def _in_version(error: ErrorCode, api_version: int) -> ErrorCode:
    """Return an error as a version has it: producers of versions 0 and 1 fail if a coordinator loads (KAFKA-7296)."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < _FIRST_VERSION_OF_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _refuse(
    refused: dict[Key, TxnOffsetCommitResponseTopic],
    key: Key,
    partitions: Iterable[TxnOffsetCommitRequestPartition],
    error: ErrorCode,
) -> None:
    name, topic_id = key
    topic = refused.setdefault(key, TxnOffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[]))
    topic.partitions.extend(_result(each, error) for each in partitions)


def _result(partition: TxnOffsetCommitRequestPartition, error: ErrorCode) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)


def _response(
    refused: dict[Key, TxnOffsetCommitResponseTopic], answered: list[TxnOffsetCommitResponseTopic]
) -> TxnOffsetCommitResponse:
    """Return the response. As in Kafka, a topic that was named twice has two entries, unless something is refused."""
    if not refused:
        return TxnOffsetCommitResponse(topics=answered)
    for topic in answered:
        merged = refused.setdefault((topic.name, topic.topic_id), topic)
        if merged is not topic:
            merged.partitions.extend(topic.partitions)
    return TxnOffsetCommitResponse(topics=list(refused.values()))
