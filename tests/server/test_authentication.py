"""SASL over sockets: each state of a connection, listeners, credentials that change, and secrets that stay secret."""

import io
import json
import logging
import struct
from collections.abc import Iterator
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest
import trio

from fakebroker import FakeCluster, WaitTimeout, predicate
from fakebroker.errors import ConfigError, ErrorCode
from fakebroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from fakebroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from fakebroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from fakebroker.protocol.messages.heartbeat import HeartbeatResponse
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fakebroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from fakebroker.security.credentials import Credentials
from fakebroker.security.mechanisms import ScramMechanism
from fakebroker.server.connections.connection import Blocked
from fakebroker.server.fake_cluster import internals
from tests.support.group_requests import heartbeat_request
from tests.support.security.scram_client import client_final
from tests.support.wire_client import WireClient, find_coordinator, until

PASSWORD = "horse-battery-staple"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
DELAY = "connection.failed.authentication.delay.ms"
LONG_DELAY = {DELAY: 3_600_000, "connections.max.idle.ms": -1}
VERSIONS = ApiVersionsRequest(client_software_name="t", client_software_version="1")
HELLO = SaslHandshakeRequest(mechanism="PLAIN")
SIZE = struct.Struct(">i")

pytestmark = pytest.mark.fake_cluster(brokers=1, users={"alice": PASSWORD}, config={DELAY: 0}, seed=1)


@pytest.fixture
def wire(fake_cluster: FakeCluster) -> Iterator[WireClient]:
    with WireClient(fake_cluster.brokers[0]) as client:
        yield client


def plain(user: str = "alice", password: str = PASSWORD, authorization_id: str = "") -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=f"{authorization_id}\0{user}\0{password}".encode())


def log_in(wire: WireClient, token: SaslAuthenticateRequest | None = None) -> SaslAuthenticateResponse:
    assert not wire.ask(HELLO, SaslHandshakeResponse).error_code
    return wire.ask(token or plain(), SaslAuthenticateResponse)


def log_in_with_scram(wire: WireClient, mechanism: ScramMechanism, user: str, password: str) -> int:
    """Return the error code of a login with the last message, after the server has proved that it has the password."""
    wire.ask(SaslHandshakeRequest(mechanism=mechanism.sasl_name), SaslHandshakeResponse)
    bare = f"n={user},r=nonce"
    first = wire.ask(SaslAuthenticateRequest(auth_bytes=f"n,,{bare}".encode()), SaslAuthenticateResponse)
    if first.error_code:
        return first.error_code
    message, signature = client_final(mechanism, password, bare, first.auth_bytes.decode())
    final = wire.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
    assert final.error_code or final.auth_bytes == signature
    return final.error_code


def exchange_raw(wire: WireClient, token: bytes) -> bytes:
    wire.socket.sendall(SIZE.pack(len(token)) + token)
    return wire.receive_frame()


@pytest.mark.parametrize("asks_for_versions", [True, False])
def test_a_client_is_authenticated_with_plain(
    wire: WireClient, fake_cluster: FakeCluster, asks_for_versions: bool
) -> None:
    if asks_for_versions:
        assert not wire.ask(VERSIONS, ApiVersionsResponse).error_code
    response = wire.ask(HELLO, SaslHandshakeResponse)
    assert (response.error_code, response.mechanisms) == (0, MECHANISMS)
    done = wire.ask(plain(authorization_id="alice"), SaslAuthenticateResponse)
    assert (done.error_code, done.error_message, done.auth_bytes, done.session_lifetime_ms) == (0, None, b"", 0)
    assert not wire.ask(MetadataRequest(topics=None), MetadataResponse).topics
    calls = fake_cluster.journal.requests()
    assert [(call.api.name, call.principal) for call in calls] == [("Metadata", "User:alice")]


