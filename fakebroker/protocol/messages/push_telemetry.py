"""PushTelemetry: metrics of a client (KIP-714)."""

from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import Boolean, Bytes, Int8, Int16, Int32, Uuid


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Boolean
    compression_type: Int8
    metrics: Bytes


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
