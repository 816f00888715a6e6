"""The table `[[load]]`: requests of administrative tools. Plain data."""

import math
from collections.abc import Iterator
from typing import Literal

from fakebroker.errors import ConfigError
from fakebroker.replay.workload.table import Table
from fakebroker.validation import Positive, PositiveSeconds, Rate, Seconds

LoadKind = Literal["find-coordinators", "fetch-offsets", "describe-groups", "list-groups", "add-members"]


class Load(Table, frozen=True):
    """Requests of an administrative tool, in addition to the members' requests.

    Attributes:
        kind: Type of the requests: FindCoordinator, OffsetFetch, DescribeGroups or ListGroups. `add-members` sends a
            JoinGroup that registers several static members at once (proposal `batch-join`).
        groups: Population whose groups are in the requests; all groups if not given.
        batch: Number of groups per request. Brokers that do not support several groups get one request per group. In
            memory, all groups of a request are on the same offsets partition.
        rate_per_s: Requests per second, sent without waiting for responses (open loop). If not given, each request
            is sent after the response to the previous request (closed loop).
        at_s: Time of the first request.
        for_s: Duration; the requests start again with the first group as often as needed. If not given, each group
            is requested once.
        instances: With `add-members`, the number of members per group to register, by their instance ids:
            the first of the members that the population's `grow` adds.
    """

    kind: LoadKind
    groups: str | None = None
    batch: Positive = 1
    rate_per_s: Rate | None = None
    at_s: Seconds = 0.0
    for_s: PositiveSeconds | None = None
    instances: Positive | None = None

    def request_count(self, groups: int) -> float:
        """Return the estimated number of requests, given the number of groups of the workload; infinite if unknown."""
        if self.for_s is None:
            return groups
        return math.inf if self.rate_per_s is None else self.rate_per_s * self.for_s

    def broken_rules(self) -> Iterator[ConfigError]:
        if self.kind == "list-groups" and self.batch != 1:
            yield ConfigError.of("batch", self.batch, "no batch with list-groups, which always lists all groups")
        if self.kind == "add-members" and self.instances is None:
            yield ConfigError.missing("instances", "an integer >= 1 with add-members")
        if self.kind != "add-members" and self.instances is not None:
            yield ConfigError.of("instances", self.instances, f"no instances with {self.kind}, only with add-members")
        if self.kind == "add-members" and self.groups is None:
            yield ConfigError.missing("groups", "the population whose members are registered")
