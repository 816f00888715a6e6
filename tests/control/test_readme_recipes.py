"""The recipes in scenarios/control/README.md: each code block is run, and prints the text block below it.

The first code block is control.mjs, which the JavaScript recipes import.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakebroker import FakeCluster
from fakebroker.control.server import ControlServer
from tests.support import programs
from tests.support.control.nodejs import node_modules, run
from tests.support.control.serve_process import TIMEOUT_S

README = Path(__file__).parents[2] / "scenarios" / "control" / "README.md"
MAX_LINES = 30

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of the document.

    Attributes:
        recipe: The heading above it.
        language: "js" or "sh".
        code: The code.
        output: The text block below it; None without one.
    """

    recipe: str
    language: str
    code: str
    output: str | None


def code_blocks() -> Iterator[Block]:
    fence = re.compile(r"^```(js|sh)\n(.*?)^```\n(?:\n^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
    for part in re.split(r"^## ", README.read_text(), flags=re.MULTILINE):
        for found in fence.finditer(part):
            yield Block(part.partition("\n")[0], found[1], found[2], found[3])


HELPER, *RECIPES = code_blocks()


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: f"{block.recipe[:1]}-{block.language}")
def test_a_recipe_prints_the_documented_output(block: Block, tmp_path: Path) -> None:
    with FakeCluster(topics={"orders": 4}) as cluster, ControlServer(cluster) as server:
        if block.language == "js":
            (tmp_path / "node_modules").symlink_to(node_modules())
            (tmp_path / "control.mjs").write_text(HELPER.code)
            (tmp_path / "recipe.mjs").write_text(block.code)
            command = ["node", "recipe.mjs"]
        else:
            programs.require("bash", "curl", "jq")
            command = ["bash", "-euo", "pipefail", "-c", block.code]
        assert run(command, tmp_path, TIMEOUT_S, CONTROL=server.url) == block.output


def test_there_are_five_short_recipes_in_each_language() -> None:
    recipes = list(dict.fromkeys(block.recipe for block in RECIPES))
    assert [recipe[:3] for recipe in recipes] == ["1. ", "2. ", "3. ", "4. ", "5. "]
    assert [(block.recipe, block.language) for block in RECIPES] == [
        (recipe, language) for recipe in recipes for language in ("js", "sh")
    ]
    assert {block.recipe: len(block.code.splitlines()) for block in RECIPES if block.code.count("\n") > MAX_LINES} == {}
