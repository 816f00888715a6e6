"""ACLs, delegation tokens, SASL and SCRAM users, as on a plaintext listener of Kafka without an authorizer."""

from typing import Any

import pytest

from fakebroker.cluster import snapshot
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fakebroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fakebroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from fakebroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from fakebroker.protocol.messages.describe_acls import DescribeAclsRequest
from fakebroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from fakebroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from fakebroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from fakebroker.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fakebroker.protocol.registry import api_of
from fakebroker.protocol.schema import Message, replaced
from fakebroker.security.acls import AclOperation, ResourceType
from tests.support.cluster.cluster_harness import ClusterHarness, versions

SHA_256, SHA_512 = 1, 2
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
ACL = AclCreation(resource_type=2, resource_name="orders", principal="User:a", host="*", operation=3, permission_type=3)
FILTER = DeleteAclsFilter(
    resource_type_filter=2, resource_name_filter=None, principal_filter=None, host_filter=None, operation=1,
    permission_type=1,
)  # fmt: skip


# Without security


def test_acls_are_disabled(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    for version in versions("DescribeAcls"):
        with subtests.test(version=version):
            described = harness.ask(
                DescribeAclsRequest(
                    resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None,
                    operation=1, permission_type=1,
                ),
                version,
            )  # fmt: skip
            created = harness.ask(CreateAclsRequest(creations=[ACL, ACL]), version)
            deleted = harness.ask(DeleteAclsRequest(filters=[FILTER]), version)

            assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
            assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
            assert [each.error_code for each in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
            messages = {described.error_message, created.results[0].error_message}
            assert messages == {"no authorizer is configured: expected the setting authorizer.class.name"}


# With an authorizer


def with_authorizer() -> ClusterHarness:
    open_to_all = {"allow.everyone.if.no.acl.found": True}
    return ClusterHarness(config={"authorizer.class.name": "StandardAuthorizer", **open_to_all})


def create(harness: ClusterHarness, *acls: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
    results = harness.ask(CreateAclsRequest(creations=list(acls)), version).results
    return [(each.error_code, each.error_message) for each in results]


def described(harness: ClusterHarness, version: int = 3, **wanted: Any) -> list[tuple[str, int, list[str]]]:
    """Return name, type of pattern and principals of the resources with ACLs."""
    fields = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    codes = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    found = harness.ask(DescribeAclsRequest(**{**fields, **codes, **wanted}), version)
    assert found.error_code == ErrorCode.NONE
    return [(each.resource_name, each.pattern_type, [acl.principal for acl in each.acls]) for each in found.resources]


def test_acls_are_created_described_by_resource_and_deleted() -> None:
    harness = with_authorizer()
    of_b, prefixed = replaced(ACL, principal="User:b"), replaced(ACL, resource_pattern_type=4, resource_name="or")
    assert create(harness, ACL, of_b, prefixed, ACL) == [(0, None)] * 4
    assert described(harness) == [("orders", 3, ["User:a", "User:b"]), ("or", 4, ["User:a"])]
    assert described(harness, resource_name_filter="orders", pattern_type_filter=2) == described(harness)
    assert described(harness, principal_filter="User:b") == [("orders", 3, ["User:b"])]
    filters = [replaced(FILTER, principal_filter="User:b"), FILTER, replaced(FILTER, principal_filter="User:c")]
    deleted = harness.ask(DeleteAclsRequest(filters=filters), 3).filter_results
    names = [[(acl.resource_name, acl.principal) for acl in each.matching_acls] for each in deleted]
    assert names == [[("orders", "User:b")], [("orders", "User:a"), ("orders", "User:b")], []]
    assert {each.error_code for each in deleted} == {ErrorCode.NONE}
    assert described(harness) == [("or", 4, ["User:a"])]


def test_version_0_knows_literal_patterns_only() -> None:
    harness = with_authorizer()
    create(harness, ACL, replaced(ACL, resource_pattern_type=4, resource_name="or"), version=1)
    assert described(harness, version=0, pattern_type_filter=3) == [("orders", 3, ["User:a"])]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 1}, "Invalid patternType ANY"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"principal": "a"}, "principal='a': expected a type, a colon and a name, such as User:alice"),
    ],
)
def test_invalid_acls_are_refused_beside_valid_ones(changes: dict[str, Any], message: str) -> None:
    harness = with_authorizer()
    assert create(harness, replaced(ACL, **changes), ACL) == [(ErrorCode.INVALID_REQUEST, message), (0, None)]
    assert described(harness) == [("orders", 3, ["User:a"])]


