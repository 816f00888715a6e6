"""The decorator that runs the cases of a test as subtests."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from tests.support.subtests import subtest_for_each


class RecordedSubtests:
    """In place of the fixture `subtests`: records the arguments of each subtest."""

    def __init__(self) -> None:
        self.arguments: list[dict[str, Any]] = []

    @contextmanager
    def test(self, **arguments: Any) -> Iterator[None]:
        self.arguments.append(arguments)
        yield


def test_every_combination_of_cases_is_a_subtest() -> None:
    calls = []

    @subtest_for_each("size", [1, 2])
    @subtest_for_each(("name", "value"), [("a", 3), ("b", 4)], ids=["first", "second"])
    def check(size: int, name: str, value: int, fixture: str) -> None:
        calls.append((size, name, value, fixture))

    subtests = RecordedSubtests()
    check(subtests=cast(pytest.Subtests, subtests), fixture="f")
    assert calls == [(1, "a", 3, "f"), (1, "b", 4, "f"), (2, "a", 3, "f"), (2, "b", 4, "f")]
    assert subtests.arguments[0] == {"size": 1, "case": "first"}
    assert subtests.arguments[-1] == {"size": 2, "case": "second"}
    assert list(inspect.signature(check).parameters) == ["fixture", "subtests"]


def test_cases_are_required_and_have_a_value_for_each_name() -> None:
    with pytest.raises(AssertionError, match="size: expected at least one case"):
        subtest_for_each("size", [])
    with pytest.raises(ValueError, match="shorter"):
        subtest_for_each(("name", "value"), [("a",)])
