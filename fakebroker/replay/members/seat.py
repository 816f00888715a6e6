"""One actor's place in the swarm: carries out what the actor wants, and tells it what has come of it.

Knows which connection a request takes; what to send and when is the actor's business alone.
"""

import math
from collections.abc import Mapping
from typing import Protocol

from fakebroker.client.member.effects import GroupRequest, GroupResponse
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.heartbeat import HeartbeatRequest
from fakebroker.protocol.messages.join_group import JoinGroupRequest
from fakebroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from fakebroker.replay.members.actor import Actor
from fakebroker.replay.members.clock import Clock
from fakebroker.replay.members.coordinator_lookup import Lookups
from fakebroker.replay.members.lanes import Lanes
from fakebroker.replay.members.link import Link, Memo
from fakebroker.replay.members.wire import Wire

_PARKED = (JoinGroupRequest, SyncGroupRequest)
"""What a broker may hold the answer back to."""


class House(Protocol):
    """What all seats of a task share."""

    wire: Wire
    clock: Clock
    lookups: Lookups
    lanes: Lanes | None

    def wake(self, seat: "Seat", moment_ms: float) -> None:
        """Have `ring` called then."""


class Seat:
    """One actor's place.

    Attributes:
        number: Among the seats of the task, from 0.
        wakes_ms: When it is called next.
    """

    __slots__ = ("_beat", "_held", "_house", "_link", "_round", "_waits", "actor", "group", "number", "wakes_ms")

    def __init__(self, actor: Actor, number: int, house: House) -> None:
        self.actor = actor
        self.group = actor.script.group
        self.number = number
        self.wakes_ms = math.inf
        self._house = house
        self._link: Link | None = None  # the actor's own, or its lane
        self._round: Link | None = None  # beside the lane, for a JoinGroup and a SyncGroup
        self._held: GroupRequest | None = None  # until its connection is open
        self._waits = False  # for the group's turn to have a round
        self._beat = Memo()

    def ring(self, now_ms: float) -> None:
        """It is time."""
        self.actor.tick(now_ms)
        self.follow(now_ms)

    def follow(self, now_ms: float) -> None:
        """Carry out what the actor wants."""
        if self.actor.wants_something:
            self._carry_out(now_ms)
        due_ms = self.actor.next_deadline()
        if due_ms < self.wakes_ms:
            self._house.wake(self, due_ms)

    def _carry_out(self, now_ms: float) -> None:
        actor = self.actor
        if actor.take_hang_up():
            self._hang_up()
        scheduled_ms = actor.take_discovery()
        if scheduled_ms is not None:
            self._house.lookups.discover(self.group, self, scheduled_ms)
        wanted = actor.take_metadata()
        if wanted is not None:
            self._house.lookups.fetch_metadata(wanted[0], self, wanted[1])
        request = actor.take_request()
        if request is not None:
            self._send(request, now_ms)

    def finish(self, now_ms: float) -> None:
        """The replay is over."""
        self.actor.finish(now_ms)

    # From the look-ups

    def discovered(self, group: str, node_id: int, host: str, port: int) -> None:
        now_ms = self._house.clock.now_ms()
        self.actor.discovered(node_id, host, port, now_ms)
        self.follow(now_ms)

    def discovery_failed(self, group: str, error: ErrorCode) -> None:
        now_ms = self._house.clock.now_ms()
        self.actor.discovery_failed(error, now_ms)
        self.follow(now_ms)

    def seeks_again(self) -> bool:
        return self.actor.seeks_again

    def metadata(self, partition_counts: Mapping[str, int]) -> None:
        now_ms = self._house.clock.now_ms()
        self.actor.metadata(partition_counts, now_ms)
        self.follow(now_ms)

    # From connections and lanes

    def opened(self, link: Link) -> None:
        request = self._held
        if request is not None and link is self._way(request):
            self._held = None
            self._send_over(link, request, self._house.clock.now_ms())

    def answered(self, link: Link, response: GroupResponse) -> None:
        now_ms = self._house.clock.now_ms()
        if link is self._round and type(response) is SyncGroupResponse:
            self._end_round()
        self.actor.answered(response, now_ms)
        self.follow(now_ms)

    def lost(self, link: Link, why: str) -> None:
        now_ms = self._house.clock.now_ms()
        self._hang_up()
        self.actor.connection_lost(now_ms)
        self.follow(now_ms)

    def admitted(self) -> None:
        self._waits = False
        request, self._held = self._held, None
        assert request is not None
        self._send(request, self._house.clock.now_ms())

    # The way out

    def _send(self, request: GroupRequest, now_ms: float) -> None:
        link = self._way(request)
        if link is None or link.spoken is None:
            self._held = request
        else:
            self._send_over(link, request, now_ms)

    def _send_over(self, link: Link, request: GroupRequest, now_ms: float) -> None:
        version = link.version_for(request)
        memo = self._beat if type(request) is HeartbeatRequest else None
        self._house.wire.send(link, request, version, self.actor.script.member, self, memo)
        self.actor.sent(version, now_ms)

    def _way(self, request: GroupRequest) -> Link | None:
        """The connection for a request, made if need be; None if the group has to wait for its round."""
        lanes, address = self._house.lanes, self.actor.address
        if lanes is not None and isinstance(request, _PARKED):
            if self._round is not None and self._round.address != address:
                self._end_round()
            if self._round is None:
                self._round = lanes.begin_round(address, self)
                self._waits = self._round is None
            return self._round
        if self._link is not None and self._link.address == address:
            return self._link
        if self._link is not None:
            self._house.wire.let_go(self._link, self)
        self._link = lanes.lane(address, self) if lanes is not None else self._house.wire.connect(address, self)
        return self._link

    def _end_round(self) -> None:
        link, self._round = self._round, None
        if link is not None and self._house.lanes is not None:
            self._house.lanes.end_round(link, self)

    def _hang_up(self) -> None:
        self._held = None
        if self._waits and self._house.lanes is not None:
            self._waits = False
            self._house.lanes.wait_no_more(self)
        self._end_round()
        if self._link is not None:
            self._house.wire.let_go(self._link, self)
            self._link = None
