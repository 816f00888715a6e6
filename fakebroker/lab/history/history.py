"""A history: a script of one group, short enough to read, and its text format.

    design option-1a
    breaks one-owner
    seed 4
    brokers 2
    partitions 3
    session_timeout_ms 6000
    heartbeat_interval_ms 2000
    until 60.000

      0.000  member 0 start
      1.500  member 1 pause 4.000
     20.000  broker 1 stop
     30.000  partitions 4

The conversation follows after a line of hyphens. A test compares it with the conversation of a new run.
"""

from collections.abc import Iterator
from typing import cast, get_args

import msgspec

from fakebroker.errors import ConfigError, one_of
from fakebroker.lab.designs import design_named
from fakebroker.lab.history.checker import InvariantChecker, Violation
from fakebroker.lab.history.conversation import Conversation
from fakebroker.lab.invariants import INVARIANTS
from fakebroker.lab.script import (
    BrokerDo,
    BrokerEvent,
    ClusterPlan,
    GroupPlan,
    MemberDo,
    MemberEvent,
    Script,
    TopicEvent,
)
from fakebroker.lab.world.world import World

GROUP, TOPIC = "g", "t"
"""The names of the group and of its topic in all histories."""

_METADATA_MAX_AGE_MS = 10_000
"""In real clusters it is five minutes; here changes of topics are noticed before a history ends."""

_RULE = "-" * 100
_SETTINGS = ("seed", "brokers", "partitions", "session_timeout_ms", "heartbeat_interval_ms")

Event = MemberEvent | BrokerEvent | TopicEvent


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A script of one group.

    Attributes:
        design: The name of the design.
        breaks: The invariant that it breaks; "" if none.
        seed: The seed of ids.
        brokers, partitions: The size of the cluster and of the topic.
        session_timeout_ms, heartbeat_interval_ms: Settings of the members.
        events: The events, ordered by time.
        duration_ms: When it ends.
    """

    design: str
    breaks: str = ""
    seed: int = 1
    brokers: int = 2
    partitions: int = 3
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 2_000
    events: tuple[Event, ...]
    duration_ms: float

    def script(self) -> Script:
        """Return the script of the run."""
        members = {event.member for event in self.events if isinstance(event, MemberEvent)}
        group = GroupPlan(
            group_id=GROUP,
            topics=(TOPIC,),
            members=range(max(members, default=-1) + 1),
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            rebalance_timeout_ms=self.session_timeout_ms,
        )
        return Script(
            cluster=ClusterPlan(
                brokers=self.brokers, topics={TOPIC: self.partitions}, metadata_max_age_ms=_METADATA_MAX_AGE_MS
            ),
            groups=(group,),
            events=self.events,
            duration_ms=self.duration_ms,
            seed=self.seed,
        )

    def violations(self) -> dict[str, Violation]:
        """Run it, and return the first violation of each invariant."""
        return self.play()[0]

    def play(self) -> tuple[dict[str, Violation], Conversation]:
        """Run it, and return the first violation of each invariant, and what was said."""
        checker = InvariantChecker()
        conversation = Conversation(checker)
        world = World(design_named(self.design), self.script(), conversation, rests=False)
        checker.watch(world)
        world.run()
        checker.finish()
        return checker.violations, conversation

    def text(self) -> str:
        """Run it, and return its text with the conversation."""
        violations, conversation = self.play()
        found = violations.get(self.breaks)
        lines = [*self._head(), "", *map(_event_text, self.events), "", _RULE, *conversation.lines()]
        if found is not None:
            lines.append(f"{found.at_ms / 1000:9.3f}  {found.invariant} is broken: {found.what}")
        return "\n".join(lines) + "\n"

    def _head(self) -> Iterator[str]:
        yield f"design {self.design}"
        yield f"breaks {self.breaks}" if self.breaks else "breaks nothing"
        for name in _SETTINGS:
            yield f"{name} {getattr(self, name)}"
        yield f"until {self.duration_ms / 1000:.3f}"


def _event_text(event: Event) -> str:
    at = f"{event.at_ms / 1000:9.3f}"
    match event:
        case MemberEvent():
            extra = f" {event.for_ms / 1000:.3f}" if event.for_ms else ""
            extra += f" {event.extra_ms / 1000:.3f}" if event.extra_ms else ""
            return f"{at}  member {event.member} {event.do}{extra}"
        case BrokerEvent():
            return f"{at}  broker {event.node_id} {event.do}"
        case TopicEvent():
            return f"{at}  partitions {event.partitions}"


def parse_history(text: str) -> History:
    """Read a history; its conversation is ignored.

    Raises:
        ConfigError: A line is not valid.
    """
    settings: dict[str, str] = {}
    events: list[Event] = []
    for number, line in enumerate(text.partition(_RULE)[0].splitlines(), 1):
        words = line.split()
        if not words or words[0] == "#":
            continue
        try:
            if words[0][0].isdigit():
                events.append(_event_of(words))
            else:
                settings[words[0]] = words[1]
        except (ValueError, IndexError):
            raise ConfigError.of(
                f"line {number}", line, "a setting or an event, as in lab/history/history.py"
            ) from None
    return _history_of(settings, events)


def _history_of(settings: dict[str, str], events: list[Event]) -> History:
    try:
        breaks = settings["breaks"]
        if breaks not in (*INVARIANTS, "nothing"):
            raise ConfigError.of("breaks", breaks, one_of((*INVARIANTS, "nothing"), breaks))
        numbers = {name: int(settings[name]) for name in _SETTINGS}
        return History(
            design=settings["design"],
            breaks="" if breaks == "nothing" else breaks,
            **numbers,
            events=tuple(events),
            duration_ms=float(settings["until"]) * 1000,
        )
    except KeyError as error:
        raise ConfigError.of("history", ", ".join(settings), f"a line {error.args[0]}") from None


def _event_of(words: list[str]) -> Event:
    at_ms = float(words[0]) * 1000
    if words[1] == "partitions":
        return TopicEvent(at_ms, TOPIC, int(words[2]))
    number, do = int(words[2]), words[3]
    if words[1] == "broker" and do in get_args(BrokerDo):
        return BrokerEvent(at_ms, number, cast(BrokerDo, do))
    if words[1] == "member" and do in get_args(MemberDo):
        times = [float(word) * 1000 for word in words[4:6]] + [0.0, 0.0]
        return MemberEvent(at_ms, number, cast(MemberDo, do), times[0], times[1])
    raise ValueError(do)
