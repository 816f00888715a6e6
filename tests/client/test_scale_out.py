"""What the proposal saves, and that its page says so."""

import re
from collections.abc import Mapping
from pathlib import Path

from tests.support.client.scale_out import INSTANCES, WAYS, How, Outcome, measure
from tests.documents.test_readme import table

PAGE = Path(__file__).parent.parent.parent / "scenarios" / "proposals" / "batch-join.md"


def scale_out_table(outcomes: Mapping[How, Outcome]) -> str:
    rows = [
        (how, outcome.generations, f"{outcome.unassigned_s:,.0f}", f"{outcome.waited_s:,.0f}")
        for how, outcome in outcomes.items()
    ]
    heads = "generations", "member-seconds without partitions, of the 100", "the 40 waited for theirs"
    return table(("how the 40 join", *heads), *rows)


def rewritten(text: str, outcomes: Mapping[How, Outcome]) -> str:
    """The page with its table as it should be."""
    rows = scale_out_table(outcomes)
    text, count = re.subn(r"(<!-- table: scale-out -->\n).*?(<!-- end -->)", rf"\g<1>{rows}\n\2", text, flags=re.DOTALL)
    assert count == 1, "the page has no table of it"
    return text


def test_one_round_in_place_of_forty() -> None:
    outcomes = {how: measure(how) for how in WAYS}
    single, static, batch = (outcomes[how] for how in WAYS)
    assert (single.generations, static.generations, batch.generations) == (INSTANCES, INSTANCES, 1)
    assert batch.unassigned_s * 10 < static.unassigned_s
    assert batch.waited_s > static.waited_s  # the first one waits for the last
    text = PAGE.read_text()
    assert text == rewritten(text, outcomes), "run `make rewrite`"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(), {how: measure(how) for how in WAYS}))
