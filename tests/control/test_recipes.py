"""The recipes over HTTP work as they stand on their page: each block is a test, and prints what stands below it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.control.nodejs import need, packages, run
from tests.support.control.serve_process import PATIENCE_S, serving

PAGE = Path(__file__).parents[2] / "scenarios" / "control" / "README.md"
MAX_LINES = 30

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code on the page.

    Attributes:
        recipe: The title that it stands under.
        language: "js" or "sh".
        prints: What stands below it; None if nothing does.
    """

    recipe: str
    language: str
    code: str
    prints: str | None


def blocks() -> Iterator[Block]:
    fence = re.compile(r"^```(js|sh)\n(.*?)^```\n(?:\n^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE):
        for found in fence.finditer(part):
            yield Block(part.partition("\n")[0], found[1], found[2], found[3])


HELPER, *RECIPES = blocks()


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: f"{block.recipe[:1]}-{block.language}")
def test_a_block_prints_what_stands_below_it(block: Block, tmp_path: Path) -> None:
    with serving("--topic", "orders:4", "--config", "group.initial.rebalance.delay.ms=0") as served:
        if block.language == "js":
            (tmp_path / "node_modules").symlink_to(packages())
            (tmp_path / "control.mjs").write_text(HELPER.code)
            (tmp_path / "recipe.mjs").write_text(block.code)
            command = ["node", "recipe.mjs"]
        else:
            need("curl", "jq")
            command = ["bash", "-euo", "pipefail", "-c", block.code]
        assert run(command, tmp_path, PATIENCE_S, CONTROL=served.control) == block.prints


def test_there_are_five_in_each_language() -> None:
    recipes = list(dict.fromkeys(block.recipe for block in RECIPES))
    assert [recipe[:3] for recipe in recipes] == ["1. ", "2. ", "3. ", "4. ", "5. "]
    assert [(block.recipe, block.language) for block in RECIPES] == [
        (recipe, language) for recipe in recipes for language in ("js", "sh")
    ]
    assert {block.recipe: len(block.code.splitlines()) for block in RECIPES if block.code.count("\n") > MAX_LINES} == {}
