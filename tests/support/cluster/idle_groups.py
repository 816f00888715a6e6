"""Adds groups with one member and one committed offset to a cluster without sockets, by requests.

The frames take the path of those that a server receives, as in `group_frames.py`.
"""

from typing import TypeVar

from fakebroker import FakeCluster
from fakebroker.cluster.call import Peer, read_call
from fakebroker.cluster.journal.journal import JournalMode
from fakebroker.protocol.consumer_protocol import encode_assignment, encode_subscription
from fakebroker.protocol.frames import request_frame, response_frame
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from fakebroker.protocol.schema import Message
from fakebroker.server.fake_cluster import internals

R = TypeVar("R", bound=Message)

TOPIC = "orders"
_JOIN_VERSION, _SYNC_VERSION, _COMMIT_VERSION = 3, 5, 8  # From version 4 of JoinGroup, new members join twice.
_TIMEOUT_MS = 1_800_000
_SUBSCRIPTION, _ASSIGNMENT = encode_subscription([TOPIC]), encode_assignment([(TOPIC, 0)])


class IdleGroups:
    """A cluster with one broker, to which groups are added.

    Args:
        journal: What the journal keeps.

    Attributes:
        cluster: The cluster.
    """

    def __init__(self, journal: JournalMode = "full") -> None:
        config = {"group.initial.rebalance.delay.ms": 0}
        cluster = FakeCluster(1, {TOPIC: 1}, config, seed=1, clock="manual", journal=journal)
        self.cluster = internals(cluster).cluster
        self._peer = Peer(self.cluster.brokers[1], "/127.0.0.1", 1)
        self._count = 0

    def add(self, count: int) -> None:
        """Add groups: each member joins, gets its assignment, and commits an offset."""
        for number in range(self._count, self._count + count):
            self._add(f"billing-{number:07d}", number)
        self._count += count

    def _add(self, group_id: str, number: int) -> None:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)]
        join = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=_TIMEOUT_MS,
            rebalance_timeout_ms=_TIMEOUT_MS,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        joined = self._send(join, _JOIN_VERSION, JoinGroupResponse)
        assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=_ASSIGNMENT)
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        )
        synced = self._send(sync, _SYNC_VERSION, SyncGroupResponse)
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1_000 + number, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=joined.generation_id,
            member_id=joined.member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
        )
        committed = self._send(commit, _COMMIT_VERSION, OffsetCommitResponse)
        errors = joined.error_code, synced.error_code, committed.topics[0].partitions[0].error_code
        assert errors == (0, 0, 0), f"group {group_id}: errors {errors}"

    def _send(self, request: Message, version: int, kind: type[R]) -> R:
        cluster = self.cluster
        call = read_call(self._peer, request_frame(request, version, 1, "consumer-billing-1")[4:])
        if not cluster.requests.handle(call, cluster.now_ms):
            (call,) = cluster.requests.answered
            cluster.requests.answered = []
        frame = response_frame(call.response, call.response_version, call.correlation_id)
        if len(frame) >= cluster.journal.min_response_bytes or call.kept is not None:
            cluster.journal.add_response(call, len(frame))
        assert isinstance(call.response, kind)
        return call.response
