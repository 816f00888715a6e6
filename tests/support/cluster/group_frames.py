"""`GroupFrames`: a group at a cluster without sockets, whose members send frames.

The frames take the path of those that a server receives: they are decoded, handled, counted in the journal and encoded
as in `server/reactor.py`.
"""

from collections.abc import Iterable

from fakebroker import FakeCluster
from fakebroker.cluster.call import Call, Peer, read_call
from fakebroker.protocol.consumer_protocol import encode_assignment, encode_subscription
from fakebroker.protocol.frames import read_response, request_frame, response_frame
from fakebroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from fakebroker.protocol.schema import Message
from fakebroker.server.fake_cluster import internals

GROUP = "group"
FIRST_JOIN_VERSION, JOIN_VERSION, SYNC_VERSION = 3, 9, 5  # From version 4, new members join twice (KIP-394).
_TIMEOUT_MS = 600_000

Frames = list[tuple[int, bytes]]
"""Numbers of connections, and the frame of a request on each, without its size field."""


class GroupFrames:
    """A cluster with one broker, and the consumers of one group, each with its own connection.

    Args:
        members: Number of members, which join the group and receive assignments.

    Attributes:
        cluster: The cluster.
        member_ids: The members, the leader first.
        generation_id: The generation that the members know.
        peers: The connections of the members.
    """

    def __init__(self, members: int) -> None:
        cluster = FakeCluster(1, {"orders": 1}, {"group.initial.rebalance.delay.ms": 3_000}, seed=1)
        self.cluster = internals(cluster).cluster
        self.member_ids = [""] * members
        self.generation_id = 0
        self.peers = [Peer(self.cluster.brokers[1], "/127.0.0.1", number) for number in range(members)]
        self._now_ms = self.cluster.now_ms
        responses = self.send(self.join_requests(FIRST_JOIN_VERSION))
        while not responses:  # The initial delay is extended.
            self._now_ms = self.cluster.next_deadline() or 0.0
            self.cluster.tick(self._now_ms)
            responses = self._responses()
        self.finish_join(responses, FIRST_JOIN_VERSION)
        self.finish_sync(self.send(self.sync_requests()))

    def join_requests(self, version: int = JOIN_VERSION) -> Frames:
        """Return a JoinGroup of each member, the leader first, because its join starts a rebalance."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=encode_subscription(["orders"]))
        return [
            (number, _frame(_join(member_id, protocol), version)) for number, member_id in enumerate(self.member_ids)
        ]

    def sync_requests(self) -> Frames:
        """Return a SyncGroup of each member for the known generation, the leader last, with the assignments."""
        assignments = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment([("orders", number)]))
            for number, member_id in enumerate(self.member_ids)
        ]
        frames = [
            (number, _frame(self._sync(member_id, [] if number else assignments), SYNC_VERSION))
            for number, member_id in enumerate(self.member_ids)
        ]
        return [*frames[1:], frames[0]]

    def _sync(self, member_id: str, assignments: list[SyncGroupRequestAssignment]) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )

    def send(self, requests: Iterable[tuple[int, bytes]]) -> dict[int, bytearray]:
        """Handle requests, and return the frames of the responses that are complete then, by connection."""
        cluster = self.cluster
        responses = {}
        for number, frame in requests:
            call = read_call(self.peers[number], frame)
            if cluster.requests.handle(call, self._now_ms):
                responses[number] = self._response(call)
            if cluster.requests.answered:
                responses |= self._responses()
        return responses

    def _responses(self) -> dict[int, bytearray]:
        """Return the frames of the responses to calls that `Cluster.handle` has not answered."""
        answered, self.cluster.requests.answered = self.cluster.requests.answered, []
        return {call.connection_id: self._response(call) for call in answered}

    def _response(self, call: Call) -> bytearray:
        journal = self.cluster.journal
        frame = response_frame(call.response, call.response_version, call.correlation_id)
        if len(frame) >= journal.min_response_bytes or call.kept is not None:
            journal.add_response(call, len(frame))
        return frame

    def finish_join(self, responses: dict[int, bytearray], version: int = JOIN_VERSION) -> None:
        """Check that all members have joined, and set their ids and their generation."""
        assert len(responses) == len(self.member_ids)
        for number, frame in responses.items():
            _, joined = read_response(JoinGroupResponse, version, bytes(frame[4:]))
            assert joined.error_code == 0
            assert len(joined.members) == (0 if number else len(self.member_ids))
            self.member_ids[number], self.generation_id = joined.member_id, joined.generation_id

    def finish_sync(self, responses: dict[int, bytearray]) -> None:
        """Check that all members have received their assignment."""
        assert len(responses) == len(self.member_ids)
        for number, frame in responses.items():
            _, synced = read_response(SyncGroupResponse, SYNC_VERSION, bytes(frame[4:]))
            assert synced.assignment == encode_assignment([("orders", number)])


def _join(member_id: str, protocol: JoinGroupRequestProtocol) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=_TIMEOUT_MS,
        rebalance_timeout_ms=_TIMEOUT_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _frame(message: Message, version: int) -> bytes:
    return request_frame(message, version, 1, "consumer")[4:]
