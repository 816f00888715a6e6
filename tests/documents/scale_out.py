"""The cost of adding members to a group one by one and in a batch, measured in virtual time."""

from collections.abc import Mapping

from tests.documents.markdown import table
from tests.support.client.scale_out import JOIN_MODES, Cost, JoinMode, measure

HEADER = ("how the 40 join", "generations", "member-seconds without partitions, of the 100", "the 40 waited for theirs")


def scale_out() -> str:
    return cost_table({mode: measure(mode) for mode in JOIN_MODES})


def cost_table(costs: Mapping[JoinMode, Cost]) -> str:
    rows = [
        (mode, cost.generations, f"{cost.unassigned_s:,.0f}", f"{cost.waited_s:,.0f}") for mode, cost in costs.items()
    ]
    return table(HEADER, rows)
