"""EndTxn: commits or aborts a transaction (KIP-98); raises the producer epoch since version 5 (KIP-890)."""

from fakebroker.protocol.schema import Message, field, message
from fakebroker.protocol.types import Boolean, Int16, Int32, Int64, String


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest(Message):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Boolean


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = field(versions="5+", ignorable=True, default=-1)
    producer_epoch: Int16 = field(versions="5+", ignorable=True, default=-1)
