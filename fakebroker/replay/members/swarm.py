"""All members of one task in one loop, with what they share: connections, look-ups, loads, and the numbers they report.

One thread, no tasks: actors sleep in a heap by their deadlines, and sockets say when they are ready. Knows no Spark.
"""

import gc
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fakebroker.errors import FakebrokerError
from fakebroker.open_files import allow_connections
from fakebroker.replay.members.actor import Actor
from fakebroker.replay.members.bootstrap import Address
from fakebroker.replay.members.clock import Clock
from fakebroker.replay.members.coordinator_lookup import Lookups
from fakebroker.replay.members.events import ORDINARY_ERRORS, Event
from fakebroker.replay.members.lanes import Lanes
from fakebroker.replay.members.load_player import LoadPlayer
from fakebroker.replay.members.messenger import FAREWELL_MS
from fakebroker.replay.members.seat import Seat
from fakebroker.replay.members.wire import Wire
from fakebroker.replay.script.script import Script
from fakebroker.replay.spark.progress import Tally
from fakebroker.replay.workload.loads import Load

MOST_ROUNDS = 8_000
"""With lanes: how many members of one task are in a round of their groups at the same time, at most."""

_REPORT_EVERY_MS = 100.0
_REPORT_EVERY_MS_A_MEMBER = 0.25
"""Who reports looks at every member, which may take a small part of the time and no more."""

_LONGEST_WITHOUT_REPORT_MS = 1_000.0
"""Who reports also hears that it is to stop."""

