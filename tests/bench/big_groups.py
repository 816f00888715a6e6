"""The CPU time of a full rebalance by the size of the group, for `make bench`: figures, and a plot."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure as Chart

from tests.bench.figures import Figure
from tests.bench.processes import rows_of

SIZES = (500, 1_000, 2_000, 5_000, 10_000)
SIZE_OF_AIM, AIM_US = 2_000, 60.0
REBALANCES = 3

Row = dict[str, float]
"""What `rebalance.py` prints about one size: `members`, `us_per_member`, `join_us_per_member`."""


def measure() -> list[Row]:
    """Measure all sizes in another process on the first core."""
    return rows_of("tests.bench.rebalance", "--members", *SIZES, "--rebalances", REBALANCES)


def figures(rows: Sequence[Row], heartbeat_us: float) -> list[Figure]:
    """Return the figures of the rows; one is a ratio to the CPU time of one heartbeat over TCP."""
    by_size = {int(row["members"]): row["us_per_member"] for row in rows}
    largest, smallest, of_aim = by_size[max(by_size)], by_size[min(by_size)], by_size[SIZE_OF_AIM]
    what = f"a full rebalance of {SIZE_OF_AIM:,} members"
    return [
        Figure(what=f"CPU a member of {what}", measured=of_aim, unit="us", aim=AIM_US, is_limit=True),
        Figure(
            name="rebalance: 500 / 10,000 members", unit="times", measured=smallest / largest,
            what=f"CPU a member of a full rebalance of {min(by_size):,} members to that of {max(by_size):,}",
        ),
        Figure(
            name="rebalance a member / heartbeats", what=f"one heartbeat to a member of {what} (CPU time)",
            measured=heartbeat_us / of_aim, unit="times",
        ),
    ]  # fmt: skip


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw the CPU time of a member by the size of the group, as SVG."""
    sizes = [row["members"] for row in rows]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rebalances", "font.family": "sans-serif"}):
        chart = Chart(figsize=(6, 3), layout="constrained")
        axes = chart.add_subplot(
            xscale="log", xlabel="members of the group", ylabel="CPU time a member (us)",
            title="A full rebalance: JoinGroup and SyncGroup of all members",
        )  # fmt: skip
        axes.plot(sizes, [row["us_per_member"] for row in rows], marker="o", label="whole rebalance")
        axes.plot(sizes, [row["join_us_per_member"] for row in rows], marker="o", label="until all have joined")
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
        chart.savefig(path, metadata={"Date": None, "Creator": None})
