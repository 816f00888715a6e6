"""The figures of a placement study. Plain data; equal plans give equal results, however many tasks compute them.

Names of placements are those in `PLACEMENTS`.
"""

from typing import Literal

import msgspec

from fakebroker.lab.estimate import Estimate
from fakebroker.lab.placement.placement_plan import PlacementPlan

PlacementName = Literal["option-2a", "option-2b", "load-aware"]
PLACEMENTS: tuple[PlacementName, ...] = ("option-2a", "option-2b", "load-aware")

Change = Literal["dies", "added", "reassigned", "rolling restart"]
"""What happens to the brokers:

- dies: one broker dies; the mean over all brokers.
- added: one broker is added.
- reassigned: one broker is added, then as few partitions or groups as possible are moved so that it has its share.
- rolling restart: each broker in turn is stopped and started again, and preferred leaders are elected.
"""


class BalanceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How even a placement is.

    Attributes:
        placement: The placement.
        groups, brokers: Their numbers.
        partitions: Number of partitions of the offsets topic; None if the placement does not depend on it.
        asked: Number of brokers that clients ask first; None if the placement does not depend on it.
        members: Members of all groups.
        worst_groups: Groups of the broker that has most of them, divided by the mean of all brokers.
        worst_members: The same for members, and therefore for heartbeats.
        worst_heartbeats_per_s: Heartbeats that arrive each second at the broker with most members.
    """

    placement: PlacementName
    groups: int
    brokers: int
    partitions: int | None = None
    asked: int | None = None
    members: Estimate
    worst_groups: Estimate
    worst_members: Estimate
    worst_heartbeats_per_s: Estimate


class MoveFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What moves when brokers change.

    Attributes:
        placement, groups, brokers, partitions: See `BalanceFigures`; `brokers` is the number before the change.
        replicas: How replicas of the offsets topic were placed; None if the placement does not depend on it.
        change: What happens.
        moved_groups: Number of moves of groups, divided by the number of groups.
        moved_members: Number of moves of members with their groups, divided by the number of members.
        worst_members: Members of the broker that has most of them afterwards, divided by the mean of all brokers.
    """

    placement: PlacementName
    groups: int
    brokers: int
    partitions: int | None = None
    replicas: str | None = None
    change: Change
    moved_groups: Estimate
    moved_members: Estimate
    worst_members: Estimate


class LookupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How clients find the coordinators of all groups.

    Attributes:
        placement: "option-2a" or "option-2b".
        phase: "start-up": all clients start; "broker dies": a coordinator crashes; "controller dies": it is also the
            controller, which elects the leaders of partitions.
        groups, brokers: Their numbers.
        found_ms: Time until every client that looked for a coordinator knows a live one.
        after_expiry_ms: The part of it after the session of the dead broker has expired; 0 at start-up.
        client_messages: Requests and responses between clients and brokers.
        registry_messages: Operations of the registry, their results, and events of watches. Without sessions' pings.
        controller_messages: Requests of the controller to brokers, and their responses.
        registry_busy: Share of the time, until nothing is pending, in which the registry was busy.
    """

    placement: PlacementName
    phase: Literal["start-up", "broker dies", "controller dies"]
    groups: int
    brokers: int
    found_ms: Estimate
    after_expiry_ms: Estimate
    client_messages: Estimate
    registry_messages: Estimate
    controller_messages: Estimate
    registry_busy: Estimate


class PlacementResult(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a study; see the classes of its rows."""

    plan: PlacementPlan
    balance: tuple[BalanceFigures, ...]
    moves: tuple[MoveFigures, ...]
    lookups: tuple[LookupFigures, ...]
