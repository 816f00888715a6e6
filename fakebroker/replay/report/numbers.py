"""Converts the rows returned by the queries of summary.py to the summary. Plain Python on few rows, without Spark."""

from collections.abc import Iterable, Mapping
from typing import Any

from fakebroker.errors import ErrorCode
from fakebroker.replay.members.events import ORDINARY_ERRORS
from fakebroker.replay.report.series import Row, Slices, latencies_over_time, states_over_time

SUMMARY_VERSION = 1
"""Version of the schema of `summary.json`; incremented when a key is removed or changes its meaning."""

GROUP_STATES = ("stable", "rebalancing", "empty")
MEMBER_STATES = ("assigned", "waiting", "gone")

_OF_A_POPULATION = ("generations", "members_joined", "unassigned_member_s")
_ERRORS = {int(error): error.name for error in ErrorCode}
_LOOKUPS = ("FindCoordinator", "OffsetFetch", "DescribeGroups")
_NUMBERS = ("requests", "p50_ms", "p99_ms", "p99_9_ms", "max_ms", "unexpected_errors", "lost", "unanswered")
_NO_LATENCIES: Row = {"api": None, "slice": None} | {name: None if name.endswith("_ms") else 0 for name in _NUMBERS}
_NO_REBALANCES: Row = {"generations": 0, "rebalances": 0} | dict.fromkeys(("p50_ms", "p99_ms", "max_ms"))
_NOT_LATE: Row = {"broker": None, "api": None} | dict.fromkeys(("p50_ms", "p99_ms"))


def summary_of(rows: Mapping[str, list[Row]], span_s: float, slices: Slices, offsets_partitions: int) -> dict[str, Any]:
    """Return the numbers of the summary, from the rows of each query by its name."""
    latencies = rows["latencies"]
    total = next((row for row in latencies if row["api"] is None), _NO_LATENCIES)
    summary = {
        "span_s": span_s,
        "began_us": slices.begin_us,
        "total": _api(total, span_s),
        "apis": [_api(row, span_s) for row in latencies if row["api"] and row["slice"] is None],
        "errors": _errors(rows["errors"]),
        "rebalances": _rebalances(rows["rebalances"]),
        "populations": rows["populations"],
        **_requests(rows["requests"], max(total["requests"], 1)),
        "offsets_partitions": _partitions(rows["partitions"], offsets_partitions),
        "slowest_groups": rows["slowest_groups"],
        "over_time": _over_time(rows, slices),
    }
    return {**summary, "metrics": _metrics(summary)}


def skew(loads: Iterable[float], count: int) -> float | None:
    """Return the maximum load divided by the even share of `count`; None if there is no load."""
    listed = list(loads)
    return round(max(listed) * count / sum(listed), 3) if sum(listed) else None


def error_name(code: int) -> str:
    """Return Kafka's name of an error, or the number if Kafka has none."""
    return _ERRORS.get(code, str(code))


def _api(row: Row, span_s: float) -> dict[str, Any]:
    requests, *others = _NUMBERS
    return {
        "api": row["api"] or "all",
        "requests": row[requests],
        "requests_per_s": round(row[requests] / max(span_s, 0.001), 1),
        **{name: row[name] for name in others},
    }


