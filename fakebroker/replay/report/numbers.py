"""Converts the rows of `number_rows` (partial_numbers.py) to `Numbers`. Does not depend on Spark."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from fakebroker.replay.members.request_outcomes import ORDINARY_ERRORS
from fakebroker.replay.report.chance import skew_by_chance
from fakebroker.replay.report.series import Row, Slices, latencies_over_time, states_over_time
from fakebroker.replay.run_summary import (
    ALL,
    BrokerNumbers,
    DurationCount,
    ErrorCount,
    ErrorsOverTime,
    GroupsOverTime,
    LookupNumbers,
    MembersOverTime,
    Number,
    Numbers,
    OffsetsPartition,
    OffsetsPartitions,
    OverTime,
    Phase,
    PopulationNumbers,
    PopulationOverTime,
    Rebalances,
    RebalancesOverTime,
    RequestNumbers,
    RequestsOverTime,
    SendingDelay,
    SlowGroup,
    TransactionNumbers,
    TransactionsOverTime,
)
from fakebroker.replay.wording import error_name
from fakebroker.replay.workload.expectations import METRICS_OF_A_POPULATION

_NO_METRICS = ("api", "source", "known_latencies")
_LOOKUPS = ("FindCoordinator", "OffsetFetch", "DescribeGroups")
_NO_REQUESTS: Row = {
    "api": None,
    "source": None,
    "requests": 0,
    "p50_ms": None,
    "p99_ms": None,
    "p99_9_ms": None,
    "max_ms": None,
} | dict.fromkeys(("unexpected_errors", "lost", "unanswered", "cut_off", "known_latencies"), 0)
_NO_REBALANCES: Row = {"generations": 0, "rebalances": 0} | dict.fromkeys(("p50_ms", "p99_ms", "max_ms"))


def numbers_of(
    rows: Mapping[str, list[Row]],
    span_s: float,
    slices: Slices,
    offsets_partitions: int,
    steady_slice: int | None = None,
) -> Numbers:
    """Return the numbers of a run.

    Args:
        rows: Rows by subject, such as "errors". A `broker`, `api`, `source` or `slice` that is None means the total; an
            `is_steady` that is None is the whole replay. Rows of "rebalances" have a `part`: "all", "length" (histogram
            of durations), "slice" or "population" (by slice and population). Rows of "over_time" are the sums of all
            APIs by slice.
        span_s: Time from when the first request was due until the last response, in seconds.
        slices: The time slices.
        offsets_partitions: Number of partitions of `__consumer_offsets`.
        steady_slice: The first slice of the steady state; None if there is no steady state.
    """
    sums = [row for row in rows["latencies"] if row["slice"] is None]
    whole = [row for row in sums if row["is_steady"] is None]
    total = _requests(_sum(whole), span_s)
    apis = _apis(whole, span_s)
    steady_s = None if steady_slice is None else steady_slice * slices.length_s
    populations = [PopulationNumbers(**row) for row in rows["populations"]]
    errors, rebalances = _errors(rows["errors"]), _rebalances(rows["rebalances"])
    brokers, partitions = (
        _brokers(rows["requests"], total.requests),
        _partitions(rows["partitions"], offsets_partitions),
    )
    return Numbers(
        groups=sum(row.groups for row in populations),
        span_s=span_s,
        began_us=slices.begin_us,
        measure_from_s=steady_s,
        total=total,
        never_parked=_requests(_sum(whole, (False,)), span_s),
        parked=_requests(_sum(whole, (True,)), span_s),
        startup=None if steady_s == 0 else _phase(sums, False, 0.0, slices.end_s if steady_s is None else steady_s),
        steady=None if steady_s is None else _phase(sums, True, steady_s, slices.end_s),
        apis=apis,
        subtotals=_subtotals(whole, apis, span_s),
        errors=errors,
        rebalances=rebalances,
        populations=populations,
        brokers=brokers,
        lookups=_lookups(rows["requests"]),
        sent_late=_sent_late(rows["requests"]),
        offsets_partitions=partitions,
        slowest_groups=[SlowGroup(**row) for row in rows["slowest_groups"]],
        over_time=_over_time(rows, slices, populations),
        broker_skew_by_chance=skew_by_chance(
            _loads(rows["partitions"]),
            sum(row.groups for row in partitions.partitions),
            sum(row.broker >= 0 for row in brokers),
        ),
        transactions=_transactions(rows.get("transactions", ())),
        metrics=_metrics(total, rebalances, populations, brokers, partitions, errors),
    )


def skew(loads: Iterable[float], count: int) -> float | None:
    """Return the maximum load divided by the mean load; None if all loads are 0.

    Args:
        loads: The loads that are known.
        count: Number of all loads; those that are not in `loads` are 0.
    """
    listed = list(loads)
    return round(max(listed) * count / sum(listed), 3) if sum(listed) else None


def _subtotals(rows: Sequence[Row], apis: Sequence[RequestNumbers], span_s: float) -> list[RequestNumbers]:
    """Return the sums by source, and the sums of the APIs whose requests have both sources."""
    from_load = {row.api for row in apis if row.source == "load"}
    from_both = {row.api for row in apis if row.source == "members" and row.api in from_load}
    sources = [*dict.fromkeys(row["source"] for row in rows if row["source"])]
    of_sources = [_sum(rows, source=source) for source in sources]
    of_apis = [row for row in rows if row["source"] is None and row["api"] in from_both]
    return [_requests(row, span_s) for row in (*of_sources, *of_apis)]


def _apis(rows: Iterable[Row], span_s: float) -> list[RequestNumbers]:
    return [_requests(row, span_s) for row in rows if row["api"] and row["source"]]


def _phase(rows: Iterable[Row], is_steady: bool, from_s: float, until_s: float) -> Phase:
    """Return the requests of a phase, from rows without a slice."""
    of_phase = [row for row in rows if row["is_steady"] is is_steady]
    length_s = until_s - from_s
    return Phase(
        from_s=from_s,
        until_s=until_s,
        never_parked=_requests(_sum(of_phase, (False,)), length_s),
        parked=_requests(_sum(of_phase, (True,)), length_s),
        apis=_apis(of_phase, length_s),
    )


def _sum(rows: Iterable[Row], parked: Collection[bool] = (False, True), source: str | None = None) -> Row:
    """Return the sum over all APIs that may be parked, those that may not, or both.

    Args:
        rows: Rows of "latencies" of one phase, without a slice.
        parked: Whether the APIs may be parked. The quantiles and the maximum are of the first value only.
        source: The source; both if not given.
    """
    found = {row["is_parked"]: row for row in rows if row["api"] is None and row["source"] == source}
    first, *others = (found.get(is_parked, _NO_REQUESTS) for is_parked in parked)
    counts = ("requests", "unexpected_errors", "lost", "unanswered", "cut_off", "known_latencies")
    return {**first, "source": source} | {name: sum(row.get(name, 0) for row in (first, *others)) for name in counts}


def _requests(row: Row, span_s: float) -> RequestNumbers:
    return RequestNumbers(
        api=row["api"] or ALL,
        source=row["source"] or ALL,
        requests=row["requests"],
        requests_per_s=round(row["requests"] / max(span_s, 0.001), 1),
        p50_ms=row["p50_ms"],
        p99_ms=row["p99_ms"],
        p99_9_ms=row["p99_9_ms"],
        max_ms=row["max_ms"],
        unexpected_errors=row["unexpected_errors"],
        lost=row["lost"],
        unanswered=row["unanswered"],
        cut_off=row["cut_off"],
        undelayed_p50_ms=row.get("undelayed_p50_ms"),
        undelayed_p99_ms=row.get("undelayed_p99_ms"),
        undelayed_p99_9_ms=row.get("undelayed_p99_9_ms"),
        undelayed_max_ms=row.get("undelayed_max_ms"),
        known_latencies=row.get("known_latencies"),
    )


def _errors(rows: Iterable[Row]) -> list[ErrorCount]:
    """Return counts by error, API and source: unexpected errors first, then the most frequent ones."""
    counts: Counter[tuple[int, str, str]] = Counter()
    for row in rows:
        counts[row["error"], row["api"], row["source"]] += row["n"]
    found = [
        ErrorCount(error_name(code), code, api, source, n, code in ORDINARY_ERRORS)
        for (code, api, source), n in counts.items()
    ]
    return sorted(found, key=lambda row: (row.ordinary, -row.requests, row.code, row.api, row.source))


def _rebalances(rows: list[Row]) -> Rebalances:
    row = next((row for row in rows if row["part"] == "all"), _NO_REBALANCES)
    return Rebalances(
        generations=row["generations"],
        count=row["rebalances"],
        p50_ms=row["p50_ms"],
        p99_ms=row["p99_ms"],
        max_ms=row["max_ms"],
        distribution=[
            DurationCount(part["from_ms"], part["rebalances"])
            for part in rows
            if part["part"] == "length" and part["from_ms"] is not None and part["rebalances"]
        ],
    )


def _transactions(rows: Iterable[Row]) -> TransactionNumbers | None:
    total = next((row for row in rows if row["slice"] is None), None)
    if total is None:
        return None
    return TransactionNumbers(**{name: value for name, value in total.items() if name != "slice"})


def _transactions_over_time(slices: Slices, rows: Iterable[Row]) -> TransactionsOverTime | None:
    of_slices = [row for row in rows if row["slice"] is not None]
    if not of_slices:
        return None
    return TransactionsOverTime(
        committed=slices.counts(of_slices, "committed"),
        aborted=slices.counts(of_slices, "aborted"),
        not_ended=slices.counts(of_slices, "not_ended"),
        p50_ms=slices.column(of_slices, "p50_ms"),
        max_ms=slices.column(of_slices, "max_ms"),
        visible_max_ms=slices.column(of_slices, "visible_max_ms"),
    )


def _brokers(rows: Iterable[Row], requests: int) -> list[BrokerNumbers]:
    return [
        BrokerNumbers(row["broker"], row["requests"], round(row["requests"] / max(requests, 1), 4), row["groups"])
        for row in rows
        if row["broker"] is not None
    ]


def _lookups(rows: Iterable[Row]) -> list[LookupNumbers]:
    return [
        LookupNumbers(row["api"], row["source"], row["requests"], row["keys"], row["most_in_one_request"])
        for row in rows
        if row["api"] in _LOOKUPS
    ]


def _sent_late(rows: Iterable[Row]) -> SendingDelay:
    delays = (
        SendingDelay(row["p50_ms"], row["p99_ms"], row["max_ms"])
        for row in rows
        if row["broker"] is None and row["api"] is None
    )
    return next(delays, SendingDelay(None, None))


def _partitions(rows: list[Row], count: int) -> OffsetsPartitions:
    used = [row for row in rows if row["partition"] is not None]
    groups = sum(row["groups"] for row in used)
    return OffsetsPartitions(
        count=count,
        groups_skew=skew([row["groups"] for row in used], count),
        groups_skew_by_chance=skew_by_chance([1.0] if used else [], groups, count),
        requests_skew=skew([row["requests"] for row in used], count),
        requests_skew_by_chance=skew_by_chance(_loads(rows), groups, count),
        partitions=[OffsetsPartition(row["partition"], row["broker"], row["groups"], row["requests"]) for row in used],
    )


def _loads(rows: Iterable[Row]) -> Sequence[float]:
    """Return the quantiles of the requests of a group, from the rows of "partitions"."""
    return next((row["loads"] for row in rows if row["partition"] is None and row["loads"]), [])


def _over_time(rows: Mapping[str, list[Row]], slices: Slices, populations: Sequence[PopulationNumbers]) -> OverTime:
    errors: dict[tuple[int, str, str], list[Row]] = {}
    for row in rows["errors"]:
        errors.setdefault((row["error"], row["api"], row["source"]), []).append(row)
    changes = {what: [row for row in rows["changes"] if row["what"] == what] for what in ("groups", "members")}
    return OverTime(
        slice_s=slices.length_s,
        slices=slices.count,
        apis=latencies_over_time(slices, [row for row in rows["latencies"] if row["slice"] is not None]),
        errors=[
            ErrorsOverTime(error_name(code), api, source, slices.counts(answers, "n"))
            for (code, api, source), answers in errors.items()
        ],
        groups=states_over_time(slices, changes["groups"], GroupsOverTime, sum(row.groups for row in populations)),
        members=states_over_time(slices, changes["members"], MembersOverTime, sum(row.members for row in populations)),
        rebalances=_rebalances_over_time(slices, (row for row in rows["rebalances"] if row["part"] == "slice")),
        populations=[_population_over_time(slices, changes, rows["rebalances"], row) for row in populations],
        transactions=_transactions_over_time(slices, rows.get("transactions", ())),
        never_parked=_sum_over_time(slices, rows, is_parked=False),
        parked=_sum_over_time(slices, rows, is_parked=True),
        missing=[
            sum(row["lost"] + row["unanswered"] for row in rows.get("over_time", ()) if row["slice"] == index)
            for index in range(slices.count)
        ],
    )


def _sum_over_time(slices: Slices, rows: Mapping[str, list[Row]], is_parked: bool) -> RequestsOverTime:
    """Return the sum over all APIs that may be parked, or those that may not."""
    sums = [{**row, "api": ALL, "source": ALL} for row in rows.get("over_time", ()) if row["is_parked"] is is_parked]
    none = RequestsOverTime(ALL, ALL, [0.0] * slices.count, [None] * slices.count, [None] * slices.count)
    return next(iter(latencies_over_time(slices, sums)), none)


def _population_over_time(
    slices: Slices, changes: Mapping[str, Sequence[Row]], rebalances: Iterable[Row], population: PopulationNumbers
) -> PopulationOverTime:
    name = population.population
    groups, members = ([row for row in changes[what] if row["population"] == name] for what in ("groups", "members"))
    return PopulationOverTime(
        population=name,
        groups=states_over_time(slices, groups, GroupsOverTime, population.groups),
        members=states_over_time(slices, members, MembersOverTime, population.members),
        rebalances=_rebalances_over_time(
            slices, (row for row in rebalances if row["part"] == "population" and row["population"] == name)
        ),
    )


def _rebalances_over_time(slices: Slices, rows: Iterable[Row]) -> RebalancesOverTime:
    complete = [row for row in rows if row["rebalances"]]
    return RebalancesOverTime(
        slices.counts(complete, "rebalances"), slices.column(complete, "p50_ms"), slices.column(complete, "max_ms")
    )


def _metrics(
    total: RequestNumbers,
    rebalances: Rebalances,
    populations: Sequence[PopulationNumbers],
    brokers: Iterable[BrokerNumbers],
    partitions: OffsetsPartitions,
    errors: Iterable[ErrorCount],
) -> dict[str, Number | None]:
    """Return the metrics for `[[expect]]` tables by the names in `expectations.METRICS`. None means no value."""
    known = [row for row in brokers if row.broker >= 0]
    counts: dict[str, Number | None] = {}
    for row in errors:
        name = f"errors.{row.name}"
        counts[name] = (counts.get(name) or 0) + row.requests
    return {
        **{name: value for name, value in msgspec.structs.asdict(total).items() if name not in _NO_METRICS},
        "generations": rebalances.generations,
        "rebalances": rebalances.count,
        "rebalance_p50_ms": rebalances.p50_ms,
        "rebalance_p99_ms": rebalances.p99_ms,
        "rebalance_max_ms": rebalances.max_ms,
        "members_joined": sum(row.members_joined for row in populations),
        "unassigned_member_s": round(sum(row.unassigned_member_s for row in populations), 3),
        "unassigned_partition_s": round(sum(row.unassigned_partition_s for row in populations), 3),
        **{
            f"{name}.{row.population}": getattr(row, key)
            for row in populations
            for name, key in METRICS_OF_A_POPULATION.items()
        },
        "broker_share": max((row.share for row in known), default=None),
        "broker_skew": skew([row.requests for row in known], len(known)),
        "partition_skew": partitions.requests_skew,
        **counts,
    }
