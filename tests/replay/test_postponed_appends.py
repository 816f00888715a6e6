"""Postponed appends of a simulation: what is read later equals what would have been appended at once."""

from fakebroker.cluster.logs.compactor import Compactor
from fakebroker.cluster.logs.coordinator_records import append_records, read_records
from fakebroker.cluster.logs.partition_log import PartitionLog
from fakebroker.coordinator.records import Record, TransactionEnd
from fakebroker.replay.simulation.postponed_appends import PostponedAppends
from tests.support.coordinator.records import offset_record, offset_value, pending_record


def test_offsets_of_transactions_keep_their_places_between_plain_commits() -> None:
    value = offset_value(1)
    written: list[Record] = [
        offset_record("g", "t", 0, value),
        pending_record("g", "t", 0, value, 7),
        offset_record("g", "t", 0, value),
        TransactionEnd(7, 0, True, 3),
        offset_record("g", "t", 1, value),
    ]
    for is_truncated in (False, True):
        log, expected = PartitionLog(compactor=Compactor()), PartitionLog(compactor=Compactor())
        postponed = PostponedAppends(log, is_truncated=is_truncated)
        for record in written:
            postponed.add([record], leader_epoch=0, now_ms=0)
            append_records(expected, [record], leader_epoch=0, now_ms=0)
            assert log.producers.first_unstable_offset == expected.producers.first_unstable_offset
            assert log.log_end_offset == expected.log_end_offset
        assert read_records(log, 0) == read_records(expected, 0) == written
