"""ApiVersions: the truth about what is served. A version above ours is told our ranges, with UNSUPPORTED_VERSION."""

import re
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fakebroker.protocol.registry import APIS, Api

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

# What a client may call itself from version 3 on (ApiVersionsRequest.isValid).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(cluster: "Cluster", call: Call, now_ms: float) -> ApiVersionsResponse:
    if not call.is_supported:
        call.response_version = 0  # which every client can read (KIP-511)
    return ApiVersionsResponse(error_code=_error(call), api_keys=[_range(api) for api in APIS])


def _error(call: Call) -> ErrorCode:
    if not call.is_supported:
        return ErrorCode.UNSUPPORTED_VERSION
    names = (call.request.client_software_name, call.request.client_software_version)
    if call.api_version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _range(api: Api) -> ApiVersion:
    versions = api.advertised_versions
    return ApiVersion(api_key=api.key, min_version=versions.first, max_version=versions.last)
