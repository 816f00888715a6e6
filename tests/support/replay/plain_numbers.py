"""The numbers of a replay in plain Python, without Spark: an independent implementation of `compute_numbers`.

It has the numbers that expectations may be about, nothing over time, and takes milliseconds for a few thousand events.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import floor, log10
from typing import Any, NamedTuple

from fakebroker.coordinator.partitions import partition_for
from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.members.request_outcomes import CUT_OFF, LOST, ORDINARY_ERRORS, UNANSWERED
from fakebroker.replay.report.number_rows import QUANTILES
from fakebroker.replay.report.numbers import numbers_of
from fakebroker.replay.report.series import Slices
from fakebroker.replay.run_summary import Numbers
from fakebroker.replay.script.script import Script
from tests.support.replay.simulated_replays import Row

_MEMBERSHIP_ENDS = (22, 25, 82, 110)
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH."""


def plain_numbers(
    events: Sequence[Row], scripts: Sequence[Script], offsets_partitions: int, partitions: Mapping[str, int]
) -> Numbers:
    """Return the numbers of a replay; those over time and the slowest groups are empty.

    Args:
        events: The rows of `events.parquet`.
        scripts: The scripts of all members.
        offsets_partitions: Number of partitions of `__consumer_offsets`.
        partitions: Partition counts by topic.
    """
    requests = [row for row in events if row["kind"] == "request"]
    first_us = min(row["scheduled_us"] for row in requests)
    end_us = max(map(_end_us, events))
    lengths_us = _rebalances(requests)
    rows: dict[str, list[Mapping[str, Any]]] = {
        "latencies": list(_latencies(requests)),
        "errors": list(_errors(requests)),
        "requests": list(_counts(requests)),
        "populations": list(_populations(events, scripts, lengths_us, end_us, partitions)),
        "rebalances": [_all_rebalances(list(lengths_us.values()))],
        "changes": [],
        "slowest_groups": [],
        "partitions": list(_partitions(requests, scripts, offsets_partitions)),
    }
    return numbers_of(rows, round((end_us - first_us) / 1e6, 3), Slices.of(first_us, end_us), offsets_partitions)


def _end_us(row: Row) -> int:
    done_us = row["sent_us"] if row["latency_us"] is None else row["scheduled_us"] + row["latency_us"]
    return int(max(done_us, row["until_us"] if row["count"] > 1 and row["until_us"] else row["sent_us"]))


def _quantile(numbers: Counter[int], share: float) -> float | None:
    """Return the smallest number, in microseconds, that at least this share does not exceed; in milliseconds."""
    total, below = sum(numbers.values()), 0
    for number in sorted(numbers):
        below += numbers[number]
        if below / total >= share:
            return round(number / 1000, 3)
    return None


def _three_digits(latency_us: int) -> int:
    step = int(10 ** max(0, floor(log10(max(latency_us, 1))) - 2))
    return floor(latency_us / step + 0.5) * step


def _latencies(requests: Sequence[Row]) -> Iterator[Row]:
    parts: dict[tuple[str | None, str | None, bool | None], list[Row]] = defaultdict(list)
    for row in requests:
        for source in (row["source"], None):
            parts[row["api"], source, None].append(row)
            parts[None, source, row["api"] in PARKED_APIS].append(row)
    for (api, source, is_parked), part in parts.items():
        latencies: Counter[int] = Counter()
        for row in part:
            if row["latency_us"] is not None:
                latencies[_three_digits(row["latency_us"])] += row["count"]
        longest = [row["latency_us"] for row in part if row["latency_us"] is not None]
        yield {
            "api": api,
            "source": source,
            "is_parked": is_parked,
            "is_steady": None,
            "slice": None,
            "requests": sum(row["count"] for row in part),
            **{name: _quantile(latencies, share) for name, share in QUANTILES.items()},
            "max_ms": round(max(longest) / 1000, 3) if longest else None,
            "unexpected_errors": sum(
                row["count"] for row in part if row["error"] is not None and row["error"] not in ORDINARY_ERRORS
            ),
            "lost": sum(row["count"] for row in part if row["missing"] == LOST),
            "unanswered": sum(row["count"] for row in part if row["missing"] == UNANSWERED),
            "cut_off": sum(row["count"] for row in part if row["missing"] == CUT_OFF),
        }


def _errors(requests: Sequence[Row]) -> Iterator[Row]:
    counts: Counter[tuple[int, str, str]] = Counter()
    for row in requests:
        if row["error"]:
            counts[row["error"], row["api"], row["source"]] += row["count"]
    for (error, api, source), n in counts.items():
        yield {"error": error, "api": api, "source": source, "slice": None, "n": n}


