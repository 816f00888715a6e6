"""AlterClientQuotas: set and remove quotas, or only validate the request. Any broker answers.

Entities are independent of each other. Checks and their order are Kafka's (ClientQuotaControlManager).
"""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from fakebroker.cluster.authorization import cluster_error
from fakebroker.cluster.call import Call
from fakebroker.cluster.configs.definitions import ConfigType
from fakebroker.cluster.faults.error_catalog import MESSAGES
from fakebroker.cluster.quotas import CLIENT_ID, CONNECTIONS, ENTITY_TYPES, IP, KEYS, KIP_599, MUTATION, USER, entity
from fakebroker.errors import ErrorCode
from fakebroker.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryResult,
    OpData,
)
from fakebroker.protocol.releases import Release
from fakebroker.security.acls import AclOperation

if TYPE_CHECKING:
    from fakebroker.cluster.cluster import Cluster

_LARGEST = {ConfigType.LONG: 2.0**63, ConfigType.INT: 2.0**31 - 1, ConfigType.DOUBLE: float("inf")}
_FRACTION = 1e-6
"""Values of integers may differ by this from a whole number."""


def handle(cluster: "Cluster", call: Call, now_ms: float) -> AlterClientQuotasResponse:
    request: AlterClientQuotasRequest = call.request
    if refused := cluster_error(cluster, call, AclOperation.ALTER_CONFIGS):
        rows = [
            EntryResult(error_code=refused, error_message=MESSAGES[refused], entity=each.entity)
            for each in request.entries
        ]
        return AlterClientQuotasResponse(entries=rows)
    # An entity is a map: of several names of one type, the last counts.
    entities = [{each.entity_type: each.entity_name for each in entry.entity} for entry in request.entries]
    altered: dict[frozenset[tuple[str, str | None]], EntryResult] = {}
    for parts, entry in zip(entities, request.entries, strict=True):
        keys = [op.key for op in entry.ops]
        if entities.count(parts) > 1 or len(keys) != len(set(keys)):
            message: str | None = f"Ignoring duplicate entity {_shown(parts)}"
        else:
            message = _error(parts, entry.ops, call.broker.release)
        if message is None and not request.validate_only:
            cluster.quotas.alter(entity(parts), {op.key: None if op.remove else op.value for op in entry.ops})
        altered[frozenset(parts.items())] = EntryResult(
            error_code=ErrorCode.NONE if message is None else ErrorCode.INVALID_REQUEST,
            error_message=message,
            entity=[EntityData(entity_type=type_, entity_name=name) for type_, name in parts.items()],
        )
    return AlterClientQuotasResponse(entries=list(altered.values()))


def _shown(parts: Mapping[str, str | None]) -> str:
    return ", ".join(f"{type_} {'(default)' if name is None else repr(name)}" for type_, name in parts.items())


def _error(parts: Mapping[str, str | None], ops: Sequence[OpData], release: Release) -> str | None:
    """Return why the quotas of an entity cannot be altered; None if they can."""
    message = _entity_error(parts, release)
    if message is not None:
        return message
    known = [key for key in KEYS if (key == CONNECTIONS) == (IP in parts) and (key != MUTATION or release >= KIP_599)]
    # As in Kafka, a key to remove may be unknown.
    return next((fault for op in ops if not op.remove and (fault := _value_error(op, known))), None)


def _entity_error(parts: Mapping[str, str | None], release: Release) -> str | None:
    if not parts:
        return "Invalid empty client quota entity"
    allowed = ENTITY_TYPES if release >= KIP_599 else (USER, CLIENT_ID)
    for type_, name in parts.items():
        if type_ not in allowed:
            return f"Unhandled client quota entity type: {type_}"
        if name == "":
            return f"Empty {type_} not supported"
    if IP not in parts:
        return None
    if len(parts) > 1:
        return "Invalid quota entity combination, ip must not be combined with user or client-id"
    return None if _is_ip(parts[IP]) else f"{parts[IP]} is not a valid IP address or known host"


def _is_ip(name: str | None) -> bool:
    """Return whether a name is an IP address, localhost, or None for the default. Other hosts are not resolved."""
    try:
        return name is None or name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False


def _value_error(op: OpData, known: Sequence[str]) -> str | None:
    if op.key not in known:
        return f"Invalid configuration key {op.key}: expected one of {', '.join(known)}"
    if not op.value > 0:
        return f"Quota {op.key} must be greater than 0, not {op.value}"
    type_ = KEYS[op.key]
    if op.value > _LARGEST[type_]:
        return f"Proposed value for {op.key} is too large for a {type_.name}."
    if type_ is not ConfigType.DOUBLE and op.value % 1.0 > _FRACTION:
        return f"{op.key} cannot be a fractional value."
    return None
