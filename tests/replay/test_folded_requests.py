"""Folded requests are divided into time slices as the single requests that they stand for."""

from collections import Counter

import pyarrow as pa

from fakebroker.replay.report.folded_requests import in_slices

SCHEMA = pa.schema(
    [
        pa.field("api", pa.string()),
        pa.field("source", pa.string()),
        pa.field("error", pa.int16()),
        pa.field("missing", pa.string()),
        pa.field("latency_us", pa.int64()),
        pa.field("key", pa.float64()),
        pa.field("count", pa.int32()),
        pa.field("since_us", pa.int64()),
        pa.field("last_us", pa.int64()),
    ]
)
SLICE_US = 5_000


def sliced(*rows: tuple[str, str | None, int | None, int, int, int]) -> list[tuple[object, ...]]:
    """Return the rows for requests with API, missing, latency, count, since and last."""
    table = pa.table(
        [
            [api for api, *_ in rows],
            ["members"] * len(rows),
            [0] * len(rows),
            [missing for _, missing, *_ in rows],
            [latency_us for _, _, latency_us, *_ in rows],
            [None if latency_us is None else float(latency_us // 10 * 10) for _, _, latency_us, *_ in rows],
            *([row[place] for row in rows] for place in (3, 4, 5)),
        ],
        schema=SCHEMA,
    )
    found = in_slices(table, SLICE_US)
    return sorted((row["api"], row["missing"], row["slice"], row["n"], row["max_us"]) for row in found.to_pylist())


def test_each_slice_has_the_requests_that_were_sent_in_it() -> None:
    for since_us, step_us, count in ((0, 1_000, 30), (-3, 2_718, 17), (4_999, 5_000, 4), (9_000, 7_001, 9)):
        sent = Counter((since_us + step_us * number) // SLICE_US for number in range(count))
        found = sliced(("Heartbeat", None, 900, count, since_us, since_us + step_us * (count - 1)))
        assert found == [("Heartbeat", None, number, n, 900) for number, n in sorted(sent.items())]


def test_rows_are_added_up_if_latencies_are_nearly_equal() -> None:
    found = sliced(
        ("Heartbeat", None, 901, 2, 0, 1_000),
        ("Fetch", None, 901, 2, 6_000, 7_000),
        ("Heartbeat", None, 907, 3, 3_000, 9_000),
        ("Heartbeat", None, 915, 2, 4_000, 4_000),
    )
    assert found == [
        ("Fetch", None, 1, 2, 901),
        ("Heartbeat", None, 0, 2, 915),
        ("Heartbeat", None, 0, 3, 907),
        ("Heartbeat", None, 1, 2, 907),
    ]


def test_requests_without_a_response_have_no_latency() -> None:
    assert sliced(("Heartbeat", "lost", None, 2, 0, 1)) == [("Heartbeat", "lost", 0, 2, None)]
    assert sliced() == []
