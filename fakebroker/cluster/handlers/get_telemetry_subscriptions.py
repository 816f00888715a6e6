"""GetTelemetrySubscriptions: the metrics that a client should push (ClientMetricsManager, KIP-714).

Subscriptions are resources with configs, of the type CLIENT_METRICS; without any, no metrics are requested. Kafka also
refuses clients that ask again before the push interval has passed; brokers here do not.
"""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.client_metrics import subscription_of
from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from fakebroker.protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

TELEMETRY_MAX_BYTES = 1024 * 1024
"""Kafka's `telemetry.max.bytes`."""

ACCEPTED_COMPRESSIONS = [Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY]


def handle(cluster: "Cluster", call: Call, now_ms: float) -> GetTelemetrySubscriptionsResponse:
    request: GetTelemetrySubscriptionsRequest = call.request
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = cluster.new_id()
    subscription = subscription_of(cluster, call, instance_id)
    return GetTelemetrySubscriptionsResponse(
        error_code=ErrorCode.NONE,
        client_instance_id=instance_id,
        subscription_id=subscription.number,
        accepted_compression_types=list(map(int, ACCEPTED_COMPRESSIONS)),
        push_interval_ms=subscription.push_interval_ms,
        telemetry_max_bytes=TELEMETRY_MAX_BYTES,
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )
