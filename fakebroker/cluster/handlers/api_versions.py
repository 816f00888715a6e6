"""ApiVersions: the supported versions of all APIs. A request of a newer version gets UNSUPPORTED_VERSION.

The response with this error has version 0. Since Kafka 2.4 it contains the supported versions (KIP-511).
"""

import re
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fakebroker.protocol.releases import Release

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

KIP_511 = Release(2, 4)

# Valid names and versions of client software, checked from version 3 on (ApiVersionsRequest.isValid).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ApiVersionsResponse:
    error = _error(call)
    if not call.is_supported:
        call.response_version = 0  # All clients can read it.
        if call.broker.release < KIP_511:
            return ApiVersionsResponse(error_code=error, api_keys=[])
    ranges = [
        ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
        for key, versions in call.broker.versions.items()
    ]
    return ApiVersionsResponse(error_code=error, api_keys=ranges)


def _error(call: Call) -> ErrorCode:
    if not call.is_supported:
        return ErrorCode.UNSUPPORTED_VERSION
    names = (call.request.client_software_name, call.request.client_software_version)
    if call.api_version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE
