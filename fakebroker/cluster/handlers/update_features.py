"""UpdateFeatures: change the finalized levels of features, or only validate the request. Any broker answers.

Since 4.0 all updates are made or none; before, each is independent of the others (QuorumController.updateFeatures).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error, needs_cluster
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.eligible_replicas import store_min_isr
from fakebroker.cluster.features import KIP_1022, KRAFT, Update
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> UpdateFeaturesResponse:
    request: UpdateFeaturesRequest = call.request
    if error := cluster_error(cluster, call, AclOperation.ALTER):
        return _refused(error, needs_cluster(AclOperation.ALTER))
    # As in Kafka's controller, `allow_downgrade` of version 0 is ignored. The last update of a feature counts.
    updates = list(
        {
            each.feature: Update(each.feature, each.max_version_level, each.upgrade_type)
            for each in request.feature_updates
        }.values()
    )
    if call.broker.release < KRAFT:
        return _results([(each, (ErrorCode.INVALID_REQUEST, f"{each.name}: unknown feature")) for each in updates])
    faults = [_fault(cluster, each, updates) for each in updates]
    failed = next((message for message in faults if message is not None), None)
    valid = [each for each, message in zip(updates, faults, strict=True) if message is None]
    if call.broker.release >= KIP_1022 and failed is not None:
        message = f"The update failed for all features since the following feature had an error: {failed}"
        return _refused(ErrorCode.INVALID_UPDATE_VERSION, message)
    if valid and not request.validate_only:
        cluster.features.apply(valid)
        store_min_isr(cluster)
    if call.api_version > 1:
        return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None)
    # Since Kafka 4.0, the message of a successful result is the name of its error code: "NONE".
    done = (ErrorCode.NONE, ErrorCode.NONE.name if call.broker.release >= KIP_1022 else None)
    errors = [done if message is None else (ErrorCode.INVALID_UPDATE_VERSION, message) for message in faults]
    return _results(list(zip(updates, errors, strict=True)))


def _fault(cluster: "Cluster", update: Update, updates: Sequence[Update]) -> str | None:
    releases = {node_id: broker.release for node_id, broker in cluster.brokers.items()}
    return cluster.features.error(update, updates, releases)


def _refused(error: ErrorCode, message: str) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error, error_message=message)


def _results(errors: Sequence[tuple[Update, tuple[ErrorCode, str | None]]]) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.name, error_code=code, error_message=message)
            for update, (code, message) in errors
        ],
    )
