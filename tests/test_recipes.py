"""The code of the recipes in `scenarios/recipes/README.md`: each recipe is a test here, with its name."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent / "scenarios" / "recipes" / "README.md"
MAX_LINES = 25
TIMEOUT_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _timeout() -> Iterator[None]:
    """Fail a recipe after a timeout: recipes poll without one."""

    def fail(*_: object) -> None:
        pytest.fail(f"not done within {TIMEOUT_S} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(TIMEOUT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def blocks() -> Iterator[tuple[str, int, str]]:
    """Yield the title of each recipe, the number of lines before its code, and the code."""
    text = PAGE.read_text()
    for found in re.finditer(r"^## \d+\. (.+?)$.*?^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield found[1], text.count("\n", 0, found.start(2)), found[2]


def recipes() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the test functions of the recipes with their names. Tracebacks show lines of the document."""
    for _, line, code in blocks():
        namespace: dict[str, Any] = {}
        exec(compile("\n" * line + code, str(PAGE), "exec"), namespace)
        yield from ((name, value) for name, value in namespace.items() if name.startswith("test_"))


globals().update(recipes())


def test_there_are_twelve_short_recipes() -> None:
    lengths = {title: len(code.splitlines()) for title, _, code in blocks()}
    assert len(lengths) == len(list(recipes())) == 12
    assert {title: length for title, length in lengths.items() if length > MAX_LINES} == {}
