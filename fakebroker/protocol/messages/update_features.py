"""UpdateFeatures: changes the finalized levels of features, such as metadata.version (KIP-584, KIP-778)."""

from fakebroker.protocol.schema import Message, Struct, field
from fakebroker.protocol.types import Boolean, Int8, Int16, Int32, String


class FeatureUpdateKey(Struct):
    feature: String
    max_version_level: Int16
    allow_downgrade: Boolean = field(versions="0", default=False)
    upgrade_type: Int8 = field(versions="1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: Boolean = field(versions="1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: String
    error_code: Int16
    error_message: String | None


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None
    results: list[UpdatableFeatureResult] = field(versions="0-1", ignorable=True, default_factory=list)
