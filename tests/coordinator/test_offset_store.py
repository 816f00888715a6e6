"""`OffsetStore` against a model: dictionaries of dictionaries."""

from hypothesis import given, strategies as st

from fakebroker.coordinator.offset_store import CommittedOffset, OffsetStore

INT64, INT32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
COMMITTED = st.builds(
    CommittedOffset,
    offset=INT64,
    leader_epoch=INT32,
    metadata=st.sampled_from(["", "", "m", "\u00e9" * 40]),
    commit_timestamp_ms=INT64,
    expire_timestamp_ms=st.none() | INT64,
)
TOPICS = st.sampled_from("abc")
FEW, MANY = st.integers(0, 3), st.integers(0, 25)


def test_a_store_is_empty_at_first() -> None:
    store = OffsetStore()
    assert list(store) == [] == list(store.partitions_of("a"))
    assert store.get("a", 0) is None


@given(st.lists(st.tuples(TOPICS, FEW, st.none() | COMMITTED)))
def test_a_store_with_few_offsets_is_like_dictionaries(changes: list[tuple[str, int, CommittedOffset | None]]) -> None:
    check_like_dictionaries(changes)


@given(
    st.lists(st.tuples(TOPICS, MANY, COMMITTED), min_size=20, max_size=60),
    st.lists(st.tuples(TOPICS, MANY, st.none() | COMMITTED), max_size=100),
)
def test_a_store_with_many_offsets_is_like_dictionaries(
    first: list[tuple[str, int, CommittedOffset | None]], changes: list[tuple[str, int, CommittedOffset | None]]
) -> None:
    check_like_dictionaries([*first, *changes])


def check_like_dictionaries(changes: list[tuple[str, int, CommittedOffset | None]]) -> None:
    store, other, model = OffsetStore(), OffsetStore(), dict[str, dict[int, CommittedOffset]]()
    other.apply("a", 0, CommittedOffset(offset=1, commit_timestamp_ms=2))
    for topic, partition, committed in changes:
        store.apply(topic, partition, committed)
        if committed is not None:
            model.setdefault(topic, {})[partition] = committed
        elif model.get(topic, {}).pop(partition, None) is not None and not model[topic]:
            del model[topic]
        assert store.get(topic, partition) == committed
        expected = [(name, index, each) for name, by_index in model.items() for index, each in by_index.items()]
        assert list(store) == expected
        assert list(store.partitions_of(topic)) == list(model.get(topic, ()))
    assert list(other) == [("a", 0, CommittedOffset(offset=1, commit_timestamp_ms=2))], "a store has changed another"


def test_entries_of_deleted_offsets_are_reused() -> None:
    store, committed = OffsetStore(), CommittedOffset(offset=1, commit_timestamp_ms=2, metadata="m")
    for partition in range(1_000):
        store.apply("a", partition, committed)
    size_bytes = len(store.entries)
    for _ in range(3):
        for partition in range(999):
            store.apply("a", partition, None)
        assert list(store) == [("a", 999, committed)]
        for partition in range(999):
            store.apply("a", partition, committed)
        assert len(store.entries) <= 2 * size_bytes
        assert [partition for _, partition, _ in store] == [999, *range(999)]
