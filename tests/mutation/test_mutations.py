"""Each mutation can be applied to the source, and has a result with a test that exists."""

import ast

import pytest

from tests.mutation.mutate import ROOT, Mutation, mutated, read_mutations, read_results

MUTATIONS = read_mutations()


def test_each_mutation_changes_its_function(subtests: pytest.Subtests) -> None:
    for mutation in MUTATIONS:
        with subtests.test(id=mutation.id, function=mutation.function):
            source = (ROOT / mutation.file).read_bytes()
            changed, _ = mutated(mutation, source)
            assert ast.dump(ast.parse(mutation.before)) != ast.dump(ast.parse(mutation.after))
            compile(changed, mutation.file, "exec")


def test_ids_are_unique() -> None:
    assert len({mutation.id for mutation in MUTATIONS}) == len(MUTATIONS)


def test_each_mutation_has_a_result() -> None:
    results = read_results()
    assert [(each.id, each.function) for each in MUTATIONS] == [(key, results[key].function) for key in sorted(results)]


def test_tests_of_results_exist(subtests: pytest.Subtests) -> None:
    for result in read_results().values():
        if result.test is not None and result.test.startswith("tests/"):
            with subtests.test(id=result.id):
                file, _, name = result.test.partition("::")  # Without a name, the module could not be imported.
                source = (ROOT / file).read_text()
                assert not name or f"def {name.partition('[')[0]}(" in source


def test_a_mutation_that_cannot_be_applied_is_named() -> None:
    mutation = Mutation(1, "fakebroker/errors.py", "absent", "negate", "x == 1", "not (x == 1)")
    with pytest.raises(LookupError, match=r"mutation 1: fakebroker/errors.py absent: not found: x == 1"):
        mutated(mutation, b"def present(x):\n    return x == 1\n")
