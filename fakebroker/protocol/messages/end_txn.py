"""EndTxn: commits or aborts a transaction (KIP-98); raises the producer epoch since version 5 (KIP-890)."""

from fakebroker.protocol.schema import Message, field
from fakebroker.protocol.types import Boolean, Int16, Int32, Int64, String


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Boolean


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = field(versions="5+", ignorable=True, default=-1)
    producer_epoch: Int16 = field(versions="5+", ignorable=True, default=-1)