def test_a_filter_with_an_unknown_code_is_refused_and_zero_closes_the_connection() -> None:
    harness = with_authorizer()
    create(harness, ACL)
    refused = harness.ask(DeleteAclsRequest(filters=[replaced(FILTER, operation=99), FILTER]), 3).filter_results
    assert [each.error_code for each in refused] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    requests: list[Message] = [
        CreateAclsRequest(creations=[replaced(ACL, operation=0)]),
        DeleteAclsRequest(filters=[replaced(FILTER, permission_type=0)]),
        DescribeAclsRequest(
            resource_type_filter=0, resource_name_filter=None, principal_filter=None, host_filter=None,
            operation=1, permission_type=1,
        ),
    ]  # fmt: skip
    for request in requests:
        call = harness.send(request, 3)
        assert (call.closes_connection, call.response) == (True, None)


def test_acls_are_part_of_snapshots_and_end_with_a_reset() -> None:
    harness = with_authorizer()
    create(harness, ACL)
    kept = snapshot.take(harness.cluster)
    create(harness, replaced(ACL, principal="User:b"))
    snapshot.restore(harness.cluster, kept, harness.now_ms)
    assert described(harness) == [("orders", 3, ["User:a"])]
    create(harness, replaced(ACL, principal="User:c"))
    snapshot.restore(harness.cluster, kept, harness.now_ms)
    assert described(harness) == [("orders", 3, ["User:a"])]
    snapshot.start_over(harness.cluster, with_authorizer().cluster, harness.now_ms)
    assert described(harness) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"super.users": "User:a;b"}, "super.users='b': expected a principal with its type, such as User:admin"),
        ({"authorizer.class.name": "x"}, "authorizer.class.name='x': expected empty, or StandardAuthorizer, .*"),
    ],
)
def test_invalid_settings(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClusterHarness(config=config)


def test_authorizers_have_several_names() -> None:
    for name in ("StandardAuthorizer", "kafka.security.authorizer.AclAuthorizer"):
        cluster = ClusterHarness(config={"authorizer.class.name": name, "super.users": " User:a ; User:b;"}).cluster
        assert cluster.acls is not None
        assert cluster.acls.allows("User:b", "h", AclOperation.READ, ResourceType.TOPIC, "x")
    assert ClusterHarness(config={"authorizer.class.name": ""}).cluster.acls is None


# Delegation tokens and SASL


def test_requests_for_tokens_are_not_allowed_on_a_plaintext_listener(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    requests: list[Message] = [
        CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
        RenewDelegationTokenRequest(hmac=b"h", renew_period_ms=1),
        ExpireDelegationTokenRequest(hmac=b"h", expiry_time_period_ms=1),
        DescribeDelegationTokenRequest(owners=None),
    ]
    for request in requests:
        for version in versions(api_of(request).name):
            with subtests.test(api=api_of(request).name, version=version):
                assert harness.ask(request, version).error_code == NOT_ALLOWED


def test_a_refused_token_names_its_owner_and_requester(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    own = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    of_other = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="alice", renewers=[], max_lifetime_ms=-1
    )
    for request, version, owner, requester in ((own, 2, "ANONYMOUS", ""), (of_other, 3, "alice", "ANONYMOUS")):
        with subtests.test(version=version):
            response = harness.ask(request, version)
            assert (response.principal_type, response.principal_name) == ("User", owner)
            assert response.token_requester_principal_name == requester
            times = (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms)
            assert (times, response.token_id, response.hmac) == ((-1, -1, -1), "", b"")


def test_sasl_is_refused_on_a_plaintext_listener(subtests: pytest.Subtests) -> None:
    harness = ClusterHarness()
    for request in (SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=b"\0a\0b")):
        for version in versions(api_of(request).name):
            with subtests.test(api=api_of(request).name, version=version):
                assert harness.ask(request, version).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_mechanisms_are_listed_before_kafka_1_1() -> None:
    for release, mechanisms in (("0.10.0", ["GSSAPI"]), ("1.0", ["GSSAPI"]), ("1.1", []), ("4.2", [])):
        harness = ClusterHarness(as_version=release)
        response = harness.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, mechanisms), release


