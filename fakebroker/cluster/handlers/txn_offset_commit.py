"""TxnOffsetCommit: commit offsets of a group in a transaction (KIP-98, KIP-447).

Unknown partitions get an error here. Then the offsets partition of the group is verified, or added to the transaction
(KIP-890); the group coordinator handles the rest.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import group_error, refusal, topic_error, transaction_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.handlers.transaction_verification import Verification, is_enabled
from fakebroker.cluster.topics import OFFSETS_TOPIC
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
    commit = Commit(cluster, call, refused, accepted)
    verified = commit.verify()
    return None if verified is None else commit.response(verified)


class Commit:
    """A TxnOffsetCommit in progress: it is verified, which may wait for the transaction coordinator, then stored.

    Args:
        cluster: The cluster.
        call: The request.
        refused: The topics with errors, by name and id.
        accepted: The name, the name and id in the request, and the partitions of the other topics.
    """

    def __init__(
        self,
        cluster: "Cluster",
        call: Call,
        refused: dict[Key, TxnOffsetCommitResponseTopic],
        accepted: Sequence[tuple[str, Key, list[TxnOffsetCommitRequestPartition]]],
    ) -> None:
        self._cluster, self._call, self._refused, self._accepted = cluster, call, refused, accepted
        request: TxnOffsetCommitRequest = call.request
        self._verification = Verification(
            call.api.name,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            adds=call.api_version >= _FIRST_VERSION_THAT_ADDS,
            has_abortable=call.api_version >= _FIRST_VERSION_OF_ABORTABLE,
        )

    def verify(self) -> ErrorCode | None:
        """Check that the transaction may commit offsets of the group.

        Returns:
            NONE or the error; None if the request waits until the record of its transaction is released.
        """
        cluster, call = self._cluster, self._call
        request: TxnOffsetCommitRequest = call.request
        verification = self._verification
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if call.broker.coordinator.error_for(request.group_id) is ErrorCode.NOT_COORDINATOR:
            is_missing = OFFSETS_TOPIC not in cluster.topics and call.broker.release >= _LOOKS_FOR_TOPIC
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_missing else ErrorCode.NOT_COORDINATOR
        if not verification.adds and not (call.broker.release >= _VERIFIES and is_enabled(cluster)):
            return ErrorCode.NONE
        partition = cluster.offsets_partition_of(request.group_id)
        error = verification.error_of_epoch(partition, call.broker.release)
        if error or partition.log.producers.has_open(request.producer_id, request.producer_epoch):
            return error
        place = partition.topic.name, partition.index
        errors = verification.ask(cluster, [place], self)
        return None if errors is None else errors.get(place, ErrorCode.NONE)

    def released(self, error: ErrorCode) -> None:
        """Continue after the coordinator has stored the record that was held, with its error."""
        response = self.response(self._verification.in_version(error))
        self._cluster.requests.answer(self._call, response, self._cluster.now_ms)

    def response(self, error: ErrorCode) -> TxnOffsetCommitResponse:
        """Commit the offsets, unless the verification has an error, and return the response."""
        call = self._call
        request: TxnOffsetCommitRequest = call.request
        offsets = [(name, each) for name, _, partitions in self._accepted for each in partitions]
        if error:
            errors = [error] * len(offsets)
        else:
            errors = call.broker.coordinator.offsets.commit_pending(
                request,
                offsets,
                self._cluster.now_ms,
                has_newer_errors=call.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS,
            )
        left = iter(errors)
        answered = [
            TxnOffsetCommitResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[_result(each, _in_version(next(left), call.api_version)) for each in partitions],
            )
            for _, (name, topic_id), partitions in self._accepted
        ]
        return _response(self._refused, answered)


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
