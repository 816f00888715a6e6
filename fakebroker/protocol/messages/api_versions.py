"""ApiVersions: the API versions of the broker, and the client's software. Responses have header version 0 (KIP-511)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Boolean, Int16, Int32, Int64, String


class ApiVersionsRequest(Message, api_key=18, versions="0-5", flexible="3+"):
    client_software_name: String = field(versions="3+", ignorable=True, default="")
    client_software_version: String = field(versions="3+", ignorable=True, default="")
    cluster_id: String | None = field(versions="5+", ignorable=True, default=None)  # KIP-1242
    node_id: Int32 = field(versions="5+", ignorable=True, default=-1)


class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: String
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    name: String
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Message, api_key=18, versions="0-5", flexible="3+"):
    error_code: Int16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    supported_features: list[SupportedFeatureKey] = field(versions="3+", tag=0, ignorable=True, default_factory=list)
    finalized_features_epoch: Int64 = field(versions="3+", tag=1, ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(versions="3+", tag=2, ignorable=True, default_factory=list)
    zk_migration_ready: Boolean = field(versions="3+", tag=3, ignorable=True, default=False)
