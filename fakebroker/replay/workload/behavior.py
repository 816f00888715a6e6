"""The behaviors of members, as tables of a population: `leave = { share = 0.2, at_s = [5, 20] }`.

Plain data. Times are seconds from the start of the replay. `replay.script.acts` converts behaviors to actions of
members.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from fakebroker.errors import ConfigError
from fakebroker.replay.workload.table import MOST_MEMBERS, Span, Table, check_span, ends
from fakebroker.validation import Share

_SPANS = ("at_s", "for_s", "return_after_s", "every_s")


class _Timed(Table, frozen=True):
    """A table with time spans, which are checked."""

    def broken_rules(self) -> Iterator[ConfigError]:
        for key in _SPANS:
            yield from check_span(key, getattr(self, key, None))


class Behavior(_Timed, frozen=True):
    """A behavior of a share of the population's members, once for each of these members."""

    share: Share
    at_s: Span

    @property
    def lasts_s(self) -> float:
        """The maximum duration in seconds."""
        return ends(getattr(self, "for_s", None) or getattr(self, "return_after_s", None) or 0.0)[1]


class Leave(Behavior, frozen=True):
    """Members leave the group and stop; a static member stops without a LeaveGroup (KIP-345).

    Attributes:
        share: Share of the population's members.
        at_s: Time at which a member stops.
        return_after_s: Time until the member starts again; if not given, it stays away.
    """

    return_after_s: Span | None = None


class Crash(Behavior, frozen=True):
    """Members stop without leaving; their connections are closed.

    Attributes:
        share: Share of the population's members.
        at_s: Time at which a member stops.
        return_after_s: Time until the member starts again; if not given, it stays away.
    """

    return_after_s: Span | None = None


class Pause(Behavior, frozen=True):
    """Members are suspended for some time and do not even send heartbeats, as in a long garbage collection.

    Attributes:
        share: Share of the population's members.
        at_s: Start of the pause.
        for_s: Duration; beyond the session timeout, the member is removed from its group.
    """

    for_s: Span


class Slow(Behavior, frozen=True):
    """Members do not poll for some time: heartbeats continue, joins do not.

    Attributes:
        share: Share of the population's members.
        at_s: Time at which a member stops polling.
        for_s: Duration; beyond the rebalance timeout, the member leaves its group for the rest of this time, as
            Kafka's consumer does (KIP-62).
    """

    for_s: Span


class Zombie(Behavior, frozen=True):
    """Members send nothing until their session has expired, then heartbeats and commits with their old member ids.

    Attributes:
        share: Share of the population's members.
        at_s: Time at which a member stops sending.
        for_s: Time for which it sends after its session has expired, ignoring the responses.
    """

    for_s: Span


class Restart(_Timed, frozen=True):
    """A rolling restart: the members of each group leave and start again one after the other, ordered by number.

    Attributes:
        at_s: Time at which the first member of a group leaves.
        every_s: Interval between members.
        return_after_s: Time until each member starts again.
    """

    at_s: Span
    every_s: float = 1.0
    return_after_s: Span = 1.0


class Grow(_Timed, frozen=True):
    """Additional members that join each group later. The other behaviors do not apply to them.

    Attributes:
        instances: Number of additional members per group.
        at_s: Time at which the first additional member of a group starts.
        every_s: Interval between members; 0 starts all at once.
        how: `dynamic` members have no instance id. `static` members have one, and a `[[load]]` of kind `add-members`
            may register them in advance.
    """

    instances: Annotated[int, Meta(ge=1, le=MOST_MEMBERS)]
    at_s: Span
    every_s: float = 0.0
    how: Literal["dynamic", "static"] = "dynamic"
