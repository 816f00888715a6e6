"""Scaled-down workloads (`--scale`): what becomes smaller, what stays, and what is refused."""

from collections.abc import Iterator
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from fakebroker.cli.main import main
from fakebroker.errors import ConfigError
from fakebroker.replay.workload.behavior import Grow
from fakebroker.replay.workload.expectations import Expectation
from fakebroker.replay.workload.loads import Load
from fakebroker.replay.workload.population import Arrival, Groups, Sizes
from fakebroker.replay.workload.scale import FEWEST_GROUPS, FEWEST_MEMBERS, scaled
from fakebroker.replay.workload.workload import Cluster, Pacing, Workload, load_workload

FACTORS = st.floats(min_value=0.001, max_value=1)


def _sizes() -> st.SearchStrategy[int | Sizes]:
    size = st.integers(1, 2_000)
    uniform = st.tuples(size, size).map(lambda ends: Sizes(uniform=(min(ends), max(ends))))
    histogram = st.dictionaries(size.map(str), st.floats(0.1, 5), min_size=1, max_size=5)
    return size | uniform | histogram.map(lambda found: Sizes(histogram=found)) | st.just(Sizes(zipf=1.2, max=500))


def _workloads() -> st.SearchStrategy[Workload]:
    arrival = st.sampled_from(
        [
            Arrival(),
            Arrival(ramp_s=5),
            Arrival(poisson_per_s=5_000),
            Arrival(poisson_per_s=9_000, by="group"),
            Arrival(bursts=3, every_s=2),
        ]
    )
    grow = st.none() | st.integers(1, 200).map(lambda count: Grow(instances=count, at_s=30.0, how="static"))
    population = st.builds(Groups, count=st.integers(1, 5_000), members=_sizes(), arrival=arrival, grow=grow)
    populations = st.lists(population, min_size=1, max_size=3).map(
        lambda made: tuple(replace(each, name=f"p{number}") for number, each in enumerate(made))
    )
    return populations.map(_with_load).filter(lambda workload: workload is not None).map(_not_none)


