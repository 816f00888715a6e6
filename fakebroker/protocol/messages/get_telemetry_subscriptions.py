"""GetTelemetrySubscriptions: which metrics a client should push, and how often (KIP-714)."""

from fakebroker.protocol.schema import Message
from fakebroker.protocol.types import Boolean, Int8, Int16, Int32, String, Uuid


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Boolean
    requested_metrics: list[String]
