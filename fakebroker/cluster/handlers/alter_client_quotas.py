"""AlterClientQuotas: set and remove quotas, or only validate the request. Any broker answers.

Entities are independent of each other. Checks and their order are Kafka's (ClientQuotaControlManager).
"""

from collections.abc import Sequence
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
    EntryData,
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
    seen: set[frozenset[tuple[str, str | None]]] = set()
    results = []
    for entry in request.entries:
        named = frozenset((each.entity_type, each.entity_name) for each in entry.entity)
        message = "entity twice in one request: expected once" if named in seen else _error(entry, call.broker.release)
        seen.add(named)
        if message is None and not request.validate_only:
            changed = entity({each.entity_type: each.entity_name for each in entry.entity})
            cluster.quotas.alter(changed, {op.key: None if op.remove else op.value for op in entry.ops})
        results.append(
            EntryResult(
                error_code=ErrorCode.NONE if message is None else ErrorCode.INVALID_REQUEST,
                error_message=message,
                entity=entry.entity,
            )
        )
    return AlterClientQuotasResponse(entries=results)


def _error(entry: EntryData, release: Release) -> str | None:
    """Return why the quotas of an entity cannot be altered; None if they can."""
    keys = [op.key for op in entry.ops]
    repeated = [key for key in keys if keys.count(key) > 1]
    if repeated:
        return f"Duplicate quota key {repeated[0]}"
    message = _entity_error(entry.entity, release)
    if message is not None:
        return message
    is_ip = entry.entity[0].entity_type == IP
    known = [key for key in KEYS if (key == CONNECTIONS) == is_ip and (key != MUTATION or release >= KIP_599)]
    # As in Kafka, a key to remove may be unknown.
    return next((fault for op in entry.ops if not op.remove and (fault := _value_error(op, known))), None)


def _entity_error(parts: Sequence[EntityData], release: Release) -> str | None:
    types = [part.entity_type for part in parts]
    if not types:
        return "Invalid empty client quota entity"
    allowed = ENTITY_TYPES if release >= KIP_599 else (USER, CLIENT_ID)
    for part in parts:
        if part.entity_type not in allowed:
            return f"Unhandled client quota entity type: {part.entity_type}"
        if types.count(part.entity_type) > 1:
            return f"Invalid client quota entity, duplicate entity entry {part.entity_type}"
        if part.entity_name == "":
            return f"Empty {part.entity_type} not supported"
    if IP not in types:
        return None
    if len(types) > 1:
        return "Invalid quota entity combination, ip must not be combined with user or client-id"
    (address,) = parts
    return None if _is_ip(address.entity_name) else f"{address.entity_name} is not a valid IP address or known host"


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
