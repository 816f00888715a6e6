"""The commits of a group in a journal: when, by which member, which offset, and with which error."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Literal

import msgspec

from fakebroker.cluster.call import Call
from fakebroker.cluster.cluster import Cluster
from fakebroker.cluster.inspect.journal_queries import JournalView, view_journal
from fakebroker.cluster.inspect.views import pending_offsets
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.types import ZERO_UUID
from fakebroker.topic_partition import TopicPartition

TransactionOutcome = Literal["committed", "aborted", "open"]


class CommitView(msgspec.Struct, frozen=True):
    """One offset that a client has committed.

    Attributes:
        at_ms: When the request was received, by the brokers' clock, in milliseconds since the Unix epoch.
        topic: The topic.
        partition: The number of the partition.
        offset: The offset.
        metadata: What the client has stored with it.
        client_id: The client.
        member_id: The member; "" if the client is not a member.
        instance_id: Its `group.instance.id`; None for a dynamic member.
        generation: The generation, or the member epoch (KIP-848); -1 if the client is not a member.
        transactional_id: The transaction that the commit is part of; None without a transaction.
        transaction: Whether this transaction was "committed" or "aborted", or is "open"; None without a transaction.
        error: Kafka's name of the error of the partition; "NONE" if it was accepted.
    """

    at_ms: float
    topic: str
    partition: int
    offset: int
    metadata: str
    client_id: str
    member_id: str
    instance_id: str | None
    generation: int
    transactional_id: str | None
    transaction: TransactionOutcome | None
    error: str


def commits_of(cluster: Cluster, group_id: str, partition: TopicPartition | None, *, refused: bool) -> list[CommitView]:
    """Return the commits of a group that the coordinator has answered; see `GroupHandle.commits`."""
    journal = view_journal(cluster)
    if journal.mode != "full":
        raise ConfigError.of("journal", journal.mode, "full, because only then requests are kept")
    found = list[CommitView]()
    for at, call in enumerate(journal.calls):
        is_commit = call.api.name in ("OffsetCommit", "TxnOffsetCommit") and call.request is not None
        if is_commit and call.request.group_id == group_id and (response := _outcome(call)) is not None:
            transaction = _transaction(cluster, islice(journal.calls, at, None), call.request, group_id)
            found += _commits(call, response, transaction, journal)
    return [
        each
        for each in found
        if partition in (None, (each.topic, each.partition))
        and (refused or (each.error == ErrorCode.NONE.name and each.transaction != "aborted"))
    ]


def _outcome(call: Call) -> Any:
    """Return the response to a request as it was before a fault: the client may have got another one, or none."""
    outcome = None if call.boundaries_or_none is None else call.boundaries_or_none.outcome
    return call.response if outcome is None else outcome


def _transaction(cluster: Cluster, later: Iterable[Call], request: Any, group_id: str) -> TransactionOutcome | None:
    """Return what has become of the transaction of a commit; None for a commit without a transaction."""
    transactional_id = getattr(request, "transactional_id", None)
    if transactional_id is None:
        return None
    for call in later:
        if call.api.name in ("EndTxn", "InitProducerId") and transactional_id in call.transactional_ids:
            response = _outcome(call)
            if response is not None and not response.error_code:
                return "committed" if getattr(call.request, "committed", False) else "aborted"
    # A transaction that nobody has ended was aborted by its timeout, by another producer, or by an administrator.
    pending = {each.producer_id for each in pending_offsets(cluster, group_id)}
    return "open" if request.producer_id in pending else "aborted"


def _commits(
    call: Call, response: Any, transaction: TransactionOutcome | None, journal: JournalView
) -> list[CommitView]:
    def key(topic: Any, partition: Any) -> tuple[str, bytes, int]:
        return topic.name, getattr(topic, "topic_id", ZERO_UUID), partition.partition_index

    request = call.request
    errors = {key(topic, each): each.error_code for topic in response.topics for each in topic.partitions}
    return [
        CommitView(
            at_ms=call.received_ms,
            topic=topic.name or journal.topic_name(topic.topic_id) or topic.topic_id.hex(),
            partition=each.partition_index,
            offset=each.committed_offset,
            metadata=each.committed_metadata or "",
            client_id=call.client_id or "",
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            transactional_id=getattr(request, "transactional_id", None),
            transaction=transaction,
            error=ErrorCode(errors.get(key(topic, each), ErrorCode.NONE)).name,
        )
        for topic in request.topics
        for each in topic.partitions
    ]
