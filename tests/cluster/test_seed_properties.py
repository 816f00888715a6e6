"""Seeds of arbitrary groups: all are created as described, or the cluster is unchanged."""

from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st

from fakebroker.cluster.handles.cluster import ClusterHandle
from fakebroker.cluster.handles.local import Local
from fakebroker.cluster.inspect.views import batches_of, committed_offsets, find_group
from fakebroker.coordinator.invariants import check
from fakebroker.errors import ConfigError
from tests.support.cluster.cluster_contents import contents
from tests.support.cluster.cluster_harness import ClusterHarness, ClusterHarnessEnvironment
from tests.support.soak import examples, soak

JUNK = st.sampled_from([None, True, -1, 1.5, 2**63, float("nan"), "", "x", "\ud800", b"b", (), [3], {"a": 1}, {3: 3}])
NAMES = st.sampled_from(["orders-0", ("orders", 1), "news-0", "news-1", "none-0", "orders"])
PLACES = st.sampled_from(["orders-0", "orders-1", ("news", 0)])


def by_partition(names: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(names, values, max_size=2)


def rarely_wrong(right: st.SearchStrategy[Any], wrong: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw mostly from the first strategy, because a seed with several mistakes does not show more."""
    return st.integers(0, 11).flatmap(lambda number: wrong if number == 0 else right)


MEMBER = st.fixed_dictionaries(
    {},
    optional={
        "client_id": rarely_wrong(st.sampled_from(["a", "b"]), JUNK),
        "instance_id": rarely_wrong(st.sampled_from(["i", "j"]), JUNK),
        "session_timeout_ms": rarely_wrong(st.integers(1, 10_000), JUNK),
    },
)
SEED = st.fixed_dictionaries(
    {"group_id": rarely_wrong(st.sampled_from(["g", "h", "i", "existing"]), JUNK)},
    optional={
        "members": rarely_wrong(st.integers(0, 3) | st.lists(st.just("a") | MEMBER, max_size=3), JUNK | st.lists(JUNK)),
        "topics": rarely_wrong(st.lists(st.sampled_from(["orders", "news"]), max_size=2), JUNK | st.just(["none"])),
        "generation": rarely_wrong(st.integers(0, 9), JUNK),
        "state": rarely_wrong(st.sampled_from(["Stable", "Empty", "PreparingRebalance", "CompletingRebalance"]), JUNK),
        "offsets": rarely_wrong(by_partition(PLACES, st.integers(0, 3)), JUNK | by_partition(NAMES, JUNK)),
        "lag": rarely_wrong(st.integers(0, 4) | by_partition(PLACES, st.integers(0, 4)), by_partition(NAMES, JUNK)),
        "protocol": rarely_wrong(st.sampled_from(["range", "sticky"]), JUNK),
        "assignment": rarely_wrong(st.just({}), JUNK | st.dictionaries(st.just("a"), st.lists(NAMES, max_size=2))),
    },
)


def seeded_cluster(records: int) -> tuple[ClusterHarness, ClusterHandle]:
    harness = ClusterHarness({"orders": 2, "news": 1}, brokers=2)
    commands = ClusterHandle(
        Local(harness.cluster, ClusterHarnessEnvironment(harness), new_cluster=lambda: harness.cluster)
    )
    commands.topic("orders").produce(["value"] * records, partition=0)
    commands.group("existing").seed()
    return harness, commands


def check_seeded(harness: ClusterHarness, seed: dict[str, Any]) -> None:
    """Check the committed offsets of a group, and that as many records follow them as the seed says."""
    group = find_group(harness.cluster, seed["group_id"])
    assert group is not None
    check(group)
    committed = committed_offsets(harness.cluster, seed["group_id"])
    lag = seed.get("lag") or {}
    for (topic, index), offset in committed.items():
        batches = batches_of(harness.cluster, topic, index, offset.offset)
        ahead = sum(1 for batch in batches for _ in batch.records())
        wanted = lag if isinstance(lag, int) else lag.get((topic, index), lag.get(f"{topic}-{index}", ahead))
        assert ahead == wanted or (isinstance(lag, int) and topic not in seed["topics"])


@soak
@pytest.mark.slow
def test_refused_seeds_leave_the_cluster_unchanged() -> None:
    outcomes: set[bool] = set()

    @settings(max_examples=examples(150, soak=5_000), deadline=None, phases=[Phase.generate, Phase.shrink])
    @given(st.lists(SEED, min_size=1, max_size=4), st.integers(0, 5))
    def seed(seeds: list[dict[str, Any]], records: int) -> None:
        harness, commands = seeded_cluster(records)
        before = contents(harness.cluster)
        try:
            commands.seed_groups(seeds)  # type: ignore[arg-type]  # tables are accepted, too
        except ConfigError:
            assert contents(harness.cluster) == before
            outcomes.add(False)
        else:
            for each in seeds:
                check_seeded(harness, each)
            outcomes.add(True)

    seed()
    assert outcomes == {True, False}