def _errors(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return counts by error and API: unexpected errors first, then the most frequent ones."""
    answers: dict[tuple[int, str], int] = {}
    for row in rows:
        answers[row["error"], row["api"]] = answers.get((row["error"], row["api"]), 0) + row["n"]
    found = [
        {"name": error_name(code), "code": code, "api": api, "requests": n, "ordinary": code in ORDINARY_ERRORS}
        for (code, api), n in answers.items()
    ]
    return sorted(found, key=lambda row: (row["ordinary"], -row["requests"], row["code"], row["api"]))


def _rebalances(rows: Iterable[Row]) -> dict[str, Any]:
    listed = list(rows)
    row = next((row for row in listed if row["part"] == "all"), _NO_REBALANCES)
    lengths = [part for part in listed if part["part"] == "length" and part["from_ms"] is not None]
    return {
        "generations": row["generations"],
        "count": row["rebalances"],
        **{name: row[name] for name in ("p50_ms", "p99_ms", "max_ms")},
        "distribution": [
            {"from_ms": part["from_ms"], "count": part["rebalances"]} for part in lengths if part["rebalances"]
        ],
    }


def _requests(rows: Iterable[Row], requests: int) -> dict[str, Any]:
    """Return the sections on brokers, look-ups, and delays in sending."""
    listed = list(rows)
    return {
        "brokers": [
            {
                "broker": row["broker"],
                "requests": row["requests"],
                "share": round(row["requests"] / requests, 4),
                "groups": row["groups"],
            }
            for row in listed
            if row["broker"] is not None
        ],
        "lookups": [
            {name: row[name] for name in ("api", "requests", "keys", "most_in_one_request")}
            for row in listed
            if row["api"] in _LOOKUPS
        ],
        "sent_late": next(
            {name: row[name] for name in ("p50_ms", "p99_ms")}
            for row in [*listed, _NOT_LATE]
            if row["broker"] is None and row["api"] is None
        ),
    }


def _partitions(rows: list[Row], count: int) -> dict[str, Any]:
    return {
        "count": count,
        "groups_skew": skew([row["groups"] for row in rows], count),
        "requests_skew": skew([row["requests"] for row in rows], count),
        "partitions": rows,
    }


def _over_time(rows: Mapping[str, list[Row]], slices: Slices) -> dict[str, Any]:
    errors: dict[tuple[int, str], list[Row]] = {}
    for row in rows["errors"]:
        errors.setdefault((row["error"], row["api"]), []).append(row)
    rebalances = [row for row in rows["rebalances"] if row["part"] == "slice" and row["rebalances"]]
    there = {name: sum(row[name] for row in rows["populations"]) for name in ("groups", "members")}
    changes = {name: [row for row in rows["changes"] if row["what"] == name] for name in there}
    return {
        "slice_s": slices.length_s,
        "slices": slices.count,
        "apis": latencies_over_time(slices, [row for row in rows["latencies"] if row["slice"] is not None]),
        "errors": [
            {"name": error_name(code), "api": api, "answers": slices.column(answers, "n", 0)}
            for (code, api), answers in errors.items()
        ],
        "groups": states_over_time(slices, changes["groups"], GROUP_STATES, there["groups"]),
        "members": states_over_time(slices, changes["members"], MEMBER_STATES, there["members"]),
        "rebalances": {
            "count": slices.column(rebalances, "rebalances", 0),
            "p50_ms": slices.column(rebalances, "p50_ms"),
            "max_ms": slices.column(rebalances, "max_ms"),
        },
    }


def _metrics(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the metrics for `[[expect]]` tables by name; None for one that is not available."""
    total, rebalances, populations = summary["total"], summary["rebalances"], summary["populations"]
    brokers = [row["requests"] for row in summary["brokers"] if row["broker"] >= 0]
    errors: dict[str, float | None] = {}
    for row in summary["errors"]:
        name = f"errors.{row['name']}"
        errors[name] = (errors.get(name) or 0) + row["requests"]
    return {
        **{name: value for name, value in total.items() if name != "api"},
        "generations": rebalances["generations"],
        "rebalances": rebalances["count"],
        **{f"rebalance_{name}": rebalances[name] for name in ("p50_ms", "p99_ms", "max_ms")},
        "members_joined": sum(row["members_joined"] for row in populations),
        "unassigned_member_s": round(sum(row["unassigned_member_s"] for row in populations), 3),
        **{f"{name}.{row['population']}": row[name] for row in populations for name in _OF_A_POPULATION},
        "broker_share": max((row["share"] for row in summary["brokers"] if row["broker"] >= 0), default=None),
        "broker_skew": skew(brokers, len(brokers)),
        "partition_skew": summary["offsets_partitions"]["requests_skew"],
        **errors,
    }
