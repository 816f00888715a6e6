"""ApiVersions: the supported versions of all APIs, and features. A request of a newer version gets UNSUPPORTED_VERSION.

The response with this error has version 0. Since Kafka 2.4 it contains the supported versions of ApiVersions (KIP-511).
"""

import re
from functools import cache
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.client_metrics import RESOURCE_TYPE
from fakebroker.cluster.features import KIP_584, supported
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Versions

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

KIP_511 = Release(2, 4)
_FIRST_VERSION_OF_LEVEL_0 = 4
_TELEMETRY_KEYS = (71, 72)
"""GetTelemetrySubscriptions and PushTelemetry (KIP-714): reported only if there is a subscription of client metrics.

Kafka reports them if a plugin receives metrics, which is not so by default.
"""

# Valid names and versions of client software, checked from version 3 on (ApiVersionsRequest.isValid).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ApiVersionsResponse:
    error = _error(cluster, call)
    if error in (ErrorCode.INVALID_REQUEST, ErrorCode.REBOOTSTRAP_REQUIRED):
        return ApiVersionsResponse(error_code=error, api_keys=[])
    if error is ErrorCode.NONE and call.api_version >= 3:
        call.peer.software = (call.request.client_software_name, call.request.client_software_version)
    if not call.is_supported:
        call.response_version = 0  # All clients can read it.
        own = [_reported(call.api.key, call.broker.versions[call.api.key])] if call.broker.release >= KIP_511 else []
        return ApiVersionsResponse(error_code=error, api_keys=own)
    ranges = [
        _reported(key, versions)
        for key, versions in call.broker.versions.items()
        if key not in _TELEMETRY_KEYS or _has_subscription(cluster)
    ]
    response = ApiVersionsResponse(error_code=error, api_keys=ranges)
    if call.broker.release >= KIP_584 and call.api_version >= 3:
        _add_features(cluster, call, response)
    return response


@cache
def _reported(key: int, versions: Versions) -> ApiVersion:
    """Return the versions of one API. All responses share it, because each idle connection keeps its last response."""
    return ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)


def _has_subscription(cluster: "Cluster") -> bool:
    return any(resource_type == RESOURCE_TYPE for resource_type, _ in cluster.resource_configs)


def _add_features(cluster: "Cluster", call: Call, response: ApiVersionsResponse) -> None:
    """Add the supported and finalized features.

    Features that can be disabled are reported since version 4, because older clients cannot read level 0 (KAFKA-17492).
    """
    response.supported_features = [
        SupportedFeatureKey(name=name, min_version=levels.first, max_version=levels.last)
        for name, levels in supported(call.broker.release).items()
        if levels.first or call.api_version >= _FIRST_VERSION_OF_LEVEL_0
    ]
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in cluster.features.finalized.items()
    ]
    response.finalized_features_epoch = cluster.features.epoch


def _error(cluster: "Cluster", call: Call) -> ErrorCode:
    if not call.is_supported:
        return ErrorCode.UNSUPPORTED_VERSION
    request: ApiVersionsRequest = call.request
    names = (request.client_software_name, request.client_software_version)
    if call.api_version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
        return ErrorCode.INVALID_REQUEST
    # KIP-1242: a client that has reached another broker than it expects has to begin with its bootstrap servers.
    if (request.cluster_id is None) != (request.node_id == -1):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
        cluster.cluster_id,
        call.broker.node_id,
    ):
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE
