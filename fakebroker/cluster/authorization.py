"""What the client of a call may do: the questions of handlers to the authorizer (Kafka's AuthHelper).

Without an authorizer (`Cluster.acls` is None) everything is allowed. Handlers of frequent requests check that first.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fakebroker.cluster.call import Call
from fakebroker.cluster.faults.error_catalog import MESSAGES, error_places
from fakebroker.cluster.faults.error_responses import InjectedError, refusal as error_response
from fakebroker.errors import ErrorCode
from fakebroker.protocol.releases import Release
from fakebroker.protocol.schema import Message
from fakebroker.security.acls import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_ERRORS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

NOT_REQUESTED = -(2**31)
"""Value of the fields for authorized operations if a request does not ask for them."""

_OPERATIONS = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that are reported for resources (AclEntry.supportedOperations)."""

_GROUP_CONFIGS = Release(4, 0)
"""The first release in which groups have configs."""


def may(cluster: "Cluster", call: Call, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
    """Return whether the client of a call may do something with a resource."""
    if cluster.acls is None:
        return True
    peer = call.peer
    return cluster.acls.allows(peer.principal, _host(call), operation, resource_type, name)


def may_any(cluster: "Cluster", call: Call, operation: AclOperation, resource_type: ResourceType) -> bool:
    """Return whether the client of a call may do something with at least one resource of a type."""
    return cluster.acls is None or cluster.acls.allows_any(call.peer.principal, _host(call), operation, resource_type)


def _host(call: Call) -> str:
    """Return the address of a client as Java's `InetAddress.getHostAddress`, as ACLs name it."""
    return call.peer.client_host.removeprefix("/")


def error_of(
    cluster: "Cluster", call: Call, operation: AclOperation, resource_type: ResourceType, name: str
) -> ErrorCode:
    """Return the error for a resource if the client of a call may not do something with it, else NONE."""
    return ErrorCode.NONE if may(cluster, call, operation, resource_type, name) else _ERRORS[resource_type]


def topic_error(cluster: "Cluster", call: Call, operation: AclOperation, name: str) -> ErrorCode:
    """Return TOPIC_AUTHORIZATION_FAILED if the client of a call may not do something with a topic, else NONE."""
    return error_of(cluster, call, operation, ResourceType.TOPIC, name)


def group_error(cluster: "Cluster", call: Call, operation: AclOperation, group_id: str) -> ErrorCode:
    """Return GROUP_AUTHORIZATION_FAILED if the client of a call may not do something with a group, else NONE."""
    return error_of(cluster, call, operation, ResourceType.GROUP, group_id)


def transaction_error(cluster: "Cluster", call: Call, operation: AclOperation, transactional_id: str) -> ErrorCode:
    """Return TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the client may not do something with the id, else NONE."""
    return error_of(cluster, call, operation, ResourceType.TRANSACTIONAL_ID, transactional_id)


def cluster_error(cluster: "Cluster", call: Call, operation: AclOperation) -> ErrorCode:
    """Return CLUSTER_AUTHORIZATION_FAILED if the client of a call may not do something with the cluster, else NONE."""
    return error_of(cluster, call, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def may_with_cluster_or_topic(cluster: "Cluster", call: Call, operation: AclOperation, topic: str) -> bool:
    """Return whether the client may do something with all topics, by an ACL of the cluster, or with this one."""
    return not cluster_error(cluster, call, operation) or not topic_error(cluster, call, operation, topic)


def needs_cluster(operation: AclOperation) -> str:
    """Return the message of CLUSTER_AUTHORIZATION_FAILED."""
    return f"{MESSAGES[ErrorCode.CLUSTER_AUTHORIZATION_FAILED]} Expected permission {operation.name} on the cluster."


def operations(cluster: "Cluster", call: Call, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return the operations that the client may do with a resource, as bits numbered by AclOperation (KIP-430)."""
    found = _OPERATIONS[resource_type]
    if resource_type is ResourceType.GROUP and call.broker.release < _GROUP_CONFIGS:
        found = found[:3]
    return sum(1 << operation for operation in found if may(cluster, call, operation, resource_type, name))


def cluster_operations(cluster: "Cluster", call: Call) -> int:
    """Return the operations that the client may do with the cluster, as bits; 0 if it may not describe it."""
    if cluster_error(cluster, call, AclOperation.DESCRIBE):
        return 0
    return operations(cluster, call, ResourceType.CLUSTER)


def refusal(call: Call, error: ErrorCode) -> Message:
    """Return the response in which the request as a whole has an error (AbstractRequest.getErrorResponse).

    Only for an error that the API has in one place of its version, by `faults/error_catalog.py`.
    """
    places = [each for each in error_places(call.api) if call.api_version in each.versions and error in each.errors]
    injected = InjectedError(error, places[0], call.api_version, {}, lambda topic_id: None)
    return error_response(injected, call.api.response, call.request)


def may_describe(cluster: "Cluster", call: Call) -> Callable[[str], bool] | None:
    """Return whether the client may describe a topic; None if it may describe all."""
    if cluster.acls is None:
        return None
    return lambda topic: not topic_error(cluster, call, AclOperation.DESCRIBE, topic)
