"""The whole cluster: frames of any bytes to `Cluster.handle`, in memory, while a well-behaved client goes on."""

from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from typing import Any

from fakebroker.cluster.call import Call, Peer, read_call
from fakebroker.coordinator import invariants
from fakebroker.coordinator.classic.group import Group
from fakebroker.errors import ErrorCode, ProtocolError
from fakebroker.protocol.frames import encoded_response_frame, request_frame, response_frame
from fakebroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from fakebroker.protocol.messages.fetch import FetchRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.offset_commit import OffsetCommitRequestPartition
from fakebroker.protocol.messages.produce import ProduceRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest
from tests.fuzz.steps import LAYOUTS, StepKind, frame_step, parse_steps
from tests.fuzz.targets.transcripts import recorded_steps
from tests.support.cluster.cluster_harness import ClusterHarness
from tests.support.group_requests import commit_of, heartbeat_request, join_request, sync_request
from tests.support.message_versions import NEWEST_VERSIONS, REQUESTS, filled

SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""Those of transcripts, so that their member ids are the same here."""

CONNECTIONS = 4
MAX_STEPS = 100
_MAX_ADVANCE_MS = 25 * 60_000
"""How much the clock advances between two heartbeats of the well-behaved client, at most."""

_SESSION_MS = 30 * 60_000
_END_MS = 2 * 3600_000


def run(data: bytes) -> None:
    """Send frames to a cluster.

    After each step, the invariants of all groups hold, and another client's group is untouched. A frame is answered,
    waits, or is refused by a `ProtocolError`; each response can be encoded.

    Args:
        data: The number of a layout, and the steps (see `tests/fuzz/steps.py`).
    """
    play = _Play(data[0] if data else 0)
    for number, step in enumerate(parse_steps(data)):
        if number == MAX_STEPS:
            break
        match step.kind:
            case StepKind.SEND:
                play.send(play.harness.peer(1 + step.number % play.brokers), step.frame)
            case StepKind.SEND_AGAIN:
                play.send_again(step.number % CONNECTIONS, step.frame)
            case StepKind.ADVANCE:
                play.advance(step.by_ms)
            case StepKind.CLOSE:
                play.close(step.number % CONNECTIONS)
        play.check()
    play.end()


class _Play:
    """A cluster while it receives frames.

    Attributes:
        brokers: The number of brokers.
        harness: The cluster.
    """

    def __init__(self, layout: int) -> None:
        self.brokers, topics = LAYOUTS[layout % len(LAYOUTS)]
        self.harness = ClusterHarness(topics, self.brokers, SETTINGS)
        self._cluster = self.harness.cluster
        self._checker = invariants.StepChecker()
        self._repeating: set[Group] = set()
        self._open: dict[int, Peer] = {}
        self._pending: dict[Peer, Call] = {}
        self._other = _OtherClient(self.harness)

    def send(self, peer: Peer, frame: bytes) -> None:
        """Send a frame on a connection without a pending request."""
        try:
            call = read_call(peer, frame)
        except ProtocolError:
            return
        if self._cluster.requests.handle(call, self.harness.now_ms):
            _check_answer(call)
        else:
            self._pending[peer] = call
            self._cluster.faults.actions.run()
        self._take_answers()

    def send_again(self, number: int, frame: bytes) -> None:
        """Send a frame on an open connection; one that waits for a response is closed before."""
        peer = self._open.get(number)
        if peer in self._pending:
            self.close(number)
            peer = None
        if peer is None:
            peer = self._open[number] = self.harness.peer()
        self.send(peer, frame)

    def close(self, number: int) -> None:
        """Close a connection, if it is open."""
        peer = self._open.pop(number, None)
        if peer is not None:
            self._pending.pop(peer, None)
            self._cluster.forget(peer)

    def advance(self, by_ms: int) -> None:
        """Advance the clock, while the other client sends heartbeats."""
        while by_ms > 0:
            step_ms = min(by_ms, _MAX_ADVANCE_MS)
            self.harness.advance(step_ms)
            self._take_answers()
            by_ms -= step_ms
            self.check()

    def check(self) -> None:
        """Check the groups, and send requests of the other client."""
        for broker in self._cluster.brokers.values():
            for group in broker.coordinator.groups.classic.values():
                if isinstance(group, Group):
                    if group.repeating_members:
                        self._repeating.add(group)
                    if group not in self._repeating:  # Else a rebalance may never end, as in Kafka.
                        invariants.check(group)
                    self._checker.check_step(group)
        self._other.check()
        self._take_answers()

    def end(self) -> None:
        """Check that each request that still waits is answered in the end, if its connection is open."""
        self.advance(_END_MS)
        waiting = [call for call in self._pending.values() if _has_to_be_answered(call)]
        assert not waiting, f"not answered: {waiting}"

    def _take_answers(self) -> None:
        answered, self._cluster.requests.answered[:] = self._cluster.requests.answered[:], []
        for call in answered:
            if self._pending.pop(call.peer, None) is not None:
                _check_answer(call)


def _check_answer(call: Call) -> None:
    """Encode a response as the reactor does."""
    if call.body is not None:
        encoded_response_frame(call.api.response, call.body, call.response_version, call.correlation_id)
    elif call.response is not None:
        response_frame(call.response, call.response_version, call.correlation_id)


def _has_to_be_answered(call: Call) -> bool:
    """Return whether Kafka has answered a request when `_END_MS` have passed since."""
    match call.request:
        case ProduceRequest(acks=acks):
            return acks != 0
        case FetchRequest(max_wait_ms=max_wait_ms):
            return max_wait_ms < _END_MS
        case JoinGroupRequest() | SyncGroupRequest():
            return False  # A later request of the member supersedes it (ClassicGroup.updateMember).
        case AddPartitionsToTxnRequest(transactions=transactions):
            return call.api_version < 4 or bool(transactions)
    return True


class _OtherClient:
    """A client whose group and offsets no frame concerns: the names of its group and topic cannot be guessed.

    Args:
        harness: The cluster. Its ids are counted without those of this client.
    """

    def __init__(self, harness: ClusterHarness) -> None:
        self._harness = harness
        self._cluster = harness.cluster
        names = (sha256(f"other {number}".encode()) for number in count())
        self._group_id, self._topic = (next(names).hexdigest() for _ in range(2))
        new_id, self._cluster.new_id = self._cluster.new_id, lambda: next(names).digest()[:16]
        placed, self._cluster.placement.placed_topics = self._cluster.placement.placed_topics, 0
        self._cluster.create_new_topic(self._topic, 1)
        self._member_id = self._ask(join_request(self._group_id, session_timeout_ms=_SESSION_MS), 3).member_id
        assignments = {self._member_id: b"all"}
        self._ask(sync_request(self._member_id, self._group_id, 1, assignments, version=3), 3)
        committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="kept")
        self._ask(
            commit_of(
                committed,
                group_id=self._group_id,
                topic=self._topic,
                member_id=self._member_id,
                generation_id_or_member_epoch=1,
            ),
            7,
        )
        self._cluster.new_id, self._cluster.placement.placed_topics = new_id, placed

    def check(self) -> None:
        """Send a heartbeat, and look at the committed offset."""
        coordinator = self._cluster.coordinator_of(self._group_id)
        if coordinator is None:
            return
        answer = self._ask(heartbeat_request(self._group_id, self._member_id, 1), 3)
        assert answer.error_code == ErrorCode.NONE, f"heartbeat of another group: {ErrorCode(answer.error_code).name}"
        error, [(_, _, committed)] = coordinator.coordinator.offsets.fetch(self._group_id, [(self._topic, 0)])
        assert not error
        assert committed is not None, "the offset of another group is lost"
        assert (committed.offset, committed.metadata) == (42, "kept")

    def _ask(self, request: Any, version: int) -> Any:
        coordinator = self._cluster.coordinator_of(self._group_id)
        assert coordinator is not None
        return self._harness.ask(request, version, broker=coordinator.node_id, client_id="other")


def seeds() -> Iterator[bytes]:
    """Yield the requests of transcripts, and one request of each API."""
    for layout, steps in recorded_steps():
        yield bytes([layout]) + steps
    for cls, version in NEWEST_VERSIONS:
        if cls in REQUESTS:
            yield b"\x00" + frame_step(1, request_frame(filled(cls, version), version, 1, "client")[4:])
