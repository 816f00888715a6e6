"""Contents of `summary.json` for tests, without a replay: a minute of a steady load in which a broker is stopped.

A new key of `fakebroker/replay/run_summary.py` is added here, too.
"""

import random
from typing import Any

from fakebroker.replay.members.events import PARKED_APIS, Event
from fakebroker.replay.run_summary import SUMMARY_VERSION

_APIS = {
    ("Heartbeat", "members"): (300.0, 2.0),
    ("JoinGroup", "members"): (20.0, 300.0),
    ("OffsetCommit", "members"): (100.0, 4.0),
    ("SyncGroup", "members"): (20.0, 30.0),
    ("OffsetFetch", "load"): (10.0, 8.0),
}
"""Requests per second and median latency in milliseconds, by API and source."""
_SLICES = 60


def summary_document(seed: int, heartbeat_latency: float = 1.0) -> dict[str, Any]:
    """Return a valid summary.

    Args:
        seed: Seed of the noise in its numbers over time.
        heartbeat_latency: Factor of the latency of heartbeats.
    """
    rng = random.Random(seed)

    def with_noise(value: float) -> list[float | None]:
        return [round(value * rng.uniform(0.8, 1.25), 3) for _ in range(_SLICES)]

    series: list[dict[str, Any]] = [
        {
            "api": api,
            "source": source,
            "requests_per_s": with_noise(rate),
            "p50_ms": with_noise(latency_ms * (heartbeat_latency if api == "Heartbeat" else 1)),
            "p99_ms": with_noise(latency_ms * 3 * (heartbeat_latency if api == "Heartbeat" else 1)),
        }
        for (api, source), (rate, latency_ms) in _APIS.items()
    ]
    apis = [_api_row(each["api"], each["source"], each) for each in series]
    total = _api_row("all", "all", series[0]) | {"requests": sum(row["requests"] for row in apis)}
    subtotals = [_api_row("all", source, series[index]) for source, index in (("members", 0), ("load", -1))]
    parked = [row for row in apis if row["api"] in PARKED_APIS]
    sums = {
        "never_parked": total | {"requests": total["requests"] - sum(row["requests"] for row in parked)},
        "parked": _api_row("all", "all", series[1]) | {"requests": sum(row["requests"] for row in parked)},
        "apis": apis,
    }
    rebalancing = [max(0.0, 40.0 - 2 * abs(20 - index)) for index in range(_SLICES)]
    return {
        "version": SUMMARY_VERSION,
        "workload": {"file": "steady <&> state.toml", "duration_s": 60},
        "seed": seed,
        "started": "2026-01-02T03:04:05+00:00",
        "complete": True,
        "transport": "tcp",
        "record": "all",
        "scale": 1.0,
        "lanes": None,
        "cluster": {
            "bootstrap": "127.0.0.1:9092",
            "embedded": True,
            "partitions": {"orders": 12},
            "offsets_partitions": 50,
            "reachable": True,
            "unreachable": [],
        },
        "spark": {"version": "4.0.0", "master": "local[2]", "tasks": 2},
        "timeline": [
            {"at_s": 20.0, "do": "broker.stop", "node_id": 1, "done": True, "why": None},
            {
                "at_s": 35.0,
                "do": "broker.start",
                "node_id": 7,
                "done": False,
                "why": "node_id=7: expected one of 1, 2, 3",
            },
        ],
        "members": 900,
        "groups": 200,
        "span_s": 60.0,
        "began_us": 1_000_000,
        "measure_from_s": 5.0,
        "total": total,
        **sums,
        "startup": {"from_s": 0.0, "until_s": 5.0, **sums},
        "steady": {"from_s": 5.0, "until_s": 60.0, **sums},
        "subtotals": subtotals,
        "errors": [
            _error_row("UNKNOWN_MEMBER_ID", 25, "Heartbeat", 17, False),
            _error_row("REBALANCE_IN_PROGRESS", 27, "Heartbeat", 320, True),
        ],
        "rebalances": {
            "generations": 410,
            "count": 400,
            "p50_ms": 310.5,
            "p99_ms": 2_100.0,
            "max_ms": 3_012.0,
            "distribution": [
                {"from_ms": edge, "count": n} for edge, n in ((100, 90), (200, 250), (500, 40), (2000, 20))
            ],
        },
        "transactions": {
            "begun": 600,
            "committed": 540,
            "aborted": 40,
            "not_ended": 20,
            "p50_ms": 12.5,
            "p99_ms": 40.0,
            "max_ms": 210.0,
            "visible_p50_ms": 112.5,
            "visible_max_ms": 405.0,
        },
        "populations": [
            {
                "population": name,
                "groups": 100,
                "members": 450,
                "members_joined": 450,
                "generations": 205,
                "unassigned_member_s": 812.25,
                "unassigned_partition_s": 400.5,
                "longest_rebalance_ms": 3_012.0,
            }
            for name in ("dynamic", "static")
        ],
        "brokers": [
            {"broker": number, "requests": 10_000 + 3_000 * number, "share": 0.3, "groups": 60 + number}
            for number in (1, 2, 3)
        ],
        "lookups": [
            {"api": "FindCoordinator", "source": "members", "requests": 12, "keys": 200, "most_in_one_request": 55},
            {"api": "OffsetFetch", "source": "load", "requests": 600, "keys": 1200, "most_in_one_request": 2},
        ],
        "sent_late": {"p50_ms": 0.1, "p99_ms": 2.5, "max_ms": 12.5},
        "offsets_partitions": {
            "count": 50,
            "groups_skew": 1.75,
            "groups_skew_by_chance": [2.0, 2.75],
            "requests_skew": 2.5,
            "requests_skew_by_chance": [1.75, 2.25],
            "partitions": [
                {"partition": number, "broker": number % 3 + 1, "groups": 4 + number % 3, "requests": 400 + 13 * number}
                for number in range(50)
            ],
        },
        "slowest_groups": [
            {
                "group": f"group-{number}",
                "population": "dynamic",
                "members": 7,
                "generations": 3,
                "longest_rebalance_ms": 3_012.0 - number,
                "unassigned_member_s": 12.5,
            }
            for number in range(10)
        ],
        "over_time": {
            "slice_s": 1.0,
            "slices": _SLICES,
            "apis": series,
            "errors": [
                _error_series("REBALANCE_IN_PROGRESS", [int(n / 3) for n in rebalancing]),
                _error_series("UNKNOWN_MEMBER_ID", [17 * (n == 21) for n in range(_SLICES)]),
            ],
            **_states(rebalancing, groups=200, members=900),
            "populations": [
                {"population": name, **_states([n / 2 for n in rebalancing], groups=100, members=450)}
                for name in ("dynamic", "static")
            ],
            "never_parked": {**series[0], "api": "all", "source": "all"},
            "parked": {**series[-1], "api": "all", "source": "all"},
            "missing": [3 * (n == 21) for n in range(_SLICES)],
            "transactions": {
                "committed": [9] * _SLICES,
                "aborted": [index % 2 for index in range(_SLICES)],
                "not_ended": [int(index == 20) for index in range(_SLICES)],
                "p50_ms": with_noise(12.5),
                "max_ms": with_noise(80.0),
                "visible_max_ms": with_noise(250.0),
            },
        },
        "broker_skew_by_chance": [1.0, 1.1],
        "metrics": {
            **{name: value for name, value in total.items() if name not in ("api", "source")},
            "generations": 410,
            "rebalances": 400,
            "rebalance_p50_ms": 310.5,
            "rebalance_p99_ms": 2_100.0,
            "rebalance_max_ms": 3_012.0,
            "members_joined": 900,
            "unassigned_member_s": 1_624.5,
            "unassigned_partition_s": 801.0,
            "broker_share": 0.38,
            "broker_skew": 1.19,
            "partition_skew": 2.5,
            "errors.UNKNOWN_MEMBER_ID": 17,
            "errors.REBALANCE_IN_PROGRESS": 320,
        },
        "verdict": {
            "outcome": "failed",
            "reasons": ["Promise rising-generations is broken: 1 violation."],
            "availability": [
                {
                    "name": "reachable",
                    "check": "the cluster can be reached",
                    "outcome": "failed",
                    "failures": 1,
                    "violations": [{"what": "no broker could be reached <at the end>"}],
                    "doubts": [],
                },
            ],
            "promises": [
                {
                    "name": "covered",
                    "promise": "assignments cover the topics",
                    "outcome": "kept",
                    "cases": 1_204,
                    "case": "generations with the assignments of all their members",
                    "required": True,
                    "broken": 0,
                    "violations": [],
                },
                {
                    "name": "one-owner",
                    "promise": "no two members own one partition",
                    "outcome": "broken",
                    "cases": 4_816,
                    "case": "partitions assigned in generations with several members",
                    "required": False,
                    "broken": 7,
                    "violations": [_overlap(number) for number in range(5)],
                },
                {
                    "name": "generations-rise",
                    "promise": "generations rise by one",
                    "outcome": "broken",
                    "cases": 920,
                    "case": "JoinGroup responses after the first rebalance of a group",
                    "required": False,
                    "broken": 1,
                    "violations": [
                        {
                            "group": "group-1",
                            "generation": 3,
                            "members": ["group-1-0"],
                            "at_us": 2_000_000,
                            "until_us": 2_100_000,
                            "what": "generation 3 came after 5 <script>",
                            "events": [
                                _event("JoinGroup", 1_990_000, member="group-1-0", generation=5, members=0),
                                _event("JoinGroup", 2_090_000, member="group-1-0", generation=3, members=2),
                            ],
                        }
                    ],
                },
                {
                    "name": "silent-out",
                    "promise": "silent members are removed",
                    "outcome": "not exercised",
                    "cases": 0,
                    "case": "silent members",
                    "required": False,
                    "broken": 0,
                    "violations": [],
                },
            ],
            "expectations": [{"expectation": "p99_ms of Heartbeat <= 500", "met": True, "actual": 6.1, "doubt": ""}],
        },
        "directory": "runs/steady-20260102",
        "files": {"summary.json": "all numbers", "events.parquet": "one row per request"},
    }


