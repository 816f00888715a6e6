"""Mutual TLS: the principals of clients with certificates, their permissions, and certificates that are refused."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from fakebroker import FakeCluster
from fakebroker.errors import ConfigError, ErrorCode, FakebrokerError
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from fakebroker.server.fake_cluster import internals
from tests.support.security.certificates import (
    EXPIRED,
    LONG_AGO,
    client_context,
    context_of,
    other_authority,
    saved,
)
from tests.support.wire_client import WireClient, until

VERSIONS = ApiVersionsRequest(client_software_name="t", client_software_version="1")
Factory = Callable[..., FakeCluster]

pytestmark = pytest.mark.fake_cluster(
    brokers=1, topics={"orders": 1}, tls=True, config={"ssl.client.auth": "required"}, seed=1
)


def principal_of(cluster: FakeCluster, context: ssl.SSLContext) -> str:
    """Return the principal of a client."""
    with WireClient(cluster.brokers[0], tls=context) as wire:
        wire.ask(VERSIONS, ApiVersionsResponse)
    return cluster.journal.requests()[-1].principal


def is_refused(cluster: FakeCluster, context: ssl.SSLContext) -> bool:
    """Return whether a connection ends before a request is answered."""
    try:
        with WireClient(cluster.brokers[0], tls=context) as wire:
            wire.send(VERSIONS)  # With TLS 1.3, a client learns of a refusal when it reads.
            return wire.is_closed_by_broker()
    except (ssl.SSLError, ConnectionError):
        return True


def await_log(cluster: FakeCluster, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait until a message is logged: clients receive alerts of TLS before."""
    until(lambda: text in caplog.text, cluster)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
def test_the_name_of_a_client_is_the_subject_of_its_certificate(
    fake_cluster: FakeCluster, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    assert principal_of(fake_cluster, context_of(fake_cluster, "alice", version)) == "User:CN=alice"
    assert principal_of(fake_cluster, context_of(fake_cluster, "a, b", version)) == r"User:CN=a\, b"
    assert not caplog.records
    assert is_refused(fake_cluster, context_of(fake_cluster, None, version))
    until(lambda: bool(caplog.records), fake_cluster)
    (record,) = caplog.records
    assert record.getMessage().endswith("the client has no certificate, expected one (ssl.client.auth=required)")


@pytest.mark.fake_cluster(config={"ssl.client.auth": "requested"})
def test_a_client_without_the_requested_certificate_is_anonymous(fake_cluster: FakeCluster) -> None:
    assert principal_of(fake_cluster, context_of(fake_cluster)) == "User:ANONYMOUS"
    assert principal_of(fake_cluster, context_of(fake_cluster, "alice")) == "User:CN=alice"


@pytest.mark.fake_cluster(config={"ssl.client.auth": "none"})
def test_certificates_that_are_not_asked_for_do_not_count(fake_cluster: FakeCluster) -> None:
    assert principal_of(fake_cluster, context_of(fake_cluster, "alice")) == "User:ANONYMOUS"


@pytest.mark.fake_cluster(acls=[{"principal": "User:CN=alice", "operation": "DESCRIBE", "topic": "orders"}])
def test_permissions_of_clients_with_certificates(fake_cluster: FakeCluster) -> None:
    for name, topics in (("alice", ["orders"]), ("bob", [])):
        with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster, name)) as wire:
            found = wire.ask(MetadataRequest(topics=None), MetadataResponse).topics
            assert [topic.name for topic in found] == topics