@pytest.mark.fake_cluster(topics={"orders": 1})
def test_waits_and_reports_name_the_reasons_of_closed_connections(fake_cluster: FakeCluster) -> None:
    for password in ("wrong", "worse"):
        with WireClient(fake_cluster.brokers[0]) as other:
            log_in(other, plain(password=password))
            assert other.is_closed_by_broker()
    with WireClient(fake_cluster.brokers[0]) as other:
        other.send(MetadataRequest(topics=None))
        assert other.is_closed_by_broker()
    closed = (
        "\n\nconnections that brokers closed:\n"
        "  2 x Authentication failed: Invalid username or password\n"
        "  1 x Metadata before authentication, expected SaslHandshake"
    )
    with pytest.raises(WaitTimeout) as caught:
        fake_cluster.wait(fake_cluster.group("g").stable(), timeout_s=0)
    assert str(caught.value).endswith(closed)
    assert caught.value.state.endswith(closed)
    assert fake_cluster.report().endswith(closed)

    async def wait() -> None:
        await fake_cluster.wait_async(predicate("never", lambda: False), timeout_s=0)

    with pytest.raises(WaitTimeout) as caught:
        trio.run(wait)
    assert str(caught.value) == f"not reached within 0 s: never\n{closed.lstrip()}"
    fake_cluster.reset()
    assert "connections that brokers closed" not in fake_cluster.report()


def test_tokens_have_no_header_after_a_handshake_of_version_0(wire: WireClient) -> None:
    assert not wire.ask(HELLO, SaslHandshakeResponse, 0).error_code
    assert exchange_raw(wire, f"\0alice\0{PASSWORD}".encode()) == b""
    assert wire.ask(VERSIONS, ApiVersionsResponse).api_keys


def test_scram_tokens_have_no_header_after_a_handshake_of_version_0(wire: WireClient) -> None:
    wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse, 0)
    first = exchange_raw(wire, b"n,,n=alice,r=nonce").decode()
    message, signature = client_final(ScramMechanism.SHA_256, PASSWORD, "n=alice,r=nonce", first)
    assert exchange_raw(wire, message) == signature
    assert wire.ask(VERSIONS, ApiVersionsResponse).api_keys


def test_a_failure_after_a_handshake_of_version_0_has_no_answer(wire: WireClient) -> None:
    wire.ask(HELLO, SaslHandshakeResponse, 0)
    token = b"\0alice\0wrong"
    wire.socket.sendall(SIZE.pack(len(token)) + token)
    assert wire.is_closed_by_broker()


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "OAUTHBEARER"])
def test_an_unknown_mechanism_is_answered_and_the_connection_closed(wire: WireClient, mechanism: str) -> None:
    response = wire.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
    assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert wire.is_closed_by_broker()


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhihb", 3, 12, 1, -1, 0) + b"\x01\x00\x00\x00\x00",  # Metadata
        struct.pack(">hhih", 36, 1, 1, -1) + b"\0\0\0\0",  # SaslAuthenticate
        struct.pack(">hhih", 17, 2, 1, -1) + b"\0\x05PLAIN",  # SaslHandshake of a version that does not exist
        struct.pack(">hhih", 999, 0, 1, -1),
        b"GET",
        b"",
        b"\x60" * 40,
    ],
    ids=["Metadata", "SaslAuthenticate", "SaslHandshake v2", "unknown key", "3 bytes", "no bytes", "GSSAPI"],
)
@pytest.mark.parametrize("asks_for_versions", [True, False])
def test_other_requests_close_the_connection_at_once(
    wire: WireClient, fake_cluster: FakeCluster, frame: bytes, asks_for_versions: bool
) -> None:
    internals(fake_cluster).cluster.config = type(internals(fake_cluster).cluster.config)(LONG_DELAY)
    if asks_for_versions:
        wire.ask(VERSIONS, ApiVersionsResponse)
    wire.socket.sendall(SIZE.pack(len(frame)) + frame)
    assert wire.is_closed_by_broker()
    assert not fake_cluster.journal.requests()


def test_refused_api_versions_requests_may_be_repeated(wire: WireClient) -> None:
    body = struct.pack(">hhihb", 18, 99, 7, -1, 0) + b"unknown"
    wire.socket.sendall(SIZE.pack(len(body)) + body)
    assert struct.unpack_from(">ih", wire.receive_frame()) == (7, ErrorCode.UNSUPPORTED_VERSION)
    bad_name = ApiVersionsRequest(client_software_name="-", client_software_version="1")
    assert wire.ask(bad_name, ApiVersionsResponse).error_code == ErrorCode.INVALID_REQUEST
    assert not wire.ask(VERSIONS, ApiVersionsResponse).error_code
    assert not log_in(wire).error_code


