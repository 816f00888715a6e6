"""Converts the counts of partial_numbers.py to the numbers of a replay. Does not depend on Spark.

**Folded heartbeats.** For example, a row stands for 20 heartbeats, and has only their longest latency: 300 ms. The
other 19 latencies are unknown, but at most 300 ms. `_with_estimates` assumes that they are distributed like other
latencies up to 300 ms with the same API, source and broker. So one long pause does not count for all heartbeats in its
row.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fakebroker.replay.members.events import PARKED_APIS
from fakebroker.replay.members.request_outcomes import CUT_OFF, LOST, ORDINARY_ERRORS, UNANSWERED
from fakebroker.replay.report.chance import LOAD_QUANTILES
from fakebroker.replay.report.columns import MOST, NULL, begin_of, codes_of, is_first, last_of
from fakebroker.replay.report.numbers import numbers_of
from fakebroker.replay.report.partial_numbers import Facts, Partial
from fakebroker.replay.report.series import Row
from fakebroker.replay.run_summary import Numbers

QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p99_9_ms": 0.999}
"""The quantiles, by their keys in a summary."""

_NAMES = ("api", "source", "slice", "is_parked", "is_steady")
_NO_QUANTILES: Mapping[str, float | None] = dict.fromkeys(QUANTILES)
_INTERVALS_US = np.array([digit * 10**power for power in range(13) for digit in (1, 2, 5)])
"""Durations of rebalances are counted by intervals. The intervals begin at 1, 2, 5, 10, 20 ..."""

_ROUNDING_ERROR = 1e-11
"""A share of requests. It is larger than all rounding errors, and smaller than the share of one request."""


def numbers_from(counts: Partial, facts: Facts) -> Numbers:
    """Return the numbers of a replay from the counts of all its events."""
    rows, steady_slice = number_rows(counts, facts), facts.steady_slice(counts)
    return numbers_of(rows, facts.span_s, facts.slices, facts.offsets_partitions, steady_slice)


def number_rows(counts: Partial, facts: Facts) -> dict[str, list[Row]]:
    """Return the rows for `numbers_of` from the counts of all events."""
    steady_slice = facts.steady_slice(counts)
    rows: dict[str, list[Row]] = {
        **_latency_rows(counts, facts.slices.count if steady_slice is None else steady_slice),
        "requests": _request_rows(counts),
        "populations": _population_rows(counts),
        "rebalances": rebalance_rows(counts["rebalances"]),
        "changes": [{**row, "part": row["rest_us"] / facts.slices.length_us} for row in counts["changes"].to_pylist()],
        "slowest_groups": [
            {
                "group": row["group"],
                "population": row["population"],
                "members": row["members"],
                "generations": row["generations"],
                "longest_rebalance_ms": _ms(row["longest_us"]),
                "unassigned_member_s": round(row["waiting_us"] / 1e6, 3),
            }
            for row in counts["slowest"].to_pylist()
        ],
        "partitions": _partition_rows(counts),
        "errors": _error_rows(counts),
    }
    if len(counts["transactions"]):
        rows["transactions"] = _transaction_rows(counts["transactions"])
    return rows


def _latency_rows(counts: Partial, steady_slice: int) -> dict[str, list[Row]]:
    """Return the numbers and latencies of requests.

    "latencies" has rows by API, source, slice, phase and whether the API may be parked. None is the whole replay, all
    APIs, or both sources. Sums over APIs are apart for those that may be parked. "over_time" has these sums by slice.
    """
    kinds = counts["kinds"]
    for name, where in {
        "is_parked": pc.is_in(kinds["api"], pa.array(PARKED_APIS)),
        "unexpected_errors": pc.invert(pc.is_in(kinds["error"], pa.array([None, *ORDINARY_ERRORS], pa.int16()))),
        "lost": pc.equal(kinds["missing"], LOST),
        "unanswered": pc.equal(kinds["missing"], UNANSWERED),
        "cut_off": pc.equal(kinds["missing"], CUT_OFF),
    }.items():
        kinds = kinds.append_column(name, pc.fill_null(where, False))
    latencies, undelayed = (_with_folded(counts, name) for name in ("requests", "undelayed"))

    # Folded heartbeats may begin in one phase and end in the other.
    longest = _with_kinds(counts["longest"], kinds)
    of_phases = pa.concat_tables(
        table.append_column("is_steady", pa.array([is_steady] * len(table), pa.bool_()))
        for is_steady, table in (
            (False, longest.filter(pc.less(longest["first"], steady_slice))),
            (True, longest.filter(pc.greater_equal(longest["last"], steady_slice))),
        )
    )
    requests = _with_kinds(_all_requests(counts), kinds)
    requests = requests.append_column("is_steady", pc.greater_equal(requests["slice"], steady_slice))
    failures = ("unexpected_errors", "lost", "unanswered", "cut_off")
    for name in failures:
        failed = pc.if_else(requests[name], requests["n"], 0)
        requests = requests.set_column(requests.schema.get_field_index(name), name, failed)

    def rows_by(*sets: Sequence[str], time: str | None, with_undelayed: bool = True) -> list[Row]:
        estimated = _with_estimates(latencies, kinds, time, steady_slice)
        also = _with_estimates(undelayed, kinds, time, steady_slice) if with_undelayed else None
        found: list[Row] = []
        for by in sets:
            quantiles = _quantiles(estimated, by)
            of_undelayed = {} if also is None else _quantiles(also, by)
            most = (
                {}
                if also is None
                else _grouped(of_phases if time else longest, by, max_us="max", undelayed_max_us="max")
            )
            for key, row in _grouped(requests, by, n="sum", known="sum", **dict.fromkeys(failures, "sum")).items():
                known, longest_us = quantiles.get(key, _NO_QUANTILES), most.get(key, {})
                found.append(
                    {
                        **dict.fromkeys(_NAMES),
                        **row,
                        "requests": row["n"],
                        "known_latencies": round(row["known"]),
                        **known,
                        "max_ms": _ms(longest_us.get("max_us")),
                        **{f"undelayed_{name}": value for name, value in of_undelayed.get(key, _NO_QUANTILES).items()},
                        "undelayed_max_ms": _ms(longest_us.get("undelayed_max_us")),
                    }
                )
        return _sorted(found)

    return {
        "latencies": [
            *rows_by(["api", "source"], ["api"], ["source", "is_parked"], ["is_parked"], time=None),
            *rows_by(["is_steady", "api", "source"], ["is_steady", "is_parked"], time="is_steady"),
            *rows_by(["api", "source", "slice"], time="slice", with_undelayed=False),
        ],
        "over_time": rows_by(["is_parked", "slice"], time="slice", with_undelayed=False),
    }


def _sorted(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by API, by source (members first), and by slice; None is first, a source that is None is last."""
    of_source = {"members": 0, "load": 1}
    return sorted(
        rows,
        key=lambda row: (
            row["api"] or "",
            of_source.get(row["source"], 2),
            -1e9 if row["slice"] is None else row["slice"],
        ),
    )