@pytest.mark.fake_cluster(config={"ssl.principal.mapping.rules": "RULE:^CN=(a.*)$/$1/U,RULE:^CN=(b.*)$/b/"})
def test_rules_map_subjects_to_names(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    assert principal_of(fake_cluster, context_of(fake_cluster, "alice")) == "User:ALICE"
    assert principal_of(fake_cluster, context_of(fake_cluster, "bob")) == "User:b"
    assert is_refused(fake_cluster, context_of(fake_cluster, "carol"))
    await_log(
        fake_cluster,
        caplog,
        "no rule of ssl.principal.mapping.rules matches the subject of the certificate, 'CN=carol'",
    )


@pytest.mark.parametrize("config", [{"ssl.client.auth": "required"}, {"ssl.client.auth": "requested"}], ids=str)
def test_a_certificate_of_another_authority_is_refused(
    fake_cluster_factory: Factory, config: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = fake_cluster_factory(1, tls=True, config=config)
    stranger = saved(other_authority().issue_cert(common_name="alice"), tmp_path)
    assert is_refused(cluster, client_context(cluster.tls.ca_file, stranger))
    await_log(cluster, caplog, "the certificate of the client is not valid: unable to get local issuer certificate")


def test_expired_certificates_are_refused(
    fake_cluster_factory: Factory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both that of a client, and that of the brokers."""
    authority, own = other_authority(), tmp_path / "own.pem"
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    expired = authority.issue_cert("127.0.0.1", common_name="alice", not_before=LONG_AGO, not_after=EXPIRED)
    config = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.client.auth": "required",
    }
    of_client = saved(expired, tmp_path)
    own.write_bytes(authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    cluster = fake_cluster_factory(1, tls=True, config={**config, "ssl.keystore.location": str(own)})
    assert is_refused(cluster, client_context(str(tmp_path / "ca.pem"), of_client))
    await_log(cluster, caplog, "the certificate of the client is not valid: certificate has expired")
    with pytest.raises(FakebrokerError, match="no certificates were made"):
        _ = cluster.tls
    own.write_bytes(expired.private_key_and_cert_chain_pem.bytes())
    second = fake_cluster_factory(1, tls=True, config={**config, "ssl.keystore.location": str(own)})
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        WireClient(second.brokers[0], tls=client_context(str(tmp_path / "ca.pem")))


@pytest.mark.parametrize("host", ["bücher.example", "my_host", "fe80::1%eth0", "::1", "0.0.0.0"])
def test_certificates_of_brokers_name_their_hosts(host: str) -> None:
    cluster = FakeCluster(1, tls=True, advertised_host=host)
    (pem,) = x509.load_pem_x509_certificates(Path(cluster.tls.broker_file).read_bytes())
    names = pem.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    texts = [str(each.value) for each in names]
    assert texts[0] == host.partition("%")[0].encode("idna").decode()
    assert set(texts) >= {"localhost", "127.0.0.1", "::1"}


def test_a_host_that_cannot_be_in_a_certificate_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^advertised_host="):
        FakeCluster(1, tls=True, advertised_host="ü" * 70)


def test_names_of_certificates_are_checked(fake_cluster: FakeCluster) -> None:
    assert fake_cluster.tls.client_certificate("alice") == fake_cluster.tls.client_certificate("alice")
    for name in ("", "x" * 65, "a\nb"):
        with pytest.raises(ConfigError, match=r"^name="):
            fake_cluster.tls.client_certificate(name)


def test_files_are_deleted_when_the_cluster_stops() -> None:
    with FakeCluster(1, tls=True) as cluster:
        ca_file, authority = Path(cluster.tls.ca_file), cluster.tls
        assert ca_file.parent.stat().st_mode & 0o777 == 0o700
    assert not ca_file.parent.exists()
    with pytest.raises(FakebrokerError, match="have been deleted"):
        authority.client_certificate("alice")


# With SASL

SASL = pytest.mark.fake_cluster(users={"bob": "secret"})


def log_in(wire: WireClient) -> int:
    wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    return wire.ask(SaslAuthenticateRequest(auth_bytes=b"\0bob\0secret"), SaslAuthenticateResponse).error_code


@SASL
def test_sasl_sets_the_principal_and_only_the_setting_of_the_listener_asks_for_certificates(
    fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The setting `ssl.client.auth` without prefix does not count at SASL_SSL listeners, of which users are warned."""
    assert internals(fake_cluster).cluster.listeners[0].protocol == "SASL_SSL"
    warnings = [each.getMessage() for each in caplog.get_records("setup")]
    expected = "ssl.client.auth=required does not apply to SASL_SSL, expected listener.name.sasl_ssl.ssl.client.auth"
    assert expected in warnings
    with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster)) as wire:
        assert not log_in(wire)
        wire.ask(MetadataRequest(topics=[]), MetadataResponse)
    assert [call.principal for call in fake_cluster.journal.requests()] == ["User:bob"]


@SASL
@pytest.mark.fake_cluster(
    config={"listener.name.sasl_ssl.ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:nobody/x/"}
)
def test_a_sasl_listener_can_require_certificates(fake_cluster: FakeCluster) -> None:
    """Rules for subjects do not count: the principal is that of SASL."""
    assert is_refused(fake_cluster, context_of(fake_cluster))
    with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster, "alice")) as wire:
        assert not log_in(wire)
        wire.ask(MetadataRequest(topics=[]), MetadataResponse)
    assert [call.principal for call in fake_cluster.journal.requests()] == ["User:bob"]


# Delegation tokens


@pytest.mark.fake_cluster(
    config={"ssl.client.auth": "requested"},
    acls=[{"principal": "User:CN=alice", "operation": "CREATE", "topic": "orders"}],
)
def test_delegation_tokens_are_disabled_for_known_clients(fake_cluster: FakeCluster) -> None:
    """As in Kafka without `delegation.token.secret.key`; without a certificate, they are not allowed."""
    own = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    of_other = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="bob", renewers=[], max_lifetime_ms=-1
    )
    renewer = CreatableRenewers(principal_type="Group", principal_name="x")
    of_group = CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1)
    disabled, not_allowed = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    refused = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    for name, errors in (
        ("alice", [disabled, refused, ErrorCode.INVALID_PRINCIPAL_TYPE]),
        (None, [not_allowed] * 3),
    ):
        with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster, name)) as wire:
            answers = [wire.ask(each, CreateDelegationTokenResponse) for each in (own, of_other, of_group)]
            renewal = wire.ask(RenewDelegationTokenRequest(hmac=b"", renew_period_ms=1), RenewDelegationTokenResponse)
        assert [answer.error_code for answer in answers] == errors
        assert (answers[0].principal_name, answers[1].principal_name) == (f"CN={name}" if name else "ANONYMOUS", "bob")
        assert (renewal.error_code, renewal.expiry_timestamp_ms) == ((disabled, 0) if name else (not_allowed, -1))