def test_a_second_api_versions_request_closes_the_connection(wire: WireClient) -> None:
    wire.ask(VERSIONS, ApiVersionsResponse)
    wire.send(VERSIONS)
    assert wire.is_closed_by_broker()


def test_another_request_between_tokens_is_answered_with_illegal_sasl_state(wire: WireClient) -> None:
    wire.ask(HELLO, SaslHandshakeResponse)
    response = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), MetadataResponse, 8)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", ErrorCode.ILLEGAL_SASL_STATE)]
    assert wire.is_closed_by_broker()


def test_a_request_with_an_error_message_between_tokens_leaves_the_cluster_running(
    wire: WireClient, fake_cluster: FakeCluster
) -> None:
    """FindCoordinator has a message for each error; before version 4 the request has one key."""
    wire.ask(HELLO, SaslHandshakeResponse)
    answer = wire.ask(FindCoordinatorRequest(key="g", key_type=0), FindCoordinatorResponse, version=1)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    with WireClient(fake_cluster.brokers[0]) as other:
        assert not log_in(other).error_code


def test_a_bug_closes_only_the_connection(
    fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire, WireClient(fake_cluster.brokers[0]) as other:
        with monkeypatch.context() as patch:
            patch.setattr(Credentials, "has_password", None)
            wire.ask(HELLO, SaslHandshakeResponse)
            wire.send(plain())
            assert wire.is_closed_by_broker()
        assert "internal error" in caplog.text
        assert not log_in(other).error_code


def test_a_heartbeat_between_tokens_is_answered_with_illegal_sasl_state(wire: WireClient) -> None:
    wire.ask(HELLO, SaslHandshakeResponse)
    assert wire.ask(heartbeat_request(), HeartbeatResponse).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.is_closed_by_broker()


def test_sasl_authenticate_of_an_unknown_version_closes_the_connection(wire: WireClient) -> None:
    wire.ask(HELLO, SaslHandshakeResponse)
    body = struct.pack(">hhihb", 36, 3, 7, -1, 0) + b"\x01\x00"
    wire.socket.sendall(SIZE.pack(len(body)) + body)
    assert wire.is_closed_by_broker()


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"alice", "PLAIN: 1 parts"),
        (b"\0alice\0pass\0word", "PLAIN: 4 parts"),
        (b"\0\0password", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0" + PASSWORD.encode(), "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0" + PASSWORD.encode(), "PLAIN: expected an authorization id"),
        (b"\xff\xfe", "PLAIN: 1 parts"),
    ],
)
def test_plain_is_refused(wire: WireClient, token: bytes, text: str) -> None:
    response = log_in(wire, SaslAuthenticateRequest(auth_bytes=token))
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (response.error_message or "").startswith(text)
    assert PASSWORD not in (response.error_message or "")
    assert response.auth_bytes == b""
    assert wire.is_closed_by_broker()


@pytest.mark.parametrize("mechanism", ScramMechanism, ids=lambda mechanism: mechanism.name)
def test_a_client_is_authenticated_with_scram(fake_cluster: FakeCluster, mechanism: ScramMechanism) -> None:
    refused = ErrorCode.SASL_AUTHENTICATION_FAILED
    for user, password, error in (("alice", PASSWORD, 0), ("alice", "wrong", refused), ("bob", PASSWORD, refused)):
        with WireClient(fake_cluster.brokers[0]) as wire:
            assert log_in_with_scram(wire, mechanism, user, password) == error
            assert wire.is_closed_by_broker() if error else wire.ask(VERSIONS, ApiVersionsResponse)


def test_a_connection_that_is_older_than_the_state_uses_its_credentials(
    wire: WireClient, fake_cluster: FakeCluster
) -> None:
    """A snapshot that is restored replaces the credentials, and keeps connections."""
    wire.ask(VERSIONS, ApiVersionsResponse)
    fake_cluster.restore(fake_cluster.snapshot())
    internals(fake_cluster).run(
        lambda: internals(fake_cluster).cluster.credentials.remove_scram("alice", ScramMechanism.SHA_256)
    )
    refused = log_in_with_scram(wire, ScramMechanism.SHA_256, "alice", PASSWORD)
    assert refused == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_scram_is_refused_with_a_general_text(wire: WireClient) -> None:
    wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse)
    response = wire.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=bob,r=abc"), SaslAuthenticateResponse)
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_authenticated_client_cannot_authenticate_again(wire: WireClient, version: int) -> None:
    log_in(wire)
    handshake = wire.ask(HELLO, SaslHandshakeResponse)
    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    again = wire.ask(plain(), SaslAuthenticateResponse, version)
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert again.error_message