def _with_load(populations: tuple[Groups, ...]) -> Workload | None:
    loads = [Load(kind="fetch-offsets", rate_per_s=500, batch=10, for_s=5), Load(kind="find-coordinators", groups="p0")]
    first = populations[0].grow
    if first is not None:
        loads.append(Load(kind="add-members", groups="p0", instances=max(1, first.instances // 2)))
    try:
        return Workload(
            duration_s=20_000,
            topics={"orders": 3},
            cluster=Cluster(proposals=("batch-join",)),
            groups=populations,
            load=tuple(loads),
            pacing=Pacing(rate_per_s=sum(each.member_count for each in populations) / 3),
        )
    except ConfigError:  # members of a population start too late
        return None


def _not_none(workload: Workload | None) -> Workload:
    assert workload is not None
    return workload


def _pairs(one: Workload, other: Workload) -> Iterator[tuple[Groups, Groups]]:
    return zip(one.groups, other.groups, strict=True)


@settings(max_examples=40)
@given(_workloads(), FACTORS)
def test_a_scaled_workload_has_the_same_rates_per_group_and_the_same_times(workload: Workload, factor: float) -> None:
    smaller = scaled(workload, factor)
    for before, after in _pairs(workload, smaller):
        least = min(before.group_count, FEWEST_GROUPS)
        assert max(least, round(before.group_count * factor)) == after.group_count
        assert after.max_members <= before.max_members
        grown = [each.grow.instances if each.grow else 0 for each in (before, after)]
        if after.max_members < before.max_members:
            assert after.max_members + grown[1] >= FEWEST_MEMBERS - 1  # Both are rounded.
        assert (grown[1] > 0) == (grown[0] > 0)
        assert after.arrived_s == pytest.approx(before.arrived_s)
        assert smaller.heartbeat_interval_ms(after) == pytest.approx(workload.heartbeat_interval_ms(before))
        others = (replace(each, count=None, members=1, arrival=Arrival(), grow=None) for each in (before, after))
        assert len(set(map(repr, others))) == 1
    for load, scaled_load in zip(workload.load, smaller.load, strict=True):
        if load.rate_per_s is not None and scaled_load.rate_per_s is not None:
            per_group = load.rate_per_s / workload.group_count
            assert scaled_load.rate_per_s / smaller.group_count == pytest.approx(per_group)
        assert replace(load, rate_per_s=None, instances=scaled_load.instances) == replace(scaled_load, rate_per_s=None)
    assert replace(smaller, groups=workload.groups, load=workload.load, pacing=workload.pacing) == workload


@settings(max_examples=40)
@given(_workloads(), FACTORS, FACTORS)
def test_a_smaller_factor_never_gives_a_larger_workload(workload: Workload, one: float, other: float) -> None:
    small, large = (scaled(workload, factor) for factor in sorted((one, other)))
    for before, after in _pairs(large, small):
        assert after.group_count <= before.group_count
        assert after.max_members <= before.max_members
    assert scaled(workload, 1) == workload
    assert scaled(workload, one) == scaled(workload, one)


def test_the_number_of_members_is_multiplied_by_the_factor_if_there_are_enough(subtests: pytest.Subtests) -> None:
    for count, members, factor, groups, size in (
        (1_000, 4, 0.1, 100, 4),
        (50, 6, 0.02, 20, 6),
        (5, 6, 0.02, 5, 6),
        (1, 2_000, 0.02, 1, 40),
        (1, 2_000, 0.001, 1, 20),
        (20, 2_000, 0.1, 20, 200),
        (100, 2_000, 0.1, 20, 1_000),
    ):
        with subtests.test(count=count, members=members, factor=factor):
            population = Groups(count=count, members=members)
            workload = Workload(duration_s=60, topics={"orders": 1}, groups=(population,))
            (smaller,) = scaled(workload, factor).groups
            assert (smaller.group_count, smaller.members) == (groups, size)


def _expecting(*expected: Expectation) -> Workload:
    return Workload(duration_s=60, topics={"orders": 1}, groups=(Groups(count=100),), expect=expected)


def test_expectations_that_depend_on_the_number_of_groups_are_refused() -> None:
    relative = Expectation(metric="generations", comparison="<=", value=2, per="group")
    none = Expectation(metric="errors.UNKNOWN_MEMBER_ID", comparison="==", value=0)
    latency = Expectation(metric="p99_ms", comparison="<=", value=200)
    assert scaled(_expecting(relative, none, latency), 0.5).expect == (relative, none, latency)
    absolute = Expectation(metric="members_joined", comparison="==", value=100)
    errors = Expectation(metric="errors.NOT_COORDINATOR", comparison=">", value=5)
    assert scaled(_expecting(absolute), 1).expect == (absolute,)
    with pytest.raises(ConfigError) as caught:
        scaled(_expecting(relative, absolute, errors), 0.5, where="a.toml")
    assert str(caught.value) == (
        "a.toml: 2 errors\n"
        "  expect[1].per is missing: expected 'group' or 'member' with --scale, because members_joined depends on how "
        "many there are\n"
        "  expect[2].per is missing: expected 'group' or 'member' with --scale, because errors.NOT_COORDINATOR depends "
        "on how many there are"
    )


def test_factors_out_of_range_are_errors(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for factor in (0.0, -1.0, 1.01, nan, inf):
        with subtests.test(factor=factor):
            with pytest.raises(ConfigError, match=r"^--scale=\S+: expected a number > 0 and <= 1$"):
                scaled(_expecting(), factor)
            arguments = ["replay", "scenarios/workloads/deploy.toml", "--scale", str(factor)]
            monkeypatch.setattr("sys.argv", ["fakebroker", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 2
            assert "--scale" in capsys.readouterr().err


def test_the_shipped_workloads_can_be_scaled(subtests: pytest.Subtests) -> None:
    for file in sorted(Path("scenarios/workloads").glob("*.toml")):
        with subtests.test(workload=file.stem):
            workload = load_workload(file)
            for factor in (0.5, 0.02, 0.001):
                assert scaled(workload, factor).group_count <= workload.group_count
