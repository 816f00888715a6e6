"""`[[load]]`: requests of administrative tools, besides those of members. Plain data."""

from collections.abc import Iterator
from typing import Literal

from fakebroker.errors import ConfigError
from fakebroker.replay.workload.table import Table
from fakebroker.validation import Positive, PositiveSeconds, Rate, Seconds

LoadKind = Literal["find-coordinators", "fetch-offsets", "describe-groups", "list-groups", "add-members"]


class Load(Table, frozen=True):
    """Requests in addition to those of the members; their events have no member.

    Attributes:
        kind: The request: FindCoordinator, OffsetFetch, DescribeGroups or ListGroups; `add-members` is a JoinGroup
            that registers many static members at once (proposal `batch-join`).
        groups: The population whose groups are requested; all groups if not given.
        batch: Number of groups per request; a broker that does not support several is sent one request per group. In
            memory, a batch has groups of one offsets partition only.
        rate_per_s: Requests per second, answered or not (open loop); if not given, the next request follows the
            response (closed loop).
        at_s: When it begins.
        for_s: Duration, starting again with the first group as needed; if not given, once over all groups.
        instances: `add-members` only: the number of members to register for each group. They are those of the
            population's `grow`, by their instance ids.
    """

    kind: LoadKind
    groups: str | None = None
    batch: Positive = 1
    rate_per_s: Rate | None = None
    at_s: Seconds = 0.0
    for_s: PositiveSeconds | None = None
    instances: Positive | None = None

    def broken_rules(self) -> Iterator[ConfigError]:
        if self.kind == "list-groups" and self.batch != 1:
            yield ConfigError.of("batch", self.batch, "none with list-groups, which is about all groups")
        if self.kind == "add-members" and self.instances is None:
            yield ConfigError.missing("instances", "an integer >= 1 with add-members")
        if self.kind != "add-members" and self.instances is not None:
            yield ConfigError.of("instances", self.instances, f"none with {self.kind}, only with add-members")
        if self.kind == "add-members" and self.groups is None:
            yield ConfigError.missing("groups", "the name of a population whose members are to be added")