_RINGS_A_TURN = 256
_LATEST_END_MS = 2 * FAREWELL_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a swarm plays.

    Attributes:
        lanes: How many connections to each broker its members share; None for one a member.
        speed: How many times as fast as real time the members' clock runs.
        closed_loop: Whether each heartbeat follows the answer to the last one.
        duration_s: When it ends at the latest, by the members' clock from the start of the replay, but for farewells.
    """

    lanes: int | None = None
    speed: float = 1.0
    closed_loop: bool = False
    duration_s: float = math.inf


class Swarm:
    """The members of one task.

    Args:
        scripts: One a member; all members of a group are here.
        brokers: Whom to ask for everything else; the first that can be reached is asked.
        record: Takes each event.
        report: Takes the tally now and then.
        manner: How to play.
        loads: What this task asks beside its members, with the groups it is about.

    Raises:
        FakebrokerError: This machine cannot have so many connections.
    """

    def __init__(
        self,
        scripts: Sequence[Script],
        brokers: Sequence[Address],
        record: Callable[[Event], None],
        report: Callable[[Tally], None],
        manner: Manner = Manner(),
        loads: Sequence[tuple[Load, Mapping[str, Sequence[str]]]] = (),
    ) -> None:
        self._scripts, self._loads, self._manner = scripts, loads, manner
        self._record, self._report = record, report
        self._tally = Tally()
        self._start_ms = self._end_ms = self._report_ms = math.inf
        self._heap: list[tuple[float, int, Seat]] = []
        self._count = itertools.count()
        self._active: list[Seat] = []
        self._load_players: list[LoadPlayer] = []
        self._is_stopped = False
        allow_connections(most_at_once(scripts) if manner.lanes is None else MOST_ROUNDS)
        self.wire, self.clock = Wire(), Clock()
        self.lookups = Lookups(self.wire, self.clock, brokers, self._take)
        self.lanes: Lanes | None = None
        if manner.lanes is not None:
            sizes = Counter(script.group for script in scripts)
            self.lanes = Lanes(self.wire, manner.lanes, MOST_ROUNDS, sizes)

    def connect(self) -> None:
        """Find a broker that answers. Nothing is recorded yet.

        Raises:
            BrokerUnreachable: There is none.
        """
        try:
            self.lookups.connect()
            while not self.lookups.nodes:
                self.wire.turn(self.clock.seconds_until(self.lookups.next_deadline()))
                self.lookups.turn(self.clock.now_ms())
        except FakebrokerError:
            self.wire.close()
            raise

    def play(self, start_s: float) -> None:
        """Play all scripts and loads to their end; the cluster may go away meanwhile, that is for the members to mend.

        Args:
            start_s: When the replay starts, in seconds since the Unix epoch.

        Raises:
            FakebrokerError: This machine has no further files or ports.
            UnsupportedVersion: A broker does not have what members need.
        """
        try:
            self._begin(start_s)
            while (self._active or self._load_players) and not self._is_stopped:
                self._turn()
        finally:
            self._finish()

    def stop(self) -> None:
        """End soon; for another thread."""
        self._is_stopped = True

    def wake(self, seat: Seat, moment_ms: float) -> None:
        """Have a seat's alarm ring then; what was set for later does not count any more."""
        seat.wakes_ms = moment_ms
        heapq.heappush(self._heap, (moment_ms, next(self._count), seat))

    def _begin(self, start_s: float) -> None:
        manner, self._start_ms = self._manner, start_s * 1000
        self._end_ms = self._start_ms + manner.duration_s * 1000 + _LATEST_END_MS
        self.clock.run_from(start_s, manner.speed)
        self._report_ms = self.clock.now_ms()
        for number, script in enumerate(self._scripts):
            actor = Actor(script, self._start_ms, self._take, closed_loop=manner.closed_loop)
            seat = Seat(actor, number, self)
            self._active.append(seat)
            self.wake(seat, actor.next_deadline())
        gc.freeze()  # the members stay for the whole play; walking through all of them again and again takes time
        for load, groups in self._loads:
            player = LoadPlayer(load, groups, self._start_ms, self.wire, self.clock, self.lookups, self._take)
            self._load_players.append(player)

    def _turn(self) -> None:
        """Wait for something to happen, then do what is due."""
        due_ms = min(self._report_ms, self.lookups.next_deadline())
        if self._heap:
            due_ms = min(due_ms, self._heap[0][0])
        for player in self._load_players:
            due_ms = min(due_ms, player.next_deadline())
        self.wire.turn(self.clock.seconds_until(due_ms))
        now_ms = self.clock.now_ms()
        self._ring(now_ms)
        for player in self._load_players:
            player.turn(now_ms)
        self.lookups.turn(now_ms)
        if self._report_ms <= now_ms:
            self._look_around(now_ms)

    def _ring(self, now_ms: float) -> None:
        """Call those whose time has come; not too many, so that answers do not wait."""
        heap = self._heap
        for _ in range(_RINGS_A_TURN):
            if not heap or heap[0][0] > now_ms:
                return
            moment_ms, _, seat = heapq.heappop(heap)
            if moment_ms != seat.wakes_ms:
                continue  # it was called earlier meanwhile
            seat.wakes_ms = math.inf
            due_ms = seat.actor.next_deadline()
            if due_ms <= now_ms:
                seat.ring(now_ms)
            elif due_ms < math.inf:
                self.wake(seat, due_ms)

    def _look_around(self, now_ms: float) -> None:
        """Report, and see who is done."""
        every_ms = max(_REPORT_EVERY_MS, _REPORT_EVERY_MS_A_MEMBER * len(self._active))
        self._report_ms = now_ms + min(every_ms, _LONGEST_WITHOUT_REPORT_MS) * self._manner.speed
        self._active = [seat for seat in self._active if not seat.actor.is_done]
        self._load_players = [player for player in self._load_players if not player.is_done]
        self._report_now(now_ms)
        if now_ms > self._end_ms:
            self._is_stopped = True

    def _report_now(self, now_ms: float) -> None:
        self._tally.joined = sum(seat.actor.is_joined for seat in self._active)
        self._tally.elapsed_ms = max(0, round(now_ms - self._start_ms))
        self._report(self._tally)

    def _take(self, event: Event) -> None:
        self._record(event)
        if event.kind == "request":
            self._tally.requests += 1
            if event.error not in ORDINARY_ERRORS:
                self._tally.errors += 1

    def _finish(self) -> None:
        """Close everything, and record what is still owed."""
        self.wire.close()
        gc.unfreeze()
        now_ms = self.clock.now_ms()
        for seat in self._active:
            seat.finish(now_ms)
        for player in self._load_players:
            player.stop()
        self.lookups.stop()
        self._report_now(now_ms)


def most_at_once(scripts: Sequence[Script]) -> int:
    """How many of the members are there at the same time, at most; who leaves stays for a farewell."""
    moves: list[tuple[float, int]] = []
    for script in scripts:
        is_there = False
        for act in script.acts:
            if act.deed == "start" and not is_there:
                moves.append((act.at_ms, 1))
                is_there = True
            elif act.deed in ("leave", "crash") and is_there:
                moves.append((act.at_ms + FAREWELL_MS, -1))
                is_there = False
    return max(itertools.accumulate(step for _, step in sorted(moves)), default=0)
