"""A member loop for tests: plays scripts and loads over TCP and keeps the recorded events."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.events import Event
from fakebroker.replay.members.member_loop import LoopSettings, MemberLoop
from fakebroker.replay.script.script import Script
from fakebroker.replay.spark.progress import Tally
from fakebroker.replay.workload.loads import Load

_TIMEOUT_S = 60.0

LoadAndGroups = tuple[Load, Mapping[str, Sequence[str]]]
"""A load, and its groups with the instances to add to each."""


class LoopPlayer:
    """Plays one `MemberLoop`.

    With `when` and `skip`, a test waits for conditions instead of times: the actions of its scripts are a minute apart,
    and the test skips to the next action as soon as a condition is met.

    Attributes:
        loop: The loop that is played.
        events: All recorded events.
        tallies: All reports.
    """

    loop: MemberLoop

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tallies: list[Tally] = []
        self._scripts: Sequence[Script] = ()
        self._steps: list[tuple[Callable[[], object], Callable[[], object]]] = []
        self._skipped_s = 0.0  # Real seconds.
        self._speed = 1.0
        self._deadline_s = 0.0

    def play(
        self,
        bootstrap: str,
        scripts: Sequence[Script] = (),
        settings: LoopSettings | None = None,
        *,
        loads: Sequence[LoadAndGroups] = (),
    ) -> "LoopPlayer":
        """Play to the end, and return this player.

        Raises:
            AssertionError: The condition of a step was not met in a minute.
        """
        settings = settings or LoopSettings()
        self._scripts, self._speed = scripts, settings.speed
        self.loop = MemberLoop(scripts, addresses(bootstrap), self._take, self._report, settings, loads)
        self.loop._clock.wire.follow(lambda: time.monotonic() + self._skipped_s)
        self._deadline_s = time.monotonic() + _TIMEOUT_S
        self.loop.connect()
        self.loop.play(time.time())
        assert not self._steps, f"{len(self._steps)} steps are left, whose conditions were not met"
        return self

    def when(self, is_met: Callable[[], object], step: Callable[[], object]) -> None:
        """Run a step once, at the first event or report at which a condition is met. Steps run in their order."""
        self._steps.append((is_met, step))

    def skip(self, seconds: float) -> None:
        """Advance the members' clock."""
        self._skipped_s += seconds / self._speed

    @property
    def joined(self) -> int:
        """Members that were part of their group at the last report."""
        return self.tallies[-1].joined if self.tallies else 0

    def is_settled(self) -> bool:
        """Return whether all members have joined, committed, and sent a heartbeat in the newest generation."""
        if self.joined < len(self._scripts):
            return False
        committed, generations, newest = set[str](), dict[str, int](), dict[str, int]()
        for event in self.events:
            if event.member is None or event.group is None or event.error:
                continue
            newest[event.group] = max(newest.get(event.group, 0), event.generation or 0)
            if event.api == "Heartbeat":
                generations[event.member] = event.generation or 0
            elif event.api == "OffsetCommit":
                committed.add(event.member)
        return all(
            script.member in committed and generations.get(script.member) == newest[script.group]
            for script in self._scripts
        )

    def of(self, api: str) -> list[Event]:
        """Return the events of an API or of an action."""
        return [event for event in self.events if event.api == api]

    def requests(self) -> list[Event]:
        """Return the events of requests."""
        return [event for event in self.events if event.kind == "request"]

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self._run_step()

    def _report(self, tally: Tally) -> None:
        self.tallies.append(replace(tally))
        self._run_step()
        if time.monotonic() > self._deadline_s:
            self.loop.stop()

    def _run_step(self) -> None:
        if self._steps and self._steps[0][0]():
            _, step = self._steps.pop(0)
            step()
