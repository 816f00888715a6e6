"""Sessions that end, and clients that authenticate again (KIP-368); OAUTHBEARER over sockets."""

import struct
from collections.abc import Iterator

import pytest

from fakebroker import FakeCluster
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from fakebroker.server.fake_cluster import internals
from tests.support.security.tokens import first_message, token
from tests.support.wire_client import WireClient

SESSION, ENABLED, DELAY = (
    "connections.max.reauth.ms",
    "sasl.enabled.mechanisms",
    "connection.failed.authentication.delay.ms",
)
ASK = MetadataRequest(topics=[])
USERS = {"alice": "one", "bob": "two"}

pytestmark = pytest.mark.fake_cluster(
    brokers=1,
    users=USERS,
    config={SESSION: 5_000, ENABLED: "PLAIN,SCRAM-SHA-256,OAUTHBEARER", DELAY: 0},
    clock="manual",
)


@pytest.fixture
def wire(fake_cluster: FakeCluster) -> Iterator[WireClient]:
    with WireClient(fake_cluster.brokers[0]) as client:
        yield client


def shake_hands(wire: WireClient, mechanism: str = "PLAIN", version: int = 1) -> int:
    return wire.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version).error_code


def send_token(wire: WireClient, data: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return wire.ask(SaslAuthenticateRequest(auth_bytes=data), SaslAuthenticateResponse, version)


def log_in(wire: WireClient, user: str = "alice") -> SaslAuthenticateResponse:
    assert not shake_hands(wire)
    return send_token(wire, f"\0{user}\0{USERS[user]}".encode())


def is_served(wire: WireClient) -> bool:
    return wire.ask(ASK, MetadataResponse).cluster_id is not None


def token_for(cluster: FakeCluster, name: str = "carol", lasts_s: float = 3) -> bytes:
    return first_message(token({"sub": name, "exp": internals(cluster).server.clock.now_ms() / 1000 + lasts_s}))


def test_a_request_after_the_session_closes_the_connection(wire: WireClient, fake_cluster: FakeCluster) -> None:
    assert log_in(wire).session_lifetime_ms == 5_000
    fake_cluster.advance(5)
    assert is_served(wire)
    fake_cluster.advance(0.001)
    wire.send(ASK)
    assert wire.is_closed_by_broker()


def test_a_client_authenticates_again_also_after_the_session(wire: WireClient, fake_cluster: FakeCluster) -> None:
    log_in(wire)
    for _ in range(3):
        fake_cluster.advance(6)
        assert log_in(wire).session_lifetime_ms == 5_000
        assert is_served(wire)
    assert {call.api.name for call in fake_cluster.journal.requests()} == {"Metadata"}


def test_a_client_authenticates_again_at_most_once_a_second(wire: WireClient, fake_cluster: FakeCluster) -> None:
    log_in(wire)
    assert not log_in(wire).error_code  # The first time, at any time.
    fake_cluster.advance(0.999)
    assert shake_hands(wire) == ErrorCode.ILLEGAL_SASL_STATE
    assert send_token(wire, b"\0alice\0one").error_code == ErrorCode.ILLEGAL_SASL_STATE
    fake_cluster.advance(0.001)
    assert not log_in(wire).error_code
    assert is_served(wire)


def test_another_principal_is_refused(wire: WireClient) -> None:
    log_in(wire)
    refused = log_in(wire, "bob")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "re-authentication" in (refused.error_message or "")
    assert wire.is_closed_by_broker()


def test_another_mechanism_fails_at_the_next_message(wire: WireClient) -> None:
    log_in(wire)
    assert not shake_hands(wire, "SCRAM-SHA-256")
    wire.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"))
    assert wire.is_closed_by_broker()


def test_an_unknown_mechanism_is_refused_again(wire: WireClient) -> None:
    log_in(wire)
    assert shake_hands(wire, "GSSAPI") == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert wire.is_closed_by_broker()


def test_a_failed_repetition_names_itself(wire: WireClient) -> None:
    shake_hands(wire, "OAUTHBEARER")
    assert not send_token(wire, first_message(token({"sub": "carol", "exp": 2**40}))).error_code
    assert not shake_hands(wire, "OAUTHBEARER")
    refused = send_token(wire, b"malformed")
    assert refused.error_message == (
        "Authentication failed during re-authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
    )


def test_a_request_between_the_tokens_of_a_repetition_is_refused(wire: WireClient) -> None:
    log_in(wire)
    shake_hands(wire)
    wire.ask(ASK, MetadataResponse)
    assert wire.is_closed_by_broker()


def test_clients_without_session_lifetimes_are_cut_off(wire: WireClient, fake_cluster: FakeCluster) -> None:
    shake_hands(wire)
    assert send_token(wire, b"\0alice\0one", 0).session_lifetime_ms == 0
    assert is_served(wire)
    fake_cluster.advance(6)
    wire.send(ASK)
    assert wire.is_closed_by_broker()


def test_raw_tokens_begin_a_session_too(wire: WireClient, fake_cluster: FakeCluster) -> None:
    shake_hands(wire, version=0)
    data = b"\0alice\0one"
    wire.socket.sendall(struct.pack(">i", len(data)) + data)
    assert wire.receive_frame() == b""
    fake_cluster.advance(6)
    wire.send(ASK)
    assert wire.is_closed_by_broker()


@pytest.mark.parametrize(("lasts_s", "lifetime_ms"), [(3, 3_000), (7, 5_000)])
def test_a_token_authenticates_until_it_or_the_session_ends(
    wire: WireClient, fake_cluster: FakeCluster, lasts_s: float, lifetime_ms: int
) -> None:
    assert not shake_hands(wire, "OAUTHBEARER")
    done = send_token(wire, token_for(fake_cluster, lasts_s=lasts_s))
    assert not done.error_code
    assert done.session_lifetime_ms == pytest.approx(lifetime_ms, abs=1)
    assert is_served(wire)
    assert fake_cluster.journal.requests()[0].principal == "User:carol"


@pytest.mark.fake_cluster(config={SESSION: 0})
def test_the_end_of_a_token_counts_without_the_setting(wire: WireClient, fake_cluster: FakeCluster) -> None:
    shake_hands(wire, "OAUTHBEARER")
    assert send_token(wire, token_for(fake_cluster)).session_lifetime_ms == pytest.approx(3_000, abs=1)
    fake_cluster.advance(3.1)
    wire.send(ASK)
    assert wire.is_closed_by_broker()


def test_an_expired_token_is_explained_and_refused(wire: WireClient, fake_cluster: FakeCluster) -> None:
    shake_hands(wire, "OAUTHBEARER")
    explained = send_token(wire, token_for(fake_cluster, lasts_s=-1))
    assert (explained.error_code, explained.auth_bytes) == (0, b'{"status":"invalid_token"}')
    refused = send_token(wire, b"\x01")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.error_message == '{"status":"invalid_token"}'
    assert wire.is_closed_by_broker()


@pytest.mark.parametrize("version", [0, 1])
def test_another_scheme_closes_the_connection(wire: WireClient, version: int) -> None:
    shake_hands(wire, "OAUTHBEARER", version)
    data = b"n,,\x01auth=Basic x\x01\x01"
    if version:
        wire.send(SaslAuthenticateRequest(auth_bytes=data))
    else:
        wire.socket.sendall(struct.pack(">i", len(data)) + data)
    assert wire.is_closed_by_broker()


@pytest.mark.fake_cluster(config={SESSION: 0, ENABLED: "PLAIN"})
def test_tokens_are_refused_unless_they_are_enabled(wire: WireClient) -> None:
    assert shake_hands(wire, "OAUTHBEARER") == ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.fake_cluster(config={"fakebroker.oauthbearer.required.scope": " LOGIN  READ"})
def test_a_token_without_a_required_scope_is_explained_and_refused(wire: WireClient) -> None:
    shake_hands(wire, "OAUTHBEARER")
    explained = send_token(wire, first_message(token({"sub": "carol", "exp": 2**40, "scope": ["LOGIN"]})))
    expected = '{"status":"insufficient_scope", "scope":"[LOGIN, READ]"}'
    assert (explained.error_code, explained.auth_bytes.decode()) == (0, expected)
    assert not send_token(
        wire, first_message(token({"sub": "carol", "exp": 2**40, "scope": ["READ", "LOGIN"]}))
    ).error_code
    assert is_served(wire)
    shake_hands(wire, "OAUTHBEARER")  # The rules are those of the first time.
    send_token(wire, first_message(token({"sub": "carol", "exp": 2**40})))
    assert send_token(wire, b"\x01").error_message == expected


@pytest.mark.fake_cluster(config={"fakebroker.oauthbearer.clock.skew.ms": 2_000})
def test_a_token_within_the_clock_skew_begins_a_session_that_has_ended(
    wire: WireClient, fake_cluster: FakeCluster
) -> None:
    shake_hands(wire, "OAUTHBEARER")
    done = send_token(wire, token_for(fake_cluster, lasts_s=-1))
    assert (done.error_code, done.session_lifetime_ms) == (0, 0)
    fake_cluster.advance(0.001)
    wire.send(ASK)
    assert wire.is_closed_by_broker()


def test_an_invalid_scope_is_no_setting() -> None:
    with pytest.raises(ConfigError, match=r"^fakebroker\.oauthbearer\.required\.scope='a\"b': expected scopes"):
        FakeCluster(config={"fakebroker.oauthbearer.required.scope": 'a"b'})


def test_delegation_tokens_are_unknown_users(wire: WireClient) -> None:
    """Brokers without `delegation.token.secret.key` have none (KIP-48)."""
    assert not shake_hands(wire, "SCRAM-SHA-256")
    refused = send_token(wire, b"n,,n=alice,r=abc,tokenauth=true")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert wire.is_closed_by_broker()
