"""ACLs, with and without an authorizer, and SCRAM users, with real admin clients."""

from typing import Any

import pytest
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType as PythonType
from kafka.errors import SecurityDisabledError

from fakebroker import FakeCluster
from fakebroker.server.fake_cluster import internals
from tests.support.kafka_clients.client import CALL_TIMEOUT_S, StartAdmin
from tests.support.kafka_clients.confluent_client import confluent_admin, outcomes
from tests.support.kafka_clients.kafka_python_client import python_admin

pytestmark = pytest.mark.slow

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def test_acls_are_disabled_for_confluent(start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    where = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:a", "*")
    acl = AclBinding(*where, AclOperation.READ, AclPermissionType.ALLOW)
    acl_filter = AclBindingFilter(*where, AclOperation.ANY, AclPermissionType.ANY)
    assert list(outcomes(admin.create_acls([acl])).values()) == ["SECURITY_DISABLED"]
    assert list(outcomes(admin.delete_acls([acl_filter])).values()) == ["SECURITY_DISABLED"]
    assert admin.describe_acls(acl_filter).result(CALL_TIMEOUT_S) == []  # librdkafka ignores the error.


def test_acls_are_disabled_for_kafka_python(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    what: dict[str, Any] = {
        "principal": "User:a",
        "host": "*",
        "operation": ACLOperation.READ,
        "permission_type": ACLPermissionType.ALLOW,
        "resource_pattern": ResourcePattern(PythonType.TOPIC, "orders"),
    }
    assert admin.create_acls([ACL(**what)]) == {"succeeded": [], "failed": [SecurityDisabledError]}
    ((_, matching, error),) = admin.delete_acls([ACLFilter(**what)])
    assert (matching, error) == ([], SecurityDisabledError)
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls(ACLFilter(**what))


with_acls = pytest.mark.fake_cluster(
    config={"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
)


@with_acls
def test_confluent_changes_acls(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    where = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:a", "*")
    acl = AclBinding(*where, AclOperation.READ, AclPermissionType.ALLOW)
    acl_filter = AclBindingFilter(*where, AclOperation.ANY, AclPermissionType.ANY)
    assert outcomes(admin.create_acls([acl])) == {acl: None}
    assert admin.describe_acls(acl_filter).result(CALL_TIMEOUT_S) == [acl]
    assert internals(fake_cluster).run(lambda: len(internals(fake_cluster).cluster.acls or ())) == 1
    assert [each.result(CALL_TIMEOUT_S) for each in admin.delete_acls([acl_filter]).values()] == [[acl]]
    assert admin.describe_acls(acl_filter).result(CALL_TIMEOUT_S) == []


@with_acls
def test_kafka_python_changes_acls(start_admin: StartAdmin) -> None:
    admin = python_admin(start_admin)
    what: dict[str, Any] = {
        "principal": "User:a",
        "host": "*",
        "operation": ACLOperation.READ,
        "permission_type": ACLPermissionType.ALLOW,
        "resource_pattern": ResourcePattern(PythonType.TOPIC, "orders"),
    }
    assert admin.create_acls([ACL(**what)]) == {"succeeded": [ACL(**what)], "failed": []}
    described, _ = admin.describe_acls(ACLFilter(**what))
    assert described == [ACL(**what)]
    ((_, matching, _),) = admin.delete_acls([ACLFilter(**what)])
    assert matching == [ACL(**what)]


@pytest.mark.fake_cluster(acls=[{"principal": "ANONYMOUS", "operation": "DESCRIBE", "cluster": True}])
def test_clients_that_may_only_describe_the_cluster_change_no_acls(start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    where = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:a", "*")
    acl = AclBinding(*where, AclOperation.READ, AclPermissionType.ALLOW)
    assert list(outcomes(admin.create_acls([acl])).values()) == ["CLUSTER_AUTHORIZATION_FAILED"]
    own = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    described = admin.describe_acls(AclBindingFilter(*own, AclOperation.ANY, AclPermissionType.ANY))
    assert described.result(CALL_TIMEOUT_S) == [AclBinding(*own, AclOperation.DESCRIBE, AclPermissionType.ALLOW)]


def test_confluent_stores_scram_users(fake_cluster: FakeCluster, start_admin: StartAdmin) -> None:
    admin = confluent_admin(start_admin)
    alice, bob = (
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), b"secret", b"salt")
        for user, mechanism in (("alice", SHA_256), ("bob", SHA_512))
    )
    assert outcomes(admin.alter_user_scram_credentials([alice, bob])) == {"alice": None, "bob": None}
    everybody: Any = admin.describe_user_scram_credentials()
    infos = {user: each.scram_credential_infos for user, each in everybody.result(CALL_TIMEOUT_S).items()}
    assert {user: [(each.mechanism, each.iterations) for each in found] for user, found in infos.items()} == {
        "alice": [(SHA_256, 4096)],
        "bob": [(SHA_512, 4096)],
    }
    gone = UserScramCredentialDeletion("alice", SHA_256)
    assert outcomes(admin.alter_user_scram_credentials([gone])) == {"alice": None}
    described: Any = admin.describe_user_scram_credentials(["alice"])
    assert outcomes(described) == {"alice": "RESOURCE_NOT_FOUND"}


def test_kafka_python_sees_the_users_of_confluent(start_admin: StartAdmin) -> None:
    upsertion = UserScramCredentialUpsertion("alice", ScramCredentialInfo(SHA_512, 8192), b"secret", b"salt")
    outcomes(confluent_admin(start_admin).alter_user_scram_credentials([upsertion]))
    assert python_admin(start_admin).describe_user_scram_credentials() == {
        "alice": {"error": None, "credential_infos": [{"mechanism": 2, "iterations": 8192}]}
    }
