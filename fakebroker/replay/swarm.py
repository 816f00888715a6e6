"""All members of one task in one trio reactor, with what they look up together and the numbers they report.

Knows no Spark.
"""

from collections.abc import Callable, Sequence

import trio

from fakebroker.replay.bootstrap import Address
from fakebroker.replay.events import ORDINARY_ERRORS, Event
from fakebroker.replay.lookup import SharedLookups
from fakebroker.replay.player import Clock, Player, Script
from fakebroker.replay.progress import Tally

_REPORT_EVERY_S = 0.25


class Swarm:
    """The members of one task.

    Args:
        scripts: One a member; all members of a group are here.
        brokers: Whom to ask for everything else; the first that can be reached is asked.
        start_s: When the replay starts, in seconds since the Unix epoch.
        record: Takes each event.
        report: Takes the tally now and then.
    """

    def __init__(
        self,
        scripts: Sequence[Script],
        brokers: Sequence[Address],
        start_s: float,
        record: Callable[[Event], None],
        report: Callable[[Tally], None],
    ) -> None:
        self._scripts = scripts
        self._brokers = brokers
        self._start_ms = start_s * 1000
        self._record, self._report = record, report
        self._tally = Tally()

    async def run(self) -> None:
        """Play all scripts to their end.

        Raises:
            BrokerUnreachable: The cluster cannot be reached at the start. Later on, that is for the members to mend.
        """
        clock = Clock()
        async with trio.open_nursery() as nursery:
            lookups = SharedLookups(self._brokers, clock, nursery, self._take)
            await lookups.connected()
            players = [Player(script, self._start_ms, clock, nursery, lookups, self._take) for script in self._scripts]
            nursery.start_soon(lookups.run)
            nursery.start_soon(self._report_on, players, clock)
            async with trio.open_nursery() as playing:
                for player in players:
                    playing.start_soon(player.play)
            nursery.cancel_scope.cancel()
            self._report_now(players, clock)

    def _take(self, event: Event) -> None:
        self._record(event)
        self._tally.requests += 1
        self._tally.errors += event.error not in ORDINARY_ERRORS

    async def _report_on(self, players: Sequence[Player], clock: Clock) -> None:
        while True:
            self._report_now(players, clock)
            await trio.sleep(_REPORT_EVERY_S)

    def _report_now(self, players: Sequence[Player], clock: Clock) -> None:
        self._tally.joined = sum(player.is_joined for player in players)
        self._tally.elapsed_ms = max(0, round(clock.now_ms() - self._start_ms))
        self._report(self._tally)
