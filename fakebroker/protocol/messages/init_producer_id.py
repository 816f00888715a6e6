"""InitProducerId: assigns id and epoch to an idempotent or transactional producer (KIP-98)."""

from fakebroker.protocol.schema import Message, field
from fakebroker.protocol.types import Boolean, Int16, Int32, Int64, String


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+"):
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(versions="3+", default=-1)
    producer_epoch: Int16 = field(versions="3+", default=-1)
    enable2_pc: Boolean = field(versions="6+", default=False)
    keep_prepared_txn: Boolean = field(versions="6+", default=False)


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field(versions="6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field(versions="6+", default=-1)
