"""The numbers, from events whose numbers are known."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fakebroker.replay.events import Event
from fakebroker.replay.summary import summarize
from tests.replay.made_up import HEALTHY, frame

pytestmark = pytest.mark.slow


def test_numbers_of_events_made_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    summary = summarize(spark, frame(spark, HEALTHY, tmp_path))
    apis = {row.pop("api"): row for row in summary["apis"]}
    assert summary["span_s"] == 0.148  # from 1,000 to 50,099 + 99,000
    assert list(apis) == ["FindCoordinator", "Heartbeat", "JoinGroup", "SyncGroup"]
    assert apis["Heartbeat"] == {
        "requests": 100,
        "requests_per_s": round(100 / 0.148, 1),
        "p50_ms": 49,  # 1 to 99 and one more 2: the 50th of 100
        "p99_ms": 98,
        "p99_9_ms": 99,
        "max_ms": 99,
        "unexpected_errors": 0,
        "unanswered": 0,
    }
    assert (apis["JoinGroup"]["requests"], apis["JoinGroup"]["max_ms"]) == (5, 19)
    assert summary["total"]["requests"] == len(HEALTHY)
    # From 4,000 to 14,000 and from 21,000 to 45,000.
    rebalances = summary["rebalances"]
    assert (rebalances["count"], rebalances["p50_ms"], rebalances["max_ms"]) == (2, 10, 24)
    assert summary["errors"] == [
        {"name": "MEMBER_ID_REQUIRED", "code": 79, "api": "JoinGroup", "requests": 2, "ordinary": True},
        {"name": "REBALANCE_IN_PROGRESS", "code": 27, "api": "Heartbeat", "requests": 1, "ordinary": True},
    ]
    assert summary["brokers"] == [
        {"broker": 1, "requests": 1, "share": round(1 / len(HEALTHY), 4), "groups": 0},
        {"broker": 2, "requests": 108, "share": round(108 / len(HEALTHY), 4), "groups": 1},
    ]
    assert summary["sent_late"] == {"p50_ms": 0, "p99_ms": 0.5}
    assert summary["find_coordinator"] == {"requests": 1, "lookups": 1, "most_in_one_request": 1}


def test_what_went_wrong_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    wrong = [
        Event(1, 1, None, "Heartbeat", 4, 2, "g", "g-0", 1),
        Event(2, 2, 5, "Heartbeat", 4, 2, "g", "g-0", 1, 25),
        Event(3, 3, 5, "OffsetCommit", 9, 2, "g", "g-0", 1, 4711),
    ]
    summary = summarize(spark, frame(spark, wrong, tmp_path))
    assert (summary["total"]["unexpected_errors"], summary["total"]["unanswered"]) == (2, 1)
    assert [(row["name"], row["ordinary"]) for row in summary["errors"]] == [
        ("UNKNOWN_MEMBER_ID", False),
        ("4711", False),
    ]
