"""The shipped workloads send the same requests over TCP as in memory: as many of each API in each 10 seconds."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fakebroker.replay.commands import replay
from fakebroker.replay.options import PASSED, ReplayOptions, Transport
from fakebroker.replay.run_directory import EVENTS
from fakebroker.replay.simulation.scheduler import START_MS
from tests.support.soak import soak_only

FILES = {file.stem: file for file in sorted(Path("scenarios/workloads").glob("*.toml"))}

LARGE = ("million", "many-tiny-groups", "ten-thousand")
"""Workloads that last too long over TCP, or have too many members for it."""

SPEED = 2.0
WINDOW_US, EDGE_US = 10_000_000, 2_000_000
"""The length of the parts of a replay, and by how much a request may be late. Over TCP each step takes a little longer:
a group that is complete at the end of a part may send its next requests in the following one."""

OF_PROCESSES = ("FindCoordinator", "Metadata", "Fetch", "ListOffsets", "ListTransactions")
"""The members of a process share these requests: look-ups, and those of the reader of transactions. In memory there are
as many processes as offsets partitions."""

Row = dict[str, Any]


def requests_of(name: str, transport: Transport, tmp_path: Path) -> tuple[list[Row], int]:
    """Play a workload; return its requests, and when its first member started, in microseconds."""
    file, out = tmp_path / f"{transport}.toml", tmp_path / transport
    file.write_text(FILES[name].read_text() + (f"\n[pacing]\nspeed = {SPEED}\n" if transport == "tcp" else ""))
    assert replay(ReplayOptions(file=file, transport=transport, scale=0.05, seed=1, out=out, record="all")) == PASSED
    columns = ["kind", "api", "source", "scheduled_us", "count"]
    rows = pq.read_table(out / EVENTS, columns=columns).to_pylist()
    first_us = min(row["scheduled_us"] for row in rows if row["kind"] == "act")
    return [row for row in rows if row["kind"] == "request" and row["api"] not in OF_PROCESSES], first_us


def count(rows: list[Row], start_us: float, *, earlier_us: int = 0, later_us: int = 0) -> Counter[tuple[str, str, int]]:
    """Count requests by API, source and part. A part may begin earlier and end later than it does."""
    found: Counter[tuple[str, str, int]] = Counter()
    for row in rows:
        at_us = row["scheduled_us"] - start_us
        for part in {(at_us - later_us) // WINDOW_US, at_us // WINDOW_US, (at_us + earlier_us) // WINDOW_US}:
            if part * WINDOW_US - earlier_us <= at_us < (part + 1) * WINDOW_US + later_us:
                found[row["api"], row["source"], int(part)] += row["count"]
    return found


@soak_only("a test with three workloads compares when loads are due")
@pytest.mark.parametrize("name", [name for name in FILES if name not in LARGE])
def test_as_many_requests_are_sent_over_tcp_as_in_memory(name: str, replays_on_spark: None, tmp_path: Path) -> None:
    over_tcp, tcp_first_us = requests_of(name, "tcp", tmp_path)
    in_memory, first_us = requests_of(name, "memory", tmp_path)
    start_us = START_MS * 1000
    sent = count(over_tcp, tcp_first_us - (first_us - start_us))
    least = count(in_memory, start_us, earlier_us=-EDGE_US, later_us=-EDGE_US)
    most = count(in_memory, start_us, earlier_us=EDGE_US, later_us=EDGE_US)
    different = {
        place: (least[place], sent[place], most[place])
        for place in sent | most
        if not least[place] - max(5, 0.05 * least[place]) <= sent[place] <= most[place] + max(5, 0.05 * most[place])
    }
    assert different == {}
