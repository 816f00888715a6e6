"""The code of the recipes in `scenarios/recipes/README.md`: each recipe is a test here, with its name."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent / "scenarios" / "recipes" / "README.md"
MAX_LINES = 42
FIXTURE = "@pytest.fixture"
"""A recipe with fixtures of its own is run as a module."""

pytest_plugins = "pytester"

pytestmark = pytest.mark.slow


def blocks() -> Iterator[tuple[str, int, str]]:
    """Yield the title of each recipe, the number of lines before its code, and the code."""
    text = PAGE.read_text()
    for found in re.finditer(r"^## \d+\. (.+?)$.*?^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield found[1], text.count("\n", 0, found.start(2)), found[2]


def recipes() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the test functions of the recipes with their names. Tracebacks show lines of the document."""
    for _, line, code in blocks():
        if FIXTURE in code:
            continue
        namespace: dict[str, Any] = {}
        exec(compile("\n" * line + code, str(PAGE), "exec"), namespace)
        yield from ((name, value) for name, value in namespace.items() if name.startswith("test_"))


globals().update(recipes())


def test_the_recipe_with_a_fixture(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (code,) = (code for _, _, code in blocks() if FIXTURE in code)
    pytester.makepyfile(code)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "fakebroker.pytest_plugin").assert_outcomes(passed=2)


def test_no_example_has_a_loop_without_a_bound(subtests: pytest.Subtests) -> None:
    """Recipes run without a timeout of their own: every wait in them has one."""
    root = PAGE.parents[2]
    documents = [
        *root.glob("*.md"),
        *(path for name in ("scenarios", "fakebroker") for path in (root / name).rglob("*.md")),
    ]
    examples = [
        (path, code)
        for path in documents
        for code in re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    ]
    assert len(examples) > 15
    for path, code in examples:
        with subtests.test(path=str(path.relative_to(root))):
            assert not [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.While)]


def test_recipes_are_short() -> None:
    lengths = {title: len(code.splitlines()) for title, _, code in blocks()}
    assert len(lengths) == len(list(recipes())) + 1 == 26
    assert {title: length for title, length in lengths.items() if length > MAX_LINES} == {}