# SCRAM users, which need no set-up in Kafka either


def upsert(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"secret"
    )


def alter(
    harness: ClusterHarness, *upsertions: ScramCredentialUpsertion, delete: tuple[tuple[str, int], ...] = ()
) -> dict[str, ErrorCode]:
    deletions = [ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in delete]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions))
    return {each.user: ErrorCode(each.error_code) for each in harness.ask(request, 0).results}


def describe(harness: ClusterHarness, *users: str) -> dict[str, object]:
    """Return the iterations by mechanism, or the error, of each user."""
    named = [UserName(name=user) for user in users]
    response = harness.ask(DescribeUserScramCredentialsRequest(users=named), 0)
    assert response.error_code == ErrorCode.NONE
    return {
        each.user: ErrorCode(each.error_code).name
        if each.error_code
        else {info.mechanism: info.iterations for info in each.credential_infos}
        for each in response.results
    }


def test_credentials_are_stored_described_and_deleted() -> None:
    harness = ClusterHarness()
    assert alter(harness, upsert("alice"), upsert("bob", SHA_512, 16384)) == {"alice": 0, "bob": 0}
    assert alter(harness, upsert("alice", SHA_512, 8192)) == {"alice": 0}
    assert describe(harness) == {"alice": {SHA_256: 4096, SHA_512: 8192}, "bob": {SHA_512: 16384}}
    assert alter(harness, delete=(("alice", SHA_256), ("bob", SHA_512))) == {"alice": 0, "bob": 0}
    assert describe(harness, "alice", "bob") == {"alice": {SHA_512: 8192}, "bob": "RESOURCE_NOT_FOUND"}
    response = harness.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert [each.user for each in response.results] == ["alice"]


def test_a_user_described_twice_is_an_error() -> None:
    harness = ClusterHarness()
    alter(harness, upsert("alice"))
    assert describe(harness, "alice", "alice", "bob") == {"alice": "DUPLICATE_RESOURCE", "bob": "RESOURCE_NOT_FOUND"}


def test_invalid_changes_leave_the_others_valid(subtests: pytest.Subtests) -> None:
    for change, error in (
        (upsert(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert("x", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert("x", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert("x", SHA_256, 4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert("x", SHA_512, 16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ):
        with subtests.test(change=change):
            harness = ClusterHarness()
            assert alter(harness, change, upsert("alice")) == {"alice": ErrorCode.NONE, change.name: error}
            assert describe(harness) == {"alice": {SHA_256: 4096}}
    harness = ClusterHarness()
    assert alter(harness, delete=(("alice", SHA_256),)) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}


def test_a_user_is_changed_once_per_request() -> None:
    harness = ClusterHarness()
    alter(harness, upsert("alice"))
    twice = {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert alter(harness, upsert("alice", SHA_512), delete=(("alice", SHA_256),)) == twice
    assert alter(harness, upsert("alice", SHA_512), upsert("alice", SHA_256)) == twice
    assert describe(harness) == {"alice": {SHA_256: 4096}}


def test_a_snapshot_has_the_credentials() -> None:
    harness = ClusterHarness()
    alter(harness, upsert("alice"))
    taken = snapshot.take(harness.cluster)
    alter(harness, upsert("bob"), delete=(("alice", SHA_256),))
    snapshot.restore(harness.cluster, taken, harness.now_ms)
    assert describe(harness) == {"alice": {SHA_256: 4096}}