def _states(rebalancing: list[float], groups: int, members: int) -> dict[str, Any]:
    """Return groups, members and rebalances over time, from the number of groups that rebalance."""
    return {
        "groups": {
            "stable": [groups - n - 2 for n in rebalancing],
            "rebalancing": rebalancing,
            "unknown": [0.0] * _SLICES,
            "empty": [2.0] * _SLICES,
        },
        "members": {
            "assigned": [members - 4 * n for n in rebalancing],
            "waiting": [4 * n for n in rebalancing],
            "unknown": [0.0] * _SLICES,
            "gone": [0.0] * _SLICES,
        },
        "rebalances": {
            "count": [int(n) for n in rebalancing],
            "p50_ms": [310.0 if n else None for n in rebalancing],
            "max_ms": [3_012.0 if n else None for n in rebalancing],
        },
    }


def _overlap(number: int) -> dict[str, Any]:
    """Return a violation of `one-owner`: group-N assigns orders-0 twice in generation 2."""
    group, at_us = f"group-{number}", 3_000_000 + number * 1_000_000
    one, other = f"{group}-0", f"{group}-1"
    return {
        "group": group,
        "generation": 2,
        "members": [one, other],
        "at_us": at_us,
        "until_us": at_us + 500,
        "what": f"orders-0 of {group}: assigned to more than one member in generation 2",
        "events": [
            _event("start", at_us - 900_000, member=other, kind="act", latency_us=None, broker=-1),
            _event("FindCoordinator", at_us - 800_000, found=[_place(group)], lookups=1),
            _event("Heartbeat", at_us - 700_000, member=one, generation=1, error=27),
            _event("SyncGroup", at_us - 10_000, member=one, generation=2, assigned=["orders-0", "orders-1"]),
            _event("SyncGroup", at_us - 9_500, member=other, generation=2, assigned=["orders-0"]),
            _event("OffsetFetch", at_us + 1_000, member=one, offsets=[{"partition": "orders-0", "offset": -1}]),
            _event("Heartbeat", at_us + 900_000, member=one, generation=2, count=9, until_us=at_us + 9_000_000),
            _event("Heartbeat", at_us + 9_000_000, member=other, latency_us=None, error=None, missing="lost"),
        ],
    }


def _place(group: str) -> dict[str, Any]:
    return {"key": group, "node": 2, "error": 0, "again": False}


def _event(api: str, sent_us: int, **columns: Any) -> dict[str, Any]:
    """Return a row of `events.parquet` as a dictionary; by default a request that was answered after 10 ms."""
    answered = {"sent_us": sent_us, "latency_us": 10_000, "version": 5, "broker": 2, "error": 0}
    return Event(scheduled_us=sent_us, api=api, **answered | columns)._asdict()


def _error_series(name: str, answers: list[int]) -> dict[str, Any]:
    return {"name": name, "api": "Heartbeat", "source": "members", "answers": answers}


def _api_row(api: str, source: str, series: dict[str, Any]) -> dict[str, Any]:
    rate = sum(series["requests_per_s"]) / _SLICES
    quantiles = {name: round(sum(series[name]) / _SLICES, 3) for name in ("p50_ms", "p99_ms")}
    most = {"p99_9_ms": quantiles["p99_ms"] * 1.2, "max_ms": quantiles["p99_ms"] * 2}
    errors: dict[str, Any] = {"unexpected_errors": 0, "lost": 3, "unanswered": 0, "cut_off": 1}
    errors |= {
        "undelayed_p50_ms": 1.5,
        "undelayed_p99_ms": 5.5,
        "undelayed_p99_9_ms": 7.5,
        "undelayed_max_ms": 30.0,
        "known_latencies": None,
    }
    requests = {"requests": round(rate * 60), "requests_per_s": round(rate, 1)}
    return {"api": api, "source": source, **requests, **quantiles, **most, **errors}


def _error_row(name: str, code: int, api: str, requests: int, ordinary: bool) -> dict[str, Any]:
    of = {"name": name, "code": code, "api": api, "source": "members"}
    return {**of, "requests": requests, "ordinary": ordinary}
