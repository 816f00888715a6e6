"""PushTelemetry: check the metrics of a client, and drop them (ClientMetricsManager, KIP-714)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.client_metrics import subscription_of
from fakebroker.cluster.handlers.get_telemetry_subscriptions import ACCEPTED_COMPRESSIONS, TELEMETRY_MAX_BYTES
from fakebroker.errors import ErrorCode
from fakebroker.protocol.compression import Compression
from fakebroker.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from fakebroker.protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=_error(cluster, call))


def _error(cluster: "Cluster", call: Call) -> ErrorCode:
    request: PushTelemetryRequest = call.request
    if request.client_instance_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST
    if request.subscription_id != subscription_of(cluster, call, request.client_instance_id).number:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in (Compression.NONE, *ACCEPTED_COMPRESSIONS):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.TELEMETRY_TOO_LARGE if len(request.metrics) > TELEMETRY_MAX_BYTES else ErrorCode.NONE
