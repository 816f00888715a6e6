"""The handle of ACLs: commands that change what clients may do."""

from typing import Annotated, Any, Literal

from fakebroker.cluster.acl_rules import ALLOW_EVERYTHING, AclRule, OperationName, new_acls
from fakebroker.cluster.configs.settings import AUTHORIZER
from fakebroker.cluster.handles.definition import Handle, command, holding
from fakebroker.errors import ConfigError


class AclsHandle(Handle):
    """The ACLs of a cluster: `cluster.acls`."""

    _kind = "acls"
    _path = "acls"

    @holding("remove", permission="allow")
    def allow(self, /, principal: str, operation: OperationName, **resource: Annotated[Any, AclRule]) -> None:
        """Allow something to a client: add an ACL, and remove the ACL that denies the same.

        The new ACLs apply from the client's next request on. Other ACLs that deny the same remain.

        Args:
            principal: Name of the user; see `AclRule`. Clients that do not authenticate are "ANONYMOUS".
            operation: What is allowed, such as "READ".
            resource: The resource, such as `group="g"`; see `AclRule`.

        Returns:
            A context manager that removes the ACL.

        Raises:
            ConfigError: The cluster has no authorizer, so that everything is allowed: it needs `acls`, which may be
                empty, or the setting `authorizer.class.name`. Or an argument is invalid.
        """
        local = self._local
        allowed = AclRule(principal=principal, operation=operation, **resource)
        denied = AclRule(principal=principal, operation=operation, permission="deny", **resource)

        def add() -> None:
            acls = local.cluster.acls
            if acls is None:
                raise ConfigError.of(AUTHORIZER, "", "an authorizer, because without one everything is allowed")
            acls.remove(denied.acl)
            acls.add(allowed.acl)

        local.change(add)

    @holding("remove", permission="deny")
    def deny(self, /, principal: str, operation: OperationName, **resource: Annotated[Any, AclRule]) -> None:
        """Deny something to a client: add an ACL, which has precedence over all that allow it.

        The next request of the client meets the new ACLs; requests that wait are not checked again. A cluster without
        authorizer gets one, with ACLs that allow everything else to everyone.

        Args:
            principal: Name of the user; see `AclRule`. Clients that do not authenticate are "ANONYMOUS".
            operation: What is denied, such as "READ".
            resource: The resource, such as `group="g"`; see `AclRule`.

        Returns:
            A context manager that removes the ACL at its end. `remove` and `allow` remove it, too.

        Raises:
            ConfigError: An argument is invalid.
        """
        local = self._local
        denied = AclRule(principal=principal, operation=operation, permission="deny", **resource)

        def add() -> None:
            if local.cluster.acls is None:
                local.cluster.acls = new_acls(local.cluster.config, ALLOW_EVERYTHING)
            assert local.cluster.acls is not None
            local.cluster.acls.add(denied.acl)

        local.change(add)

    @command
    def remove(
        self,
        /,
        principal: str,
        operation: OperationName,
        permission: Literal["allow", "deny"],
        **resource: Annotated[Any, AclRule],
    ) -> None:
        """Remove an ACL that `allow`, `deny` or a client has added, or that was given as one of `acls`.

        Args:
            principal: Name of the user; see `AclRule`.
            operation: The operation of the ACL.
            permission: Whether it allows or denies.
            resource: The resource of the ACL; see `AclRule`.

        Raises:
            ConfigError: There is no such ACL, or an argument is invalid.
        """
        local = self._local
        rule = AclRule(principal=principal, operation=operation, permission=permission, **resource)

        def remove() -> None:
            if rule.acl not in (local.cluster.acls or ()):
                count = len(local.cluster.acls or ())
                raise ConfigError.of("principal", principal, f"an ACL that exists: none of the {count} is equal")
            assert local.cluster.acls is not None
            local.cluster.acls.remove(rule.acl)

        local.run(remove)  # even if the disk is full, as at the end of a `with`
