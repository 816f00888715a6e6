"""Keys and values of the records in `__transaction_state`, which transaction coordinators write.

Each key and value follows its version, an int16. Values of version 1 are written if the finalized level of the feature
`transaction.version` is at least 1 (KIP-890).
"""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Int8, Int16, Int32, Int64, String


class TransactionLogKey(Message, versions="0", flexible="none"):
    transactional_id: String


class PartitionsSchema(Struct):
    topic: String
    partition_ids: list[Int32]


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: Int64
    previous_producer_id: Int64 = field(versions="1+", tag=0, ignorable=True, default=-1)
    next_producer_id: Int64 = field(versions="1+", tag=1, ignorable=True, default=-1)
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field(versions="1+", tag=2, ignorable=True, default=0)
