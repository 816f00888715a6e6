"""`OffsetStore` against a model: dictionaries of dictionaries."""

from hypothesis import given, strategies as st

from fakebroker.coordinator.offset_store import CommittedOffset, OffsetStore
from fakebroker.protocol.messages.consumer_offsets import OffsetCommitValue
from tests.support.coordinator.records import offset_value

INT64, INT32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
VALUES = st.builds(
    OffsetCommitValue,
    offset=INT64,
    leader_epoch=INT32,
    metadata=st.sampled_from(["", "", "m", "\u00e9" * 40]),
    commit_timestamp=INT64,
    expire_timestamp=st.just(-1) | INT64,
)
TOPICS = st.sampled_from("abc")
FEW, MANY = st.integers(0, 3), st.integers(0, 25)


def test_a_store_is_empty_at_first() -> None:
    store = OffsetStore()
    assert list(store) == [] == list(store.partitions_of("a"))
    assert store.get("a", 0) is None


@given(st.lists(st.tuples(TOPICS, FEW, st.none() | VALUES)))
def test_a_store_with_few_offsets_is_like_dictionaries(
    changes: list[tuple[str, int, OffsetCommitValue | None]],
) -> None:
    check_like_dictionaries(changes)


@given(
    st.lists(st.tuples(TOPICS, MANY, VALUES), min_size=20, max_size=60),
    st.lists(st.tuples(TOPICS, MANY, st.none() | VALUES), max_size=100),
)
def test_a_store_with_many_offsets_is_like_dictionaries(
    first: list[tuple[str, int, OffsetCommitValue | None]], changes: list[tuple[str, int, OffsetCommitValue | None]]
) -> None:
    check_like_dictionaries([*first, *changes])


def committed_offset(value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        offset=value.offset,
        commit_timestamp_ms=value.commit_timestamp,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        expire_timestamp_ms=None if value.expire_timestamp == -1 else value.expire_timestamp,
    )


def check_like_dictionaries(changes: list[tuple[str, int, OffsetCommitValue | None]]) -> None:
    store, other, model = OffsetStore(), OffsetStore(), dict[str, dict[int, CommittedOffset]]()
    other.apply("a", 0, offset_value(1, 2))
    for topic, partition, value in changes:
        store.apply(topic, partition, value)
        committed = None if value is None else committed_offset(value)
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
    store, value = OffsetStore(), OffsetCommitValue(offset=1, commit_timestamp=2, metadata="m")
    for partition in range(1_000):
        store.apply("a", partition, value)
    size_bytes = len(store.entries)
    for _ in range(3):
        for partition in range(999):
            store.apply("a", partition, None)
        assert list(store) == [("a", 999, committed_offset(value))]
        for partition in range(999):
            store.apply("a", partition, value)
        assert len(store.entries) <= 2 * size_bytes
        assert [partition for _, partition, _ in store] == [999, *range(999)]
