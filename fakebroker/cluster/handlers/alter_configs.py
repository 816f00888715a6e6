"""AlterConfigs: replace all configs of a resource; configs that are not named return to their defaults (KIP-133)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.changes import Change, ResourceChange, alter
from fakebroker.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster


def handle(cluster: "Cluster", call: Call, now_ms: float) -> AlterConfigsResponse:
    request: AlterConfigsRequest = call.request
    secrets = call.peer.secrets
    resources = [
        ResourceChange(
            each.resource_type,
            each.resource_name,
            [
                Change(config.name, secrets.get((each.resource_name, config.name), config.value))
                for config in each.configs
            ],
            replaces=True,
        )
        for each in request.resources
    ]
    outcomes = alter(cluster, call, resources, validate_only=request.validate_only)
    return AlterConfigsResponse(
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
