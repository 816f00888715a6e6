"""Sizes of groups by Zipf's law."""

import pytest

from fakebroker.lab.placement.draws import SIZE, THRESHOLD_BITS, SizeTable, draw, key_of, xxhash64
from fakebroker.lab.placement.placement_plan import GroupSizes


@pytest.mark.parametrize("sizes", [GroupSizes(), GroupSizes(exponent=1.1, largest=7), GroupSizes(largest=1)])
def test_the_cells_of_a_table_add_up_to_the_probabilities(sizes: GroupSizes) -> None:
    table = SizeTable(sizes)
    scale, mask = 1 << THRESHOLD_BITS, (1 << table.index_bits) - 1
    found = [0] * sizes.largest
    for index, cell in enumerate(table.cells):
        threshold, alias = cell >> table.index_bits, cell & mask
        if threshold:
            found[index] += threshold
        if threshold < scale:
            found[alias] += scale - threshold
    total = sum(k**-sizes.exponent for k in range(1, sizes.largest + 1))
    expected = [k**-sizes.exponent / total for k in range(1, sizes.largest + 1)]
    assert [count / scale / len(table.cells) for count in found] == pytest.approx(expected, abs=1e-10)


def test_a_draw_selects_a_cell_with_its_lower_bits() -> None:
    table = SizeTable(GroupSizes(exponent=1.0, largest=2))  # the weights are 2/3 and 1/3
    assert [table.size(drawn) for drawn in (0, 1, 1 | round(2**32 * 0.66) << 1, 1 | round(2**32 * 0.67) << 1)] == [
        1,
        2,
        2,
        1,
    ]


def test_sizes_of_many_groups_have_the_expected_mean() -> None:
    table, key = SizeTable(GroupSizes(exponent=2.5, largest=100)), key_of(3, SIZE)
    drawn = [table.size(draw(key, number)) for number in range(40_000)]
    weights = [k**-2.5 for k in range(1, 101)]
    mean = sum(k * weight for k, weight in enumerate(weights, 1)) / sum(weights)
    assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.03)


def test_hashes_are_those_of_spark() -> None:
    """The result of `select xxhash64(0L)`; test_population.py compares others."""
    assert xxhash64(0) == -5252525462095825812