@pytest.mark.fake_cluster(config=LONG_DELAY)
@pytest.mark.parametrize("is_too_long", [True, False])
def test_a_failure_is_answered_after_the_delay_and_nothing_is_read_meanwhile(
    wire: WireClient, fake_cluster: FakeCluster, is_too_long: bool
) -> None:
    if is_too_long:
        wire.socket.sendall(SIZE.pack(600 * 1024))
    else:
        wire.send(SaslHandshakeRequest(mechanism="GSSAPI"))

    def delays() -> list[Any]:
        reactor = fake_cluster._server.reactor
        due_ms = reactor.cluster.wire_timers.next_deadline()
        blocked = [
            each
            for each in internals(fake_cluster).server.reactor.connections.values()
            if each.pending is Blocked.HANGING_UP
        ]
        assert all(not each.unsent and each.interest == 0 for each in blocked)
        return [due_ms - reactor.wire_clock.now_ms() for _ in blocked if due_ms is not None]

    until(lambda: bool(internals(fake_cluster).run(delays)), fake_cluster)
    assert 3_000_000 < internals(fake_cluster).run(delays)[0] <= 3_600_000
    fake_cluster.broker(1).stop()
    assert wire.is_closed_by_broker()  # Without an answer.


@pytest.mark.parametrize("size", [600 * 1024, -1, 0x16030100])
def test_a_long_message_before_authentication_is_not_answered(wire: WireClient, size: int) -> None:
    wire.socket.sendall(SIZE.pack(size))
    assert wire.is_closed_by_broker()


def test_long_messages_are_read_after_authentication(wire: WireClient) -> None:
    log_in(wire)
    topics = [MetadataRequestTopic(name="x" * 249) for _ in range(3_000)]
    assert wire.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse).topics


# Listeners


@pytest.mark.fake_cluster(brokers=2, listeners={"IN": "PLAINTEXT", "OUT": "SASL_PLAINTEXT"})
def test_clients_find_brokers_at_the_listener_that_they_use(fake_cluster: FakeCluster) -> None:
    ports = {
        name: [int(each.rpartition(":")[2]) for each in fake_cluster.bootstrap_servers_of(name).split(",")]
        for name in ("IN", "OUT")
    }
    assert fake_cluster.bootstrap_servers == fake_cluster.bootstrap_servers_of("IN")
    assert len({*ports["IN"], *ports["OUT"]}) == 4
    for name, (port, _) in ports.items():
        with WireClient(FakeAddress(port)) as wire:
            if name == "OUT":
                log_in(wire)
            metadata = wire.ask(MetadataRequest(topics=[]), MetadataResponse)
            described = wire.ask(
                DescribeClusterRequest(include_cluster_authorized_operations=False), DescribeClusterResponse
            )
            (found,) = wire.ask(find_coordinator("g"), FindCoordinatorResponse).coordinators
            many = find_coordinator("g")
            many.coordinator_keys = [f"group-{number}" for number in range(100)]
            all_found = wire.ask(many, FindCoordinatorResponse).coordinators
        assert [broker.port for broker in metadata.brokers] == ports[name]
        assert [broker.port for broker in described.brokers] == ports[name]
        assert found.port in ports[name]
        assert {each.port for each in all_found} == set(ports[name])
    with pytest.raises(ConfigError, match="listener='OTHER': expected"):
        fake_cluster.bootstrap_servers_of("OTHER")


class FakeAddress:
    """An address of a broker on this machine."""

    host = "127.0.0.1"

    def __init__(self, port: int) -> None:
        self.port = port


