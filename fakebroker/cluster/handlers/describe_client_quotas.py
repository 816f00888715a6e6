"""DescribeClientQuotas: the quotas of the entities that match a filter (ClientQuotasImage.describe)."""

from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.quotas import CLIENT_ID, ENTITY_TYPES, IP, USER, Entity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

# Kafka's types of filters: an entity with this name, the default entity, any entity of this type.
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def handle(cluster: "Cluster", call: Call, now_ms: float) -> DescribeClientQuotasResponse:
    request: DescribeClientQuotasRequest = call.request
    if refused := cluster_error(cluster, call, AclOperation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(error_code=refused, error_message=None, entries=None)
    error = _error(request)
    if error is not None:
        code, message = error
        return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        entries=[
            EntryData(
                entity=[EntityData(entity_type=type_, entity_name=name) for type_, name in entity],
                values=[ValueData(key=key, value=value) for key, value in limits.items()],
            )
            for entity, limits in cluster.quotas.limits.items()
            if _matches(entity, request)
        ],
    )


def _error(request: DescribeClientQuotasRequest) -> tuple[ErrorCode, str] | None:
    types: list[str] = []
    for component in request.components:
        type_, is_exact = component.entity_type, component.match_type == EXACT
        if not type_:
            return ErrorCode.INVALID_REQUEST, "Invalid empty entity type."
        if type_ in types:
            return ErrorCode.INVALID_REQUEST, f"Entity type {type_} cannot appear more than once in the filter."
        if type_ not in ENTITY_TYPES:
            expected = ", ".join(ENTITY_TYPES)
            return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {type_}: expected one of {expected}"
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            return ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}: expected 0, 1 or 2"
        if is_exact != (component.match is not None):
            expected = "a name" if is_exact else "null"
            message = f"match={component.match!r} of match type {component.match_type}: expected {expected}"
            return ErrorCode.INVALID_REQUEST, message
        types.append(type_)
    if IP in types and (USER in types or CLIENT_ID in types):
        return ErrorCode.INVALID_REQUEST, "entity type ip cannot be combined with user or client-id"
    return None


def _matches(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    names = dict(entity)
    if request.strict and len(names) != len(request.components):
        return False
    return all(
        component.entity_type in names
        and (component.match_type == SPECIFIED or names[component.entity_type] == component.match)
        for component in request.components
    )