def _counts(requests: Sequence[Row]) -> Iterator[Row]:
    parts: dict[tuple[int | None, str | None, str | None], list[Row]] = defaultdict(list)
    for row in requests:
        parts[row["broker"], None, None].append(row)
        parts[None, row["api"], row["source"]].append(row)
    for (broker, api, source), part in parts.items():
        yield {
            "broker": broker,
            "api": api,
            "source": source,
            "requests": sum(row["count"] for row in part),
            "groups": len({row["group"] for row in part if row["member"] is not None} - {None}),
            "keys": sum((row["lookups"] or 1) * row["count"] for row in part),
            "most_in_one_request": max(row["lookups"] or 1 for row in part),
        }


def _rebalances(requests: Sequence[Row]) -> dict[tuple[str, int], int | None]:
    """Return the length of the rebalance of each group and generation; None if no member got an assignment."""
    steps: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in requests:
        if row["api"] in ("JoinGroup", "SyncGroup") and row["error"] == 0 and row["member"] is not None:
            steps[row["group"], row["generation"]].append(row)
    lengths_us: dict[tuple[str, int], int | None] = {}
    for key, of_generation in steps.items():
        joins = [row["sent_us"] for row in of_generation if row["api"] == "JoinGroup"]
        if not joins:
            continue
        syncs = [row for row in of_generation if row["api"] == "SyncGroup"]
        completed_us = min((row["scheduled_us"] + row["latency_us"] for row in syncs), default=None)
        synced_us: dict[str, int] = {}
        for row in syncs:
            own = [
                each["sent_us"]
                for each in of_generation
                if each["api"] == "JoinGroup" and each["member"] == row["member"] and each["sent_us"] <= row["sent_us"]
            ]
            if completed_us is not None and own and max(own) <= completed_us:
                done_us = row["scheduled_us"] + row["latency_us"]
                synced_us[row["member"]] = min(done_us, synced_us.get(row["member"], done_us))
        lengths_us[key] = max(synced_us.values()) - min(joins) if synced_us else None
    return lengths_us | _reconciliations(requests)


def _reconciliations(requests: Sequence[Row]) -> dict[tuple[str, int], int | None]:
    """Return how long it took until the members of each group and epoch of the consumer protocol had reached it."""
    begun: dict[tuple[str, int], int] = {}
    ended: dict[tuple[str, int], int] = {}
    seen: set[tuple[str, int, str]] = set()
    assigned: dict[str, set[str]] = {}
    for row in sorted(requests, key=lambda row: row["sent_us"]):
        if row["epoch"] is None or row["epoch"] < 0 or row["error"] != 0:
            continue
        key, member = (row["group"], row["generation"]), row["member"]
        is_first = (*key, member) not in seen
        gained = set(row["assigned"] or ()) - assigned.get(member, set())
        if row["assigned"] is not None:
            assigned[member] = set(row["assigned"])
        if is_first:
            seen.add((*key, member))
            begun[key] = min(row["sent_us"], begun.get(key, row["sent_us"]))
        if is_first or gained:
            ended[key] = max(row["scheduled_us"] + row["latency_us"], ended.get(key, 0))
    return {key: ended[key] - begun[key] for key in begun}


def _all_rebalances(lengths_us: Sequence[int | None]) -> Row:
    known = [length for length in lengths_us if length is not None]
    lengths = Counter(known)
    return {
        "part": "all",
        "generations": len(lengths_us),
        "rebalances": len(known),
        "p50_ms": _quantile(lengths, 0.5),
        "p99_ms": _quantile(lengths, 0.99),
        "max_ms": round(max(known) / 1000, 3) if known else None,
    }


class _Mark(NamedTuple):
    """A change of a member's state; None is unchanged."""

    at_us: int
    turn: int
    present: int | None
    owned: int | None
    is_assigned: int | None