@pytest.mark.fake_cluster(brokers=2, listeners={"IN": "PLAINTEXT", "OUT": "SASL_PLAINTEXT"})
def test_all_listeners_of_a_stopped_broker_close_and_come_back(fake_cluster: FakeCluster) -> None:
    before = [fake_cluster.bootstrap_servers_of(name) for name in ("IN", "OUT")]
    fake_cluster.broker(1).stop()
    for servers in before:
        with pytest.raises(ConnectionRefusedError):
            WireClient(FakeAddress(int(servers.split(",")[0].rpartition(":")[2])))
    fake_cluster.broker(1).start()
    assert [fake_cluster.bootstrap_servers_of(name) for name in ("IN", "OUT")] == before
    with WireClient(FakeAddress(int(before[1].split(",")[0].rpartition(":")[2]))) as wire:
        assert not log_in(wire).error_code
    added = fake_cluster.brokers.add()
    assert fake_cluster.bootstrap_servers.count(",") == 2
    fake_cluster.broker(added.node_id).remove()
    fake_cluster.reset()
    assert [fake_cluster.bootstrap_servers_of(name) for name in ("IN", "OUT")] == before


def test_a_plaintext_listener_answers_with_illegal_sasl_state(fake_cluster_factory: Any) -> None:
    cluster = fake_cluster_factory(brokers=1)
    with WireClient(cluster.brokers[0]) as wire:
        assert wire.ask(HELLO, SaslHandshakeResponse).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.ask(plain(), SaslAuthenticateResponse).error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("users", [{"": "x"}, {"alice": ""}, {"alice": 724_193}])
def test_invalid_users_are_refused_without_showing_passwords(users: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="users=") as refused:
        FakeCluster(users=users)
    assert "724" not in str(refused.value)


def test_names_of_listeners_are_checked() -> None:
    with pytest.raises(ConfigError, match="listeners='a b': expected names"):
        FakeCluster(listeners={"a b": "PLAINTEXT"})
    with pytest.raises(ConfigError, match=r"listeners=\['IN', 'in'\]: expected names that differ"):
        FakeCluster(listeners={"IN": "PLAINTEXT", "in": "SASL_PLAINTEXT"})


def test_users_need_a_listener_where_they_can_authenticate() -> None:
    with pytest.raises(ConfigError, match=r"listeners=\{'IN': 'PLAINTEXT'\}: expected SASL_PLAINTEXT or SASL_SSL"):
        FakeCluster(users={"alice": "secret-1"}, listeners={"IN": "PLAINTEXT"})


# Credentials that change


@pytest.mark.parametrize("users", ["alice:secret-1", [("alice", "secret-1")]])
def test_users_of_another_type_are_refused_without_showing_passwords(users: Any) -> None:
    with pytest.raises(ConfigError, match=r"users: expected a table of passwords by user") as caught:
        FakeCluster(1, users=users)
    assert "secret-1" not in f"{caught.value!r} {caught.value.mistakes}"


def test_without_users_nobody_logs_in() -> None:
    with FakeCluster(1, users={}) as cluster, WireClient(cluster.brokers[0]) as wire:
        assert log_in(wire).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("fault", [{"error": "UNACCEPTABLE_CREDENTIAL"}, {"drop": True}, {"delay_before_s": 60.0}])
def test_a_fault_keeps_no_secrets_in_the_journal(fake_cluster: FakeCluster, fault: dict[str, Any]) -> None:
    with WireClient(fake_cluster.brokers[0]) as wire:
        log_in(wire)
        fake_cluster.inject_fault("AlterUserScramCredentials", **fault)
        change = upsert("bob", ScramMechanism.SHA_256, "secret-2")
        wire.send(AlterUserScramCredentialsRequest(deletions=[], upsertions=[change]))
        until(lambda: bool(fake_cluster.journal.requests(api="AlterUserScramCredentials")), fake_cluster)
        kept = repr([call.request for call in fake_cluster.journal.requests()])
    assert "bob" in kept
    assert repr(change.salted_password)[2:-1] not in kept
    assert "salty-salt" not in kept


def test_passwords_in_configs_are_set_and_not_in_the_journal(fake_cluster: FakeCluster) -> None:
    name = "listener.name.external.ssl.key.password"
    with WireClient(fake_cluster.brokers[0]) as wire:
        log_in(wire)
        for value in ("secret-3", "secret-4", "secret-4"):
            config = AlterableConfig(name=name, config_operation=0, value=value)
            retention = AlterableConfig(name="log.cleaner.threads", config_operation=0, value="2")
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config, retention])
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            answer = wire.ask(request, IncrementalAlterConfigsResponse)
            assert [(each.error_code, each.error_message) for each in answer.responses] == [(0, None)]
        assert internals(fake_cluster).cluster.brokers[1].configs[name] == "secret-4"
        fake_cluster.inject_fault("IncrementalAlterConfigs", error="POLICY_VIOLATION")
        wire.ask(request, IncrementalAlterConfigsResponse)
    kept = repr([call.request for call in fake_cluster.journal.requests(api="IncrementalAlterConfigs")])
    assert kept.count(f"name={name!r}") == 4
    assert kept.count("name='log.cleaner.threads', config_operation=0, value='2'") == 4
    assert "secret-" not in kept


