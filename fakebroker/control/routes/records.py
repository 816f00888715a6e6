"""Operations on the records of topics."""

from typing import TypedDict

import msgspec

from fakebroker.cluster.inspect.views import RecordView, batches_of
from fakebroker.control.clusters import ServedCluster
from fakebroker.control.problems import not_found
from fakebroker.control.routes.arguments import check_range
from fakebroker.control.routes.operations import CLUSTER, operation
from fakebroker.control.steps import Steps
from fakebroker.topic_partition import MAX_INT64
from fakebroker.validation import Base64, json_data

RECORDS = f"{CLUSTER}/topics/{{topic}}/records"

MAX_RECORDS = 10_000
MAX_RECORDS_BYTES = 8 * 1024 * 1024
"""The size of the records in one response; the first record is returned in any case."""

_RECORDS_PER_STEP = 100


class RecordQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Some records: of all partitions, or of one; from an offset on; only those that `read_committed` shows."""

    partition: int | None = None
    offset: int = 0
    limit: int = 1_000
    committed: bool = False


class RecordRow(TypedDict):
    """One record; bytes that are not UTF-8 are in base64, and headers are pairs of name and value."""

    partition: int
    offset: int
    timestamp: int
    key: str | Base64 | None
    value: str | Base64 | None
    headers: list[tuple[str, str | Base64 | None]]


class RecordList(TypedDict):
    """Records by partition and offset; `is_complete` is false if there are more."""

    records: list[RecordRow]
    is_complete: bool


@operation("GET", RECORDS)
def list_records(served: ServedCluster, topic: str, query: RecordQuery) -> Steps[RecordList]:
    """List the records of a topic that a consumer could read, decoded, without control records."""
    _check_topic(served, topic)
    check_range("offset", query.offset, 0, MAX_INT64)
    check_range("limit", query.limit, 1, MAX_RECORDS)
    rows: list[RecordRow] = []
    size_bytes = 0
    for batch in batches_of(served.core, topic, query.partition, query.offset, committed=query.committed):
        for record in batch.records():
            size_bytes += len(record.key or b"") + len(record.value or b"")
            if rows and (len(rows) == query.limit or size_bytes > MAX_RECORDS_BYTES):
                return {"records": rows, "is_complete": False}
            rows.append(_row(record))
            if len(rows) % _RECORDS_PER_STEP == 0:
                yield
    return {"records": rows, "is_complete": True}


def _check_topic(served: ServedCluster, name: str) -> None:
    topics = served.core.topics
    if name not in topics:
        raise not_found("topic", name, f"one of {', '.join(each.name for each in topics)}")


def _row(record: RecordView) -> RecordRow:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_data(record.key),
        "value": json_data(record.value),
        "headers": [(name, json_data(value)) for name, value in record.headers],
    }
