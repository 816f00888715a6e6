"""The cost of adding members one by one and in a batch, and its table in scenarios/proposals/batch-join.md."""

from pathlib import Path

import pytest

from tests.documents.markdown import fill
from tests.documents.scale_out import cost_table
from tests.support.client.scale_out import INSTANCES, JOIN_MODES, measure

DOCUMENT = Path(__file__).parent.parent.parent / "scenarios" / "proposals" / "batch-join.md"


@pytest.mark.slow
def test_a_batch_takes_one_rebalance_instead_of_forty() -> None:
    costs = {mode: measure(mode) for mode in JOIN_MODES}
    single, static, batch = (costs[mode] for mode in JOIN_MODES)
    assert (single.generations, static.generations, batch.generations) == (INSTANCES, INSTANCES, 1)
    assert batch.unassigned_s * 10 < static.unassigned_s
    assert batch.waited_s > static.waited_s  # the first instance waits for the last one
    text = DOCUMENT.read_text()
    assert text == fill(text, {"scale-out": cost_table(costs)}), "run `make rewrite`"