def upsert(user: str, mechanism: ScramMechanism, password: str, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = pbkdf2_hmac({1: "sha256", 2: "sha512"}[mechanism], password.encode(), b"salty-salt", iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salty-salt", salted_password=salted
    )


def alter(wire: WireClient, *upsertions: ScramCredentialUpsertion, delete: tuple[str, ...] = ()) -> list[int]:
    deletions = [ScramCredentialDeletion(name=user, mechanism=1) for user in delete]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions))
    return [each.error_code for each in wire.ask(request, AlterUserScramCredentialsResponse).results]


def test_users_log_in_with_credentials_that_clients_store(wire: WireClient, fake_cluster: FakeCluster) -> None:
    log_in(wire)
    described = wire.ask(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse)
    (alice,) = described.results
    found = [(each.mechanism, each.iterations) for each in alice.credential_infos]
    assert (alice.user, found) == ("alice", [(1, 4096), (2, 4096)])
    snapshot = fake_cluster.snapshot()
    assert alter(wire, upsert("bob", ScramMechanism.SHA_256, "secret", 8192), delete=("alice",)) == [0, 0]

    def error(user: str, password: str, mechanism: ScramMechanism = ScramMechanism.SHA_256) -> int:
        with WireClient(fake_cluster.brokers[0]) as other:
            return log_in_with_scram(other, mechanism, user, password)

    refused = ErrorCode.SASL_AUTHENTICATION_FAILED
    assert error("bob", "secret") == 0
    assert error("bob", "secret", ScramMechanism.SHA_512) == refused
    assert error("alice", PASSWORD) == refused
    assert error("alice", PASSWORD, ScramMechanism.SHA_512) == 0
    fake_cluster.restore(snapshot)
    assert error("bob", "secret") == refused
    assert error("alice", PASSWORD) == 0


# Secrets


def test_secrets_are_in_no_log_journal_report_or_repr(
    wire: WireClient, fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "tr0ub4dor"
    with WireClient(fake_cluster.brokers[0]) as other:
        log_in(other, plain(password=wrong))
        assert other.is_closed_by_broker()
    with WireClient(fake_cluster.brokers[0]) as other:
        assert log_in_with_scram(other, ScramMechanism.SHA_256, "alice", wrong)
    log_in(wire)
    wire.ask(plain(), SaslAuthenticateResponse)  # Too late, so that it is in the journal.
    stored = upsert("bob", ScramMechanism.SHA_256, "correct")
    assert alter(wire, stored) == [0]
    fake_cluster.journal.export(tmp_path / "journal.jsonl")
    shown = io.StringIO()
    print(fake_cluster.report(), repr(fake_cluster), vars(internals(fake_cluster).cluster), caplog.text, file=shown)
    for call in fake_cluster.journal.requests():
        print(repr(call), repr(call.request), repr(call.response), vars_of(call.peer), file=shown)
    for connection in internals(fake_cluster).server.reactor.connections.values():
        print(repr(connection), vars_of(connection), file=shown)
    print((tmp_path / "journal.jsonl").read_text(), repr(internals(fake_cluster).cluster.credentials), file=shown)
    text = shown.getvalue()
    for shown_text in ("SaslAuthenticate", "AlterUserScramCredentials", "Invalid username or password"):
        assert shown_text in text
    secrets = [PASSWORD, wrong, "correct", "salty-salt", repr(stored.salted_password)[2:-1]]
    secrets += [json.dumps(stored.salted_password.hex()).strip('"')]
    assert [secret for secret in secrets if secret in text] == []


def vars_of(slotted: object) -> dict[str, object]:
    """Return the values of all attributes of an object with slots."""
    names = [name for kind in type(slotted).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(slotted, name, None) for name in names}
