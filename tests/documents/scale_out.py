"""The cost of adding members to a group one by one and in a batch, measured in virtual time."""

from collections.abc import Mapping

from tests.documents.markdown import table
from tests.support.client.scale_out import JOIN_MODES, Cost, JoinMode, measure

HEADER = (
    "joins of the 40 new instances",
    "generations",
    "member-seconds of the 100 without partitions",
    "member-seconds of the 40 without partitions",
)


def scale_out() -> str:
    return cost_table({mode: measure(mode) for mode in JOIN_MODES})


def cost_table(costs: Mapping[JoinMode, Cost]) -> str:
    rows = [
        (mode, cost.generations, f"{cost.unassigned_s:,.0f}", f"{cost.waited_s:,.0f}") for mode, cost in costs.items()
    ]
    return table(HEADER, rows)
