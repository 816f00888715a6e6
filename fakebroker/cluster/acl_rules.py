"""The authorizer of a new cluster, and ACLs as plain data: in Python, events and files."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from fakebroker.cluster.configs.settings import AUTHORIZER, SUPER_USERS, Config
from fakebroker.errors import ConfigError
from fakebroker.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    AclPermission,
    AclStore,
    PatternType,
    ResourcePattern,
    ResourceType,
)

OperationName = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "TWO_PHASE_COMMIT",
]
"""The operations on topics, groups, transactional ids and the cluster, by the names of AclOperation."""

ALLOW_EVERYTHING = tuple(
    Acl(ResourcePattern(kind, name), WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, AclPermission.ALLOW)
    for kind, name in (
        (ResourceType.TOPIC, WILDCARD),
        (ResourceType.GROUP, WILDCARD),
        (ResourceType.CLUSTER, CLUSTER_NAME),
        (ResourceType.TRANSACTIONAL_ID, WILDCARD),
    )
)
"""ACLs with which an authorizer allows what is allowed without one."""


class AclRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One ACL: whether a principal may do something with a resource. Exactly one resource is given.

    Attributes:
        principal: Name of the user, such as "alice"; "*" is everyone. With a colon: type and name, as in "User:alice".
        operation: What is done, such as "READ". "ALL" is everything. A permission to read, write, delete or alter
            includes the permission to describe; a denial does not.
        permission: Whether it is allowed or denied. A denial has precedence.
        topic: Name of a topic; "*" is all topics.
        group: Id of a group; "*" is all groups.
        transactional_id: A transactional id; "*" is all.
        cluster: Whether the resource is the cluster.
        prefixed: Whether the name of the resource is a prefix of the names.
        host: IP address of the client; "*" is all.

    Raises:
        ConfigError: No resource is given, or more than one.
    """

    principal: str
    operation: OperationName
    permission: Literal["allow", "deny"] = "allow"
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    cluster: bool = False
    prefixed: bool = False
    host: str = WILDCARD

    def __post_init__(self) -> None:
        named = self._named
        if len(named) != 1:
            given = " and ".join(kind.name.lower() for kind in named) or "no resource"
            expected = "one of topic, group, transactional_id and cluster"
            raise ConfigError(f"{given}: expected {expected}", expected=expected)
        for kind, name in named.items():
            if not name:
                raise ConfigError.of(kind.name.lower(), name, "a name")

    @property
    def _named(self) -> dict[ResourceType, str]:
        found = {
            ResourceType.TOPIC: self.topic,
            ResourceType.GROUP: self.group,
            ResourceType.TRANSACTIONAL_ID: self.transactional_id,
            ResourceType.CLUSTER: CLUSTER_NAME if self.cluster else None,
        }
        return {kind: name for kind, name in found.items() if name is not None}

    @property
    def acl(self) -> Acl:
        """The ACL in Kafka's terms."""
        ((kind, name),) = self._named.items()
        return Acl(
            ResourcePattern(kind, name, PatternType.PREFIXED if self.prefixed else PatternType.LITERAL),
            self.principal if ":" in self.principal else f"User:{self.principal}",
            self.host,
            AclOperation[self.operation],
            AclPermission[self.permission.upper()],
        )


def new_acls(config: Config, acls: Iterable[Acl] | None) -> AclStore | None:
    """Return the authorizer of a new cluster; None if it has none.

    Args:
        config: The settings, by which there may be an authorizer.
        acls: Its first ACLs, with which there is one in any case; or None.

    Raises:
        ConfigError: `super.users` has a principal without type.
    """
    users = [each.strip() for each in (config.text(SUPER_USERS) or "").split(";")]
    users = [each for each in users if each]
    for each in users:
        if ":" not in each:
            raise ConfigError.of(SUPER_USERS, each, "a principal with its type, such as User:admin")
    if acls is None and not config.text(AUTHORIZER):
        return None
    return AclStore(acls or (), super_users=users, allows_without_acls=config.switch("allow.everyone.if.no.acl.found"))