def _marks(events: Sequence[Row], scripts: Sequence[Script]) -> dict[str, list[_Mark]]:
    """Return the changes of each member's state."""
    assignors = {script.member: script.assignor for script in scripts}
    marks: dict[str, list[_Mark]] = defaultdict(list)
    for row in events:
        member, api, at_us, epoch = row["member"], row["api"], row["sent_us"], row["epoch"]
        if member is None:
            continue
        if row["kind"] == "act":
            if api in ("start", "leave", "migrate", "crash"):
                marks[member].append(_Mark(at_us, 2, int(api == "start"), 0, 0))
            continue
        joins, leaves = api == "JoinGroup" or epoch == 0, api == "LeaveGroup" or (epoch or 0) < 0
        if joins or leaves:
            keeps = api == "JoinGroup" and assignors.get(member) == "cooperative-sticky"
            kept = None if keeps else 0
            marks[member].append(_Mark(at_us, 2, int(joins), kept, kept))
        if row["latency_us"] is not None:
            done_us = row["scheduled_us"] + row["latency_us"]
            is_answer = api == "SyncGroup" or epoch == 0 or ((epoch or 0) > 0 and row["assigned"] is not None)
            if is_answer and row["error"] == 0:
                marks[member].append(_Mark(done_us, 0, None, len(row["assigned"] or ()), 1))
            if row["error"] in _MEMBERSHIP_ENDS:
                marks[member].append(_Mark(done_us, 1, None, 0, 0))
    return marks


class _Times(NamedTuple):
    """What became of a member: how long it waited, its partitions times their durations, and when it was there."""

    waited_us: int = 0
    owned_us: int = 0
    has_joined: bool = False
    present: tuple[tuple[int, int], ...] = ()


def _times(events: Sequence[Row], scripts: Sequence[Script], end_us: int) -> dict[str, _Times]:
    found = {}
    for member, of_member in _marks(events, scripts).items():
        waited_us, owned_us, has_joined, spans = 0, 0, False, []
        present, assigned, owned, since_us = None, None, 0, 0
        for mark in [*sorted(of_member, key=lambda mark: mark[:2]), _Mark(end_us, 3, None, None, None)]:
            if present is not None and present != 0:
                spans.append((since_us, mark.at_us))
                waited_us += (mark.at_us - since_us) * (assigned != 1)
                owned_us += (mark.at_us - since_us) * owned * (assigned == 1)
            present = present if mark.present is None else mark.present
            assigned = assigned if mark.is_assigned is None else mark.is_assigned
            owned = owned if mark.owned is None else mark.owned
            has_joined = has_joined or (present != 0 and assigned == 1)
            since_us = mark.at_us
        found[member] = _Times(waited_us, owned_us, has_joined, tuple(spans))
    return found


def _unassigned_us(members: Sequence[Script], times: Mapping[str, _Times], partitions: Mapping[str, int]) -> int:
    """Return the time for which no member had the partitions of a group while the group had members."""
    count = sum(partitions[topic] for topic in {topic for script in members for topic in script.topics})
    present_us, until_us = 0, 0
    for begin_us, end_us in sorted(span for script in members for span in times.get(script.member, _Times()).present):
        present_us += max(0, end_us - max(begin_us, until_us))
        until_us = max(until_us, end_us)
    return count * present_us - sum(times.get(script.member, _Times()).owned_us for script in members)


def _populations(
    events: Sequence[Row],
    scripts: Sequence[Script],
    lengths_us: dict[tuple[str, int], int | None],
    end_us: int,
    partitions: Mapping[str, int],
) -> Iterator[Row]:
    times = _times(events, scripts, end_us)
    for population in sorted({script.population for script in scripts}):
        members = [script for script in scripts if script.population == population]
        groups = {script.group for script in members}
        lengths = [length for (group, _), length in lengths_us.items() if group in groups]
        known = [length for length in lengths if length is not None]
        found = [times.get(script.member, _Times()) for script in members]
        of_groups = [[script for script in members if script.group == group] for group in groups]
        yield {
            "population": population,
            "groups": len(groups),
            "members": len(members),
            "members_joined": sum(each.has_joined for each in found),
            "generations": len(lengths),
            "unassigned_member_s": round(sum(each.waited_us for each in found) / 1e6, 3),
            "unassigned_partition_s": round(
                sum(_unassigned_us(each, times, partitions) for each in of_groups) / 1e6, 3
            ),
            "longest_rebalance_ms": round(max(known) / 1000, 3) if known else None,
        }


def _partitions(requests: Sequence[Row], scripts: Sequence[Script], offsets_partitions: int) -> Iterator[Row]:
    sent: Counter[str] = Counter()
    for row in requests:
        if row["group"] is not None:
            sent[row["group"]] += row["count"]
    groups: dict[int, list[str]] = defaultdict(list)
    for group in dict.fromkeys(script.group for script in scripts):
        groups[partition_for(group, offsets_partitions)].append(group)
    for partition, here in groups.items():
        total = sum(sent[group] for group in here)
        yield {"partition": partition, "broker": None, "groups": len(here), "requests": total}
