"""`Cleaner` on random logs, compared with a model: the last record of each key is left, and offsets do not change."""

from hypothesis import given, settings, strategies as st

from fakebroker.cluster.logs.cleaner import Cleaner
from fakebroker.cluster.logs.producer_state import Producers
from fakebroker.protocol.records import Record, RecordBatch, decode_records, encode_batch
from tests.support.soak import examples, soak

RECORDS = st.tuples(st.sampled_from([b"a", b"b", b"c", None]), st.sampled_from([b"1", b"2", None]))
BATCHES = st.lists(RECORDS, min_size=1, max_size=4)
DELETE_RETENTION_MS = 10

Entry = tuple[int, bytes | None, bytes | None]


def contents(batches: list[RecordBatch]) -> list[Entry]:
    return [(each.offset, each.key, each.value) for batch in batches for each in decode_records(batch)]


@soak
@settings(max_examples=examples(100, soak=5000))
@given(runs=st.lists(st.lists(BATCHES, max_size=4), min_size=1, max_size=5))
def test_random_logs(runs: list[list[list[tuple[bytes | None, bytes | None]]]]) -> None:
    """Append some batches and clean, several times. Each cleaning is 10 ms after the previous one."""
    cleaner, batches, end = Cleaner(), list[RecordBatch](), 0
    entries: list[Entry] = []
    cleaned_ms: dict[int, int] = {}
    for number, run in enumerate(runs):
        now_ms = number * DELETE_RETENTION_MS
        for batch in run:
            records = [Record(end + index, 0, key, value) for index, (key, value) in enumerate(batch)]
            batches.append(RecordBatch(encode_batch(records, base_offset=end)))
            entries += [(record.offset, record.key, record.value) for record in records]
            end += len(batch)
        batches = cleaner.clean(batches, Producers(), now_ms, 0, DELETE_RETENTION_MS)
        last_of_key = {key: offset for offset, key, _ in entries}
        for offset, _, _ in entries:
            cleaned_ms.setdefault(offset, now_ms)
        expected = [
            (offset, key, value)
            for offset, key, value in entries
            if offset == end - 1
            or (
                key is not None
                and last_of_key[key] == offset
                and (value is not None or now_ms < cleaned_ms[offset] + DELETE_RETENTION_MS)
            )
        ]
        assert contents(batches) == expected
        assert cleaner.next_ms(end, end) > now_ms
        assert contents(cleaner.clone().clean(batches, Producers(), now_ms, 0, DELETE_RETENTION_MS)) == expected
