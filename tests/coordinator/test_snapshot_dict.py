"""Snapshots of the keys of a dict that changes."""

import tracemalloc

import pytest
from hypothesis import given, strategies as st

from fakebroker.coordinator.snapshot_dict import NO_ENTRIES, SnapshotDict

keys = st.integers(0, 99).map(str)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(keys, max_size=60)),
        st.tuples(st.sampled_from(["pop", "delete"]), keys),
        st.tuples(st.sampled_from(["popitem", "clear", "nothing"]), st.none()),
    ),
    max_size=30,
)


def change(values: SnapshotDict[int], what: str, named: list[str] | str | None) -> None:
    if what == "add":
        for key in named or ():
            values[key] = 1
    elif what == "pop":
        values.pop(str(named), None)
    elif what == "delete" and named in values:
        del values[str(named)]
    elif what == "popitem" and values:
        values.popitem()
    elif what == "clear":
        values.clear()


@given(changes, st.integers(0, 99))
def test_a_snapshot_has_the_keys_of_its_time_in_their_order(changes: list[tuple[str, list[str]]], initial: int) -> None:
    values = SnapshotDict((f"initial-{number}", number) for number in range(initial))
    snapshots = []
    for what, named in changes:
        change(values, what, named)
        snapshots.append((values.snapshot(), tuple(values)))
    for snapshot, expected in snapshots:
        assert (tuple(snapshot), len(snapshot)) == (expected, len(expected))


def test_snapshots_share_memory_while_keys_are_only_added() -> None:
    values = SnapshotDict((str(number), number) for number in range(1_000))
    tracemalloc.start()
    try:
        snapshots = []
        for number in range(1_000):
            values[f"new-{number}"] = 1
            snapshots.append(values.snapshot())
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(snapshots[0]) == 1_001
    assert size_bytes < 1_000_000, "copies of the keys take 12 MB"
    assert values.snapshot() is values.snapshot()


def test_the_shared_dict_stays_empty() -> None:
    with pytest.raises(TypeError, match="shared"):
        NO_ENTRIES["a"] = 1
    with pytest.raises(TypeError, match="shared"):
        NO_ENTRIES.update(a=1)
    with pytest.raises(TypeError, match="shared"):
        NO_ENTRIES.setdefault("a", 1)
    assert NO_ENTRIES.pop("a", None) is None
    assert (NO_ENTRIES, tuple(NO_ENTRIES.snapshot())) == ({}, ())
