"""Parametrized tests whose cases are subtests of one test id."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import product
from typing import Any

import pytest

Test = Callable[..., None]

_CASES = "__subtest_cases__"


def subtest_for_each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Iterable[str] | None = None
) -> Callable[[Test], Test]:
    """Run a test once for each case, as a subtest. Every failing case is reported with its arguments.

    For cheap cases of one behavior. Several decorators on one test run it for the product of their cases.

    Args:
        names: Name of the test's parameter that a case sets, or several names.
        cases: The value of each case, or a tuple of values if `names` is a sequence.
        ids: Descriptions of the cases, which are reported instead of the arguments.
    """
    arguments = [{names: case} if isinstance(names, str) else dict(zip(names, case, strict=True)) for case in cases]
    descriptions = arguments if ids is None else [{"case": description} for description in ids]
    axis = list(zip(arguments, descriptions, strict=True))
    assert axis, f"{names}: expected at least one case"

    def decorate(test: Test) -> Test:
        axes = [axis, *getattr(test, _CASES, [])]
        function = getattr(test, "__wrapped__", test) if hasattr(test, _CASES) else test

        @wraps(function)
        def run(*, subtests: pytest.Subtests, **fixtures: Any) -> None:
            for case in product(*axes):
                shown = {name: value for _, description in case for name, value in description.items()}
                given = {name: value for values, _ in case for name, value in values.items()}
                with subtests.test(**shown):
                    function(**given, **fixtures)

        setattr(run, _CASES, axes)
        set_by_cases = {name for each in axes for name in each[0][0]}
        signature = inspect.signature(function)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in set_by_cases]
        fixture = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY, annotation=pytest.Subtests)
        run.__signature__ = signature.replace(parameters=[*kept, fixture])  # type: ignore[attr-defined] # for pytest
        return run

    return decorate
