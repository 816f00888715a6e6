"""IncrementalAlterConfigs: set or delete single configs, or append to or subtract from lists (KIP-339)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.changes import Change, ResourceChange, alter
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> IncrementalAlterConfigsResponse:
    request: IncrementalAlterConfigsRequest = call.request
    secrets = call.peer.secrets
    resources = [
        ResourceChange(
            each.resource_type,
            each.resource_name,
            [
                Change(
                    config.name, secrets.get((each.resource_name, config.name), config.value), config.config_operation
                )
                for config in each.configs
            ],
            replaces=False,
        )
        for each in request.resources
    ]
    outcomes = alter(cluster, call, resources, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error_code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each, (error_code, message) in zip(resources, outcomes, strict=True)
        ]
    )
