"""The measurements of one run: a design, a scenario and a seed. Plain data; depends on `world` only.

A new measurement is a field of `RunResult`, an entry in `FIGURES` (`study/figures.py`), from which tables, charts and
documents have it, and a value in `tests/lab/test_measures.py`.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from statistics import fmean

import msgspec

from fakebroker.lab.world.ownership import Rebalance
from fakebroker.lab.world.traffic import Traffic
from fakebroker.lab.world.world import World

SLICES = 120
"""Number of slices of a run in the series over time."""


class CauseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The rebalances with one cause.

    Attributes:
        cause: What changed first: "start", "leave", "crash", "vanish", "topics"; "failover" if it was the coordinator;
            "rejoin" if a member stopped consuming although nothing had changed.
        count: How many ended.
        never_ended: How many had not ended at the end of the run.
        p50_ms, p99_ms, max_ms: Time from the change until each partition had one owner, and each member its assignment.
        messages, bytes: Means a rebalance, from the first message that is not a heartbeat or commit.
    """

    cause: str
    count: int
    never_ended: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    messages: float | None
    bytes: float | None


class MessageCount(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one kind.

    Attributes:
        kind: Its name, such as "JoinGroupRequest".
        messages: Their number.
        bytes: Their size with headers.
    """

    kind: str
    messages: int
    bytes: int


class ErrorCount(msgspec.Struct, frozen=True, kw_only=True):
    """Members that stopped because of an error.

    Attributes:
        error: The error.
        members: Their number.
    """

    error: str
    members: int


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one run. Those that do not occur are none.

    Attributes:
        groups, members: Their numbers.
        rebalances: How many rebalances ended.
        never_ended: How many had not ended at the end of the run.
        rebalance_p50_ms, rebalance_p99_ms, rebalance_max_ms: Time from a change until each partition of the group had
            one owner, and each live member its assignment.
        rebalance_messages, rebalance_bytes: Means a rebalance, from the first message that is not a beat.
        unowned_s: Partition-seconds without an owner, in groups with live members.
        double_s: Partition-seconds with more than one owner.
        steady_messages_per_s, steady_bytes_per_s: Messages and bytes in both directions in `steady_s` of the scenario,
            a second and member.
        coordinator_mean_per_s: Requests a second at a broker, mean over brokers and seconds.
        coordinator_peak_per_s: Requests in the second and at the broker that had most of them.
        dead: Members whose process ended without leaving, and that a coordinator removed.
        noticed_p50_ms, noticed_max_ms: Time from the end of their processes to their removal.
        mistakes: Removals of members whose process was running, perhaps paused.
        failover_p50_ms, failover_max_ms: For groups that lost their coordinator: time until they were complete, and all
            members had heard from the new one. None if there were none, or one never was.
        repeated, lost: Records that were consumed again, and records that were skipped.
        failed: Members that stopped because of an error.
        causes: The rebalances by cause.
        kinds: The messages by kind.
        errors: The errors of members that stopped.
        incomplete: Groups that were not complete, in `SLICES` slices of the run: means.
        requests_per_s: Requests a second at all brokers, in these slices.
    """

    groups: int
    members: int
    rebalances: int
    never_ended: int
    rebalance_p50_ms: float | None
    rebalance_p99_ms: float | None
    rebalance_max_ms: float | None
    rebalance_messages: float | None
    rebalance_bytes: float | None
    unowned_s: float
    double_s: float
    steady_messages_per_s: float | None
    steady_bytes_per_s: float | None
    coordinator_mean_per_s: float
    coordinator_peak_per_s: float
    dead: int
    noticed_p50_ms: float | None
    noticed_max_ms: float | None
    mistakes: int
    failover_p50_ms: float | None
    failover_max_ms: float | None
    repeated: int
    lost: int
    failed: int
    causes: list[CauseResult]
    kinds: list[MessageCount]
    errors: list[ErrorCount]
    incomplete: list[float]
    requests_per_s: list[float]


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that is not less than a share of all values; None without values.

    Args:
        values: Ordered values.
        share: From 0 to 1.
    """
    return values[max(0, ceil(share * len(values)) - 1)] if values else None


def measure(world: World, steady_s: tuple[float, float] | None = None) -> RunResult:
    """Return the measurements of a run that is over.

    Args:
        world: The run.
        steady_s: Beginning and end of the steady state, in seconds.
    """
    groups, failures, members = world.ownership.groups.values(), world.failures, len(world.members)
    rebalances = world.ownership.rebalances
    ended = [each for each in rebalances if each.until_ms is not None]
    latencies_ms = sorted(map(_latency_ms, ended))
    noticed_ms = sorted(failures.noticed_ms)
    failovers_ms = _failovers_ms(rebalances)
    repeated, lost = world.ownership.repeated_and_lost()
    requests_per_s = world.traffic.requests_per_s()
    traffic, broker_s = world.traffic, world.script.cluster.brokers * world.script.duration_ms / 1000
    return RunResult(
        groups=len(world.ownership.groups),
        members=members,
        rebalances=len(ended),
        never_ended=len(rebalances) - len(ended),
        rebalance_p50_ms=quantile(latencies_ms, 0.5),
        rebalance_p99_ms=quantile(latencies_ms, 0.99),
        rebalance_max_ms=quantile(latencies_ms, 1.0),
        rebalance_messages=fmean(each.messages for each in ended) if ended else None,
        rebalance_bytes=fmean(each.bytes for each in ended) if ended else None,
        unowned_s=sum(group.unowned_ms for group in groups) / 1000,
        double_s=sum(group.double_ms for group in groups) / 1000,
        steady_messages_per_s=_per_member(traffic.messages_per_s(), steady_s, members),
        steady_bytes_per_s=_per_member(traffic.bytes_per_s(), steady_s, members),
        coordinator_mean_per_s=sum(map(sum, requests_per_s.values())) / broker_s,
        coordinator_peak_per_s=max(map(max, requests_per_s.values()), default=0.0),
        dead=len(noticed_ms),
        noticed_p50_ms=quantile(noticed_ms, 0.5),
        noticed_max_ms=quantile(noticed_ms, 1.0),
        mistakes=failures.mistakes,
        failover_p50_ms=quantile(failovers_ms, 0.5),
        failover_max_ms=quantile(failovers_ms, 1.0),
        repeated=repeated,
        lost=lost,
        failed=sum(failures.errors.values()),
        causes=_causes(rebalances),
        kinds=_kinds(traffic),
        errors=[ErrorCount(error=error, members=count) for error, count in sorted(failures.errors.items())],
        incomplete=_incomplete(rebalances, world.start_ms, world.script.duration_ms),
        requests_per_s=_sliced([sum(each) for each in zip(*requests_per_s.values(), strict=True)]),
    )


def _latency_ms(rebalance: Rebalance) -> float:
    assert rebalance.until_ms is not None
    return rebalance.until_ms - rebalance.from_ms


def _failovers_ms(rebalances: Sequence[Rebalance]) -> list[float]:
    """Return the durations of failovers in order; nothing if one of them never ended."""
    found = []
    for each in rebalances:
        if each.failover_ms is not None:
            if each.until_ms is None:
                return []
            found.append(each.until_ms - each.failover_ms)
    return sorted(found)


def _per_member(per_s: Sequence[float], steady_s: tuple[float, float] | None, members: int) -> float | None:
    if steady_s is None:
        return None
    amounts = per_s[round(steady_s[0]) : max(round(steady_s[1]), round(steady_s[0]) + 1)]
    return sum(amounts) / len(amounts) / members if amounts and members else None


def _kinds(traffic: Traffic) -> list[MessageCount]:
    return [
        MessageCount(kind=kind, messages=count.messages, bytes=count.bytes)
        for kind, count in sorted(traffic.by_kind.items())
    ]


def _causes(rebalances: Sequence[Rebalance]) -> list[CauseResult]:
    by_cause: defaultdict[str, list[Rebalance]] = defaultdict(list)
    for each in rebalances:
        by_cause[each.cause].append(each)
    found = []
    for cause, of_cause in sorted(by_cause.items()):
        ended = [each for each in of_cause if each.until_ms is not None]
        latencies_ms = sorted(map(_latency_ms, ended))
        found.append(
            CauseResult(
                cause=cause,
                count=len(ended),
                never_ended=len(of_cause) - len(ended),
                p50_ms=quantile(latencies_ms, 0.5),
                p99_ms=quantile(latencies_ms, 0.99),
                max_ms=quantile(latencies_ms, 1.0),
                messages=fmean(each.messages for each in ended) if ended else None,
                bytes=fmean(each.bytes for each in ended) if ended else None,
            )
        )
    return found


def _incomplete(rebalances: Sequence[Rebalance], start_ms: float, duration_ms: float) -> list[float]:
    """Return the mean number of groups that are not complete, in each slice."""
    slice_ms = duration_ms / SLICES
    busy_ms = [0.0] * SLICES
    for each in rebalances:
        from_ms = each.from_ms - start_ms
        until_ms = duration_ms if each.until_ms is None else each.until_ms - start_ms
        for index in range(int(from_ms // slice_ms), min(SLICES, ceil(until_ms / slice_ms))):
            busy_ms[index] += max(0.0, min(until_ms, (index + 1) * slice_ms) - max(from_ms, index * slice_ms))
    return [round(each / slice_ms, 4) for each in busy_ms]


def _sliced(per_s: Sequence[float]) -> list[float]:
    """Return means of amounts a second, in each slice."""
    found = []
    for index in range(SLICES):
        first = index * len(per_s) // SLICES
        amounts = per_s[first : max(first + 1, (index + 1) * len(per_s) // SLICES)]
        found.append(round(fmean(amounts), 4) if amounts else 0.0)
    return found
