"""ACLs, and the decision whether they allow an operation on a resource.

Follows Kafka's `StandardAuthorizer` and `StandardAuthorizerData`. Codes are from `AclOperation`,
`AclPermissionType`, `ResourceType` and `PatternType`, in which unknown codes are UNKNOWN.
"""

from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
"""The name of all resources, in a literal pattern; also all hosts."""

WILDCARD_PRINCIPAL = "User:*"
ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that is not authenticated (KafkaPrincipal.ANONYMOUS)."""

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER (Resource.CLUSTER_NAME)."""

_ANY_NAME = "hardcode"
"""The name for which `AclStore.allows_any` asks first, as in Kafka, so that super users are allowed."""


class _Code(IntEnum):
    """A code in requests. Codes that Kafka does not know are UNKNOWN, which is 0."""

    @classmethod
    def _missing_(cls, value: object) -> "_Code":
        return cls(0)


class AclOperation(_Code):
    """What is done with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Code):
    """The effect of an ACL (Kafka's AclPermissionType)."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourceType(_Code):
    """The type of a resource with ACLs."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """How the name of a pattern is compared. ANY and MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


_IMPLYING_DESCRIBE = frozenset(
    {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
)
_IMPLYING_DESCRIBE_CONFIGS = frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS})


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class Acl(NamedTuple):
    """One access control entry and its resources (Kafka's AclBinding).

    Attributes:
        pattern: The resources.
        principal: Type and name, such as "User:alice"; "User:*" is everyone.
        host: The IP address of the client; "*" is all.
        operation: The operation; ALL is all.
        permission: ALLOW or DENY.
    """

    pattern: ResourcePattern
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def concerns(self, principal: str, host: str) -> bool:
        """Return whether the ACL is about a client."""
        return self.principal in (principal, WILDCARD_PRINCIPAL) and self.host in (host, WILDCARD)

    def covers(self, operation: AclOperation) -> bool:
        """Return whether the ACL is about an operation. Only permissions imply others, denials do not."""
        if self.operation in (operation, AclOperation.ALL):
            return True
        if self.permission is AclPermission.DENY:
            return False
        if operation is AclOperation.DESCRIBE:
            return self.operation in _IMPLYING_DESCRIBE
        return operation is AclOperation.DESCRIBE_CONFIGS and self.operation in _IMPLYING_DESCRIBE_CONFIGS


class AclFilter(NamedTuple):
    """Which ACLs to describe or delete (Kafka's AclBindingFilter). None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether it has a code that Kafka does not know, so that it matches no ACL."""
        codes = (self.resource_type, self.pattern_type, self.operation, self.permission)
        return 0 in codes

    def matches(self, acl: Acl) -> bool:
        """Return whether an ACL matches the filter."""
        return (
            self.resource_type in (acl.pattern.resource_type, ResourceType.ANY)
            and self._matches_name(acl.pattern)
            and self.principal in (acl.principal, None)
            and self.host in (acl.host, None)
            and self.operation in (acl.operation, AclOperation.ANY)
            and self.permission in (acl.permission, AclPermission.ANY)
        )

    def _matches_name(self, pattern: ResourcePattern) -> bool:
        if self.pattern_type is not PatternType.MATCH:
            return self.pattern_type in (pattern.pattern_type, PatternType.ANY) and self.name in (pattern.name, None)
        if self.name is None:
            return True
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)


