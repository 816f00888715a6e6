"""The recipes work as they stand on their page: each is a test here, under its own name."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent / "scenarios" / "recipes" / "README.md"
MAX_LINES = 25
PATIENCE_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """A recipe polls until what must come has come; here it is given up some time."""

    def give_up(*_: object) -> None:
        pytest.fail(f"not done within {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def blocks() -> Iterator[tuple[str, int, str]]:
    """Each recipe's title, the number of lines before its code, and that."""
    text = PAGE.read_text()
    for found in re.finditer(r"^## \d+\. (.+?)$.*?^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield found[1], text.count("\n", 0, found.start(2)), found[2]


def recipes() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The test functions on the page, by name. Their tracebacks show its lines."""
    for _, line, code in blocks():
        namespace: dict[str, Any] = {}
        exec(compile("\n" * line + code, str(PAGE), "exec"), namespace)
        yield from ((name, value) for name, value in namespace.items() if name.startswith("test_"))


globals().update(recipes())


def test_there_are_twelve_short_ones() -> None:
    lengths = {title: len(code.splitlines()) for title, _, code in blocks()}
    assert len(lengths) == len(list(recipes())) == 12
    assert {title: length for title, length in lengths.items() if length > MAX_LINES} == {}
