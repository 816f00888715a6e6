"""Unusual behaviors of members, as tables of a population: `leave = { share = 0.2, at_s = [5, 20] }`.

Plain data; `replay.script.acts` converts it to the actions of members.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from fakebroker.errors import ConfigError
from fakebroker.replay.workload.table import MOST_MEMBERS, Span, Table, check_span, ends
from fakebroker.validation import Share

_SPANS = ("at_s", "for_s", "return_after_s", "every_s")


class _Timed(Table, frozen=True):
    def broken_rules(self) -> Iterator[ConfigError]:
        for key in _SPANS:
            yield from check_span(key, getattr(self, key, None))


class Behavior(_Timed, frozen=True):
    """A behavior that a share of the members shows once."""

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
        at_s: When.
        return_after_s: Time until they start again; never if not given.
    """

    return_after_s: Span | None = None


class Crash(Behavior, frozen=True):
    """Members stop without leaving; their connections are closed.

    Attributes:
        share: Share of the population's members.
        at_s: When.
        return_after_s: Time until they start again; never if not given.
    """

    return_after_s: Span | None = None


class Pause(Behavior, frozen=True):
    """Members are suspended for some time and do not even send heartbeats, as in a long garbage collection.

    Attributes:
        share: Share of the population's members.
        at_s: When.
        for_s: Duration; beyond the session timeout a member is removed from its group.
    """

    for_s: Span


class Slow(Behavior, frozen=True):
    """Members do not poll for some time: heartbeats continue, joins do not.

    Attributes:
        share: Share of the population's members.
        at_s: When.
        for_s: Duration; beyond the rebalance timeout a member leaves until its end, as Kafka's consumer does (KIP-62).
    """

    for_s: Span


class Zombie(Behavior, frozen=True):
    """Members send nothing until their session has expired, then heartbeats and commits with their old member ids.

    Attributes:
        share: Share of the population's members.
        at_s: When they stop sending.
        for_s: How long they go on after their session has expired, regardless of the responses.
    """

    for_s: Span


class Restart(_Timed, frozen=True):
    """A rolling restart: the members of each group leave and come back one after the other, ordered by number.

    Attributes:
        at_s: When the first member of a group leaves.
        every_s: Interval between members.
        return_after_s: Time until each one starts again.
    """

    at_s: Span
    every_s: float = 1.0
    return_after_s: Span = 1.0


class Grow(_Timed, frozen=True):
    """Members that join each group later, without behaviors.

    Attributes:
        instances: Number of members for each group.
        at_s: When the first one of a group starts.
        every_s: Interval between members; 0 starts all at once.
        how: `dynamic` members have no instance id; with `static` they have one, and an `add-members` load that comes
            first registers them together.
    """

    instances: Annotated[int, Meta(ge=1, le=MOST_MEMBERS)]
    at_s: Span
    every_s: float = 0.0
    how: Literal["dynamic", "static"] = "dynamic"
