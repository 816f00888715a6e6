"""AddOffsetsToTxn: adds the offsets of a group to a transaction (KIP-98)."""

from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
