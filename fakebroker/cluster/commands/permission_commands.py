"""Commands that change ACLs."""

from typing import Literal, Unpack

from fakebroker.cluster.acl_rules import ALLOW_EVERYTHING, AclOptions, AclRule, OperationName, new_acls
from fakebroker.cluster.commands.base import CommandsBase
from fakebroker.cluster.commands.definition import (
    command,
)
from fakebroker.cluster.commands.handles import Hold
from fakebroker.cluster.configs.settings import AUTHORIZER
from fakebroker.errors import ConfigError


class PermissionCommands(CommandsBase):
    """Commands for ACLs."""

    @command
    def allow(self, principal: str, operation: OperationName, **resource: Unpack[AclOptions]) -> Hold:
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
        allowed = AclRule(principal=principal, operation=operation, **resource)
        denied = AclRule(principal=principal, operation=operation, permission="deny", **resource)

        def add() -> None:
            acls = self._cluster.acls
            if acls is None:
                raise ConfigError.of(AUTHORIZER, "", "an authorizer, because without one everything is allowed")
            acls.remove(denied.acl)
            acls.add(allowed.acl)

        self._change(add)
        return Hold(lambda: self._run(lambda: self._remove_acl(allowed)))

    @command
    def deny(self, principal: str, operation: OperationName, **resource: Unpack[AclOptions]) -> Hold:
        """Deny something to a client: add an ACL, which has precedence over all that allow it.

        The next request of the client meets the new ACLs; requests that wait are not checked again. A cluster without
        authorizer gets one, with ACLs that allow everything else to everyone.

        Args:
            principal: Name of the user; see `AclRule`. Clients that do not authenticate are "ANONYMOUS".
            operation: What is denied, such as "READ".
            resource: The resource, such as `group="g"`; see `AclRule`.

        Returns:
            A context manager that removes the ACL at its end. `remove_acl` and `allow` remove it, too.

        Raises:
            ConfigError: An argument is invalid.
        """
        denied = AclRule(principal=principal, operation=operation, permission="deny", **resource)

        def add() -> None:
            if self._cluster.acls is None:
                self._cluster.acls = new_acls(self._cluster.config, ALLOW_EVERYTHING)
            assert self._cluster.acls is not None
            self._cluster.acls.add(denied.acl)

        self._change(add)
        return Hold(lambda: self._run(lambda: self._remove_acl(denied)))

    @command
    def remove_acl(
        self,
        principal: str,
        operation: OperationName,
        permission: Literal["allow", "deny"],
        **resource: Unpack[AclOptions],
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
        rule = AclRule(principal=principal, operation=operation, permission=permission, **resource)

        def remove() -> None:
            if rule.acl not in (self._cluster.acls or ()):
                count = len(self._cluster.acls or ())
                raise ConfigError.of("principal", principal, f"an ACL that exists: none of the {count} is equal")
            self._remove_acl(rule)

        self._change(remove)

    def _remove_acl(self, rule: AclRule) -> None:
        if self._cluster.acls is not None:
            self._cluster.acls.remove(rule.acl)