class AclStore:
    """The ACLs of a cluster, in the order in which they were added, and their decisions.

    Args:
        acls: The first ACLs.
        super_users: Principals that may do everything.
        allows_without_acls: Whether operations on resources without any ACL are allowed
            (`allow.everyone.if.no.acl.found`).
    """

    def __init__(
        self, acls: Iterable[Acl] = (), *, super_users: Collection[str] = (), allows_without_acls: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allows_without_acls = allows_without_acls
        self._acls: dict[Acl, None] = {}
        self._by_pattern: dict[ResourcePattern, dict[Acl, None]] = {}
        # The lengths of prefixes that were ever added: few, so that a decision looks up few names.
        self._prefix_lengths: dict[ResourceType, set[int]] = {}
        for acl in acls:
            self.add(acl)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._acls)

    def __len__(self) -> int:
        return len(self._acls)

    def copy(self) -> "AclStore":
        """Return an independent copy."""
        return AclStore(self._acls, super_users=self._super_users, allows_without_acls=self._allows_without_acls)

    def add(self, acl: Acl) -> None:
        """Add an ACL, unless it is there already."""
        self._acls[acl] = None
        self._by_pattern.setdefault(acl.pattern, {})[acl] = None
        if acl.pattern.pattern_type is PatternType.PREFIXED:
            self._prefix_lengths.setdefault(acl.pattern.resource_type, set()).add(len(acl.pattern.name))

    def remove(self, acl: Acl) -> None:
        """Remove an ACL. No effect if it is not there."""
        if acl in self._acls:
            del self._acls[acl]
            del self._by_pattern[acl.pattern][acl]
            if not self._by_pattern[acl.pattern]:
                del self._by_pattern[acl.pattern]

    def matching(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that match a filter."""
        return [acl for acl in self._acls if wanted.matches(acl)]

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether a client may do something with a resource.

        A super user may; otherwise not, if an ACL denies it; otherwise if an ACL allows it, or if no ACL of anybody is
        about the resource and `allow.everyone.if.no.acl.found` is true.

        Args:
            principal: Type and name of the client's principal, such as "User:alice".
            host: The client's IP address.
            operation: The operation.
            resource_type: The type of the resource.
            name: The name of the resource.
        """
        if principal in self._super_users:
            return True
        allowed, has_acls = False, False
        for acl in self._about(resource_type, name):
            has_acls = True
            if acl.concerns(principal, host) and acl.covers(operation):
                if acl.permission is AclPermission.DENY:
                    return False
                allowed = True
        return allowed if has_acls else self._allows_without_acls

    def _about(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        """Iterate over the ACLs whose patterns contain a resource."""
        yield from self._by_pattern.get(ResourcePattern(resource_type, name), ())
        if name != WILDCARD:
            yield from self._by_pattern.get(ResourcePattern(resource_type, WILDCARD), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                prefix = ResourcePattern(resource_type, name[:length], PatternType.PREFIXED)
                yield from self._by_pattern.get(prefix, ())

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether a client may do something with at least one resource of a type (KIP-679).

        It may if an ACL allows the operation, and no denial has the same name or a prefix of it. Permissions that imply
        the operation do not count. Source: Authorizer.authorizeByResourceType.

        Args:
            principal: Type and name of the client's principal.
            host: The client's IP address.
            operation: The operation.
            resource_type: The type of the resource.
        """
        if self.allows(principal, host, operation, resource_type, _ANY_NAME):
            return True
        acls = [
            acl
            for acl in self._acls
            if acl.pattern.resource_type is resource_type
            and acl.concerns(principal, host)
            and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = {acl.pattern for acl in acls if acl.permission is AclPermission.DENY}
        if ResourcePattern(resource_type, WILDCARD) in denied:
            return False
        return any(not _is_hidden(acl.pattern, denied) for acl in acls if acl.permission is AclPermission.ALLOW)


def _is_hidden(pattern: ResourcePattern, denied: Collection[ResourcePattern]) -> bool:
    """Return whether all resources of a pattern are denied: by the same pattern, or by a prefix of its name."""
    if pattern in denied:
        return True
    name = pattern.name
    if pattern == ResourcePattern(pattern.resource_type, WILDCARD):
        return False
    return any(
        pattern._replace(name=name[:length], pattern_type=PatternType.PREFIXED) in denied
        for length in range(1, len(name) + 1)
    )
