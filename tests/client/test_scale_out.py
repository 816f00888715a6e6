"""The cost of adding members one by one and in a batch, as the table in scenarios/proposals/batch-join.md shows it."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.documents.test_readme import table
from tests.support.client.scale_out import INSTANCES, JOIN_MODES, Cost, JoinMode, measure

DOCUMENT = Path(__file__).parent.parent.parent / "scenarios" / "proposals" / "batch-join.md"


def cost_table(costs: Mapping[JoinMode, Cost]) -> str:
    rows = [
        (mode, cost.generations, f"{cost.unassigned_s:,.0f}", f"{cost.waited_s:,.0f}") for mode, cost in costs.items()
    ]
    heads = "generations", "member-seconds without partitions, of the 100", "the 40 waited for theirs"
    return table(("how the 40 join", *heads), *rows)


def rewritten(text: str, costs: Mapping[JoinMode, Cost]) -> str:
    """Return the document with the current table."""
    rows = cost_table(costs)
    text, count = re.subn(r"(<!-- table: scale-out -->\n).*?(<!-- end -->)", rf"\g<1>{rows}\n\2", text, flags=re.DOTALL)
    assert count == 1, "the document has no place for the table"
    return text


@pytest.mark.slow
def test_a_batch_takes_one_rebalance_instead_of_forty() -> None:
    costs = {mode: measure(mode) for mode in JOIN_MODES}
    single, static, batch = (costs[mode] for mode in JOIN_MODES)
    assert (single.generations, static.generations, batch.generations) == (INSTANCES, INSTANCES, 1)
    assert batch.unassigned_s * 10 < static.unassigned_s
    assert batch.waited_s > static.waited_s  # the first instance waits for the last one
    text = DOCUMENT.read_text()
    assert text == rewritten(text, costs), "run `make rewrite`"


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text(), {mode: measure(mode) for mode in JOIN_MODES}))