def _with_folded(counts: Partial, name: str) -> pa.Table:
    """Return the table "requests" or "undelayed" with the folded requests and the number of known latencies."""
    table = counts[name]
    known = pc.if_else(pc.greater_equal(table["key"], 0), table["n"], 0).cast(pa.float64())
    return pa.concat_tables([table.append_column("known", known), counts["folded"]])


def _all_requests(counts: Partial) -> pa.Table:
    """Return the number of requests, and of known latencies, by kind and slice."""
    table = _with_folded(counts, "requests").group_by(["kind", "slice"], use_threads=False)
    found = table.aggregate([("n", "sum"), ("known", "sum")])
    return found.select(["kind", "slice", "n_sum", "known_sum"]).rename_columns(["kind", "slice", "n", "known"])


def _with_kinds(table: pa.Table, kinds: pa.Table) -> pa.Table:
    """Return a table with the columns of `kinds` instead of the kind."""
    found = kinds.take(table["kind"])
    for name in table.schema.names:
        if name != "kind":
            found = found.append_column(name, table[name])
    return found


def _grouped(table: pa.Table, by: Sequence[str], **aggregations: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return sums or maxima of columns as rows, by the values of some other columns."""
    if not by and not len(table):
        return {}
    found = table.group_by([*by], use_threads=False).aggregate([*aggregations.items()])
    columns = [*(found[name] for name in by), *(found[f"{name}_{kind}"] for name, kind in aggregations.items())]
    rows = pa.table(columns, names=[*by, *aggregations]).to_pylist()
    return {tuple(row[name] for name in by): row for row in rows}


def _with_estimates(counts: pa.Table, kinds: pa.Table, time: str | None, steady_slice: int) -> pa.Table:
    """Return the number of requests by latency, as far as known and else estimated.

    Of folded requests with a longest latency of `key`, one has this latency and the others (`n - known`) are at most as
    long. They are distributed to all latencies up to `key` of the same API, source, broker and time, in proportion to
    the requests that have these latencies, known or estimated. (This is the product-limit estimate of Kaplan and Meier
    for values with only a known upper bound.) If all latencies are known, the result is their number.

    The estimate is too low if some members always get slow responses, because their other heartbeats then count as
    fast ones. It is never less than the least latency that is known.

    Args:
        counts: Rows with kind, slice, `key`, `n` and `known`.
        kinds: The kinds, with `is_parked`.
        time: "slice" or "is_steady" for estimates by slice or phase; None for the whole replay.
        steady_slice: The first slice of the steady state.

    Returns:
        Rows with the columns of kinds, `time` and `key`, and with `n`, which is not an integer.
    """
    stratum, first_kind = codes_of(kinds.select(["api", "source", "broker"]))
    counts = counts.filter(pc.greater_equal(counts["key"], 0))
    columns = {
        "stratum": pa.array(stratum[counts["kind"].to_numpy()]),
        "slice": counts["slice"],
        "is_steady": pc.greater_equal(counts["slice"], steady_slice).cast(pa.int32()),
    }
    of = ["stratum", *filter(None, [time])]
    table = pa.table({name: columns[name] for name in of} | {name: counts[name] for name in ("key", "n", "known")})
    table = table.group_by([*of, "key"], use_threads=False).aggregate([("n", "sum"), ("known", "sum")])
    order = [table[name].to_numpy() for name in ("key", *reversed(of))]
    table = table.take(pa.array(np.lexsort(order)))
    first = is_first(*(table[name].to_numpy() for name in of))
    n, unknown = table["n_sum"].to_numpy(), table["n_sum"].to_numpy() - table["known_sum"].to_numpy()
    total = np.cumsum(n)
    shorter = total - n - (total - n)[begin_of(first)]  # the number of requests with a shorter latency
    # Requests with shorter latencies become more by this factor, for each longer latency of folded requests.
    growth = np.cumsum(np.where(first, 0.0, np.log1p(unknown / np.maximum(shorter, 1))))
    end = np.flatnonzero(last_of(first))[np.cumsum(first) - 1]
    estimated = (shorter + n) * np.exp(growth[end] - growth)
    estimated[1:] -= np.where(first[1:], 0, estimated[:-1])
    found = {name: table[name] for name in (*of[1:], "key")} | {"n": pa.array(estimated)}
    if time == "is_steady":
        found["is_steady"] = pc.equal(found["is_steady"], 1)
    names = kinds.select(["api", "source", "is_parked"]).take(pa.array(first_kind[table["stratum"].to_numpy()]))
    for name, column in found.items():
        names = names.append_column(name, column)
    return names


def _quantiles(
    counts: pa.Table, by: Sequence[str], key: str = "key", shares: Mapping[str, float] = QUANTILES
) -> dict[tuple[Any, ...], dict[str, float | None]]:
    """Return quantiles in milliseconds, by the values of some columns.

    Args:
        counts: Rows with these columns, a number of microseconds, and how often it occurs (`n`).
        by: The columns.
        key: The column of the number.
        shares: The quantiles by name: the least number that at least this share does not exceed.
    """
    table = counts.group_by([*by, key], use_threads=False).aggregate([("n", "sum")])
    if not len(table):
        return {}
    part = codes_of(table.select([*by]))[0] if by else np.zeros(len(table), np.int64)
    number = table[key].to_numpy()
    order = np.lexsort((number, part))
    number, n, first = number[order], table["n_sum"].to_numpy()[order], is_first(part[order])
    begin, end = np.flatnonzero(first), np.flatnonzero(last_of(first))
    total = np.cumsum(n)
    below = total[begin] - n[begin]
    of_part = np.cumsum(first) - 1
    rank = (total - below[of_part]) / (total[end] - below)[of_part] + _ROUNDING_ERROR
    places = {
        name: np.minimum.reduceat(np.where(rank >= share, np.arange(len(rank)), MOST), begin)
        for name, share in shares.items()
    }
    keys = table.select([*by]).take(pa.array(order[begin])).to_pylist() if by else [{}]
    return {
        tuple(row.values()): {name: _ms(int(number[place[index]])) for name, place in places.items()}
        for index, row in enumerate(keys)
    }


def _ms(number_us: float | None) -> float | None:
    return None if number_us is None else round(number_us / 1000, 3)


def _error_rows(counts: Partial) -> list[Row]:
    """Return the responses with an error by error, API, source and slice."""
    requests = _with_kinds(_all_requests(counts), counts["kinds"])
    failed = requests.filter(pc.not_equal(requests["error"], 0))
    rows = _grouped(failed, ["error", "api", "source", "slice"], n="sum").values()
    return sorted(_sorted(rows), key=lambda row: int(row["error"]))


def _request_rows(counts: Partial) -> list[Row]:
    """Return how late all requests were sent, the look-ups by API and source, and the requests by broker."""
    late = _quantiles(counts["sent_late"], []).get((), _NO_QUANTILES)
    requests = _with_kinds(_all_requests(counts), counts["kinds"])
    of_api = _grouped(requests, ["api", "source"], n="sum")
    lookups = _grouped(
        _with_kinds(counts["lookups"], counts["kinds"]), ["api", "source"], keys="sum", most_in_one_request="max"
    )
    latest_us = pc.max(counts["sent_late"]["max_us"]).as_py()
    rows: list[Row] = [
        {"broker": None, "api": None, **late, "max_ms": _ms(latest_us)},
        *_sorted({**row, "broker": None, "slice": None, "requests": of_api[key]["n"]} for key, row in lookups.items()),
    ]
    groups = _grouped(counts["brokers"], ["broker"], groups="sum")
    for (broker,), row in sorted(_grouped(requests, ["broker"], n="sum").items()):
        rows.append(
            {
                "broker": broker,
                "api": None,
                "requests": row["n"],
                "groups": groups.get((broker,), {"groups": 0})["groups"],
            }
        )
    return rows


def _population_rows(counts: Partial) -> list[Row]:
    rebalances = _grouped(counts["rebalances"], ["population"], n="sum", length_us="max")
    rows: list[Row] = []
    for row in counts["populations"].sort_by("population").to_pylist():
        rebalanced = rebalances.get((row["population"],), {})
        rows.append(
            {
                "population": row["population"],
                "groups": row["groups"],
                "members": row["members"],
                "members_joined": row["members_joined"],
                "generations": rebalanced.get("n", 0),
                "unassigned_member_s": round(row["waiting_us"] / 1e6, 3),
                "longest_rebalance_ms": _ms(rebalanced.get("length_us")),
                "unassigned_partition_s": round(row["unassigned_us"] / 1e6, 3),
            }
        )
    return rows


def rebalance_rows(rebalances: pa.Table) -> list[Row]:
    """Return the rebalances in total, by duration, by slice, and by slice and population."""
    lengths = rebalances["length_us"]
    interval = np.searchsorted(_INTERVALS_US, pc.fill_null(lengths, 1).to_numpy(), side="right") - 1
    edges = pc.if_else(pc.is_valid(lengths), pa.array(_INTERVALS_US[np.maximum(interval, 0)] / 1000), None)
    complete = pc.if_else(pc.is_valid(lengths), rebalances["n"], 0)
    table = rebalances.append_column("from_ms", edges).append_column("complete", complete)
    known = table.filter(pc.is_valid(lengths))
    rows: list[Row] = []
    for part, by in (
        ("all", []),
        ("length", ["from_ms"]),
        ("slice", ["slice"]),
        ("population", ["slice", "population"]),
    ):
        quantiles = _quantiles(known, by, "length_us", {"p50_ms": 0.5, "p99_ms": 0.99})
        for key, row in _grouped(table, by, n="sum", complete="sum", length_us="max").items():
            rows.append(
                {
                    **row,
                    "part": part,
                    "generations": row["n"],
                    "rebalances": row["complete"],
                    **quantiles.get(key, _NO_QUANTILES),
                    "max_ms": _ms(row["length_us"]),
                }
            )
    return sorted(rows, key=lambda row: row.get("from_ms") or 0)


def _partition_rows(counts: Partial) -> list[Row]:
    brokers = {row["partition"]: row["broker"] for row in counts["busiest"].to_pylist()}
    rows = [
        {**row, "broker": brokers[row["partition"]], "loads": None}
        for row in counts["partitions"].sort_by("partition").to_pylist()
    ]
    loads = counts["loads"].sort_by("requests")
    requests, total = loads["requests"].to_numpy(), np.cumsum(loads["groups"].to_numpy())
    quantiles = [
        int(requests[np.searchsorted(total, ceil(share * total[-1]))]) for share in LOAD_QUANTILES if len(total)
    ]
    return [{"partition": None, "loads": quantiles}, *rows]


def _transaction_rows(transactions: pa.Table) -> list[Row]:
    """Return the transactions by the slice in which they began, and in total."""
    table = transactions.filter(pc.not_equal(transactions["outcome"], "not begun"))
    slices, outcome, n = (table[name].to_numpy(zero_copy_only=False) for name in ("slice", "outcome", "n"))
    length_us, visible_us = (pc.fill_null(table[name], NULL).to_numpy() for name in ("length_us", "visible_us"))
    rows: list[Row] = []
    for number in (None, *np.unique(slices).tolist()):
        here = np.ones(len(table), np.bool_) if number is None else slices == number
        lengths_ms, visible_ms = (
            np.sort(np.repeat(times[here & (times != NULL)], n[here & (times != NULL)])) / 1000
            for times in (length_us, visible_us)
        )
        rows.append(
            {
                "slice": number,
                "begun": int(n[here].sum()),
                "committed": int(n[here & (outcome == "committed")].sum()),
                "aborted": int(n[here & (outcome == "aborted")].sum()),
                "not_ended": int(n[here & (outcome == "not ended")].sum()),
                "p50_ms": _percentile(lengths_ms, 0.5),
                "p99_ms": _percentile(lengths_ms, 0.99),
                "max_ms": float(lengths_ms[-1]) if len(lengths_ms) else None,
                "visible_p50_ms": _percentile(visible_ms, 0.5),
                "visible_max_ms": float(visible_ms[-1]) if len(visible_ms) else None,
            }
        )
    return rows


def _percentile(numbers: NDArray[np.float64], share: float) -> float | None:
    """Return a percentile of sorted numbers, interpolated between two of them."""
    if not len(numbers):
        return None
    place = (len(numbers) - 1) * share
    below, above = floor(place), ceil(place)
    if below == above:
        return float(numbers[below])
    return float((above - place) * numbers[below] + (place - below) * numbers[above])
