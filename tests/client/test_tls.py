"""The clients over TLS: with streams, and with the nonblocking sockets of replays."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from fakebroker import Admin, ClientSecurity, Consumer, FakeCluster
from fakebroker.client.errors import AuthenticationFailed, BrokerUnreachable
from fakebroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.members.sockets import SocketTransport
from tests.support.security.certificates import other_authority
from tests.support.trio_runner import in_trio_with_sockets

PASSWORD = "horse-battery-staple"
CLIENT_AUTH = {"ssl.client.auth": "required"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2, topics={"orders": 1}, tls=True, config=CLIENT_AUTH, seed=1) as cluster:
        yield cluster


def security_of(cluster: FakeCluster, name: str | None = "alice", **settings: Any) -> ClientSecurity:
    """Return the settings of a client with a certificate, if a name is given."""
    if name is not None:
        settings["ssl_certfile"], settings["ssl_keyfile"] = cluster.tls.client_certificate(name)
    return ClientSecurity(**{"security_protocol": "SSL", "ssl_cafile": cluster.tls.ca_file, **settings})


def opened(address: tuple[str, int], security: ClientSecurity) -> str:
    """Connect with a socket of a replay. Return why it failed; nothing if it is open."""
    transport, user = SocketTransport(security=security), User()
    transport.connect(address, user)
    while not (user.is_open or user.why):
        transport.poll(20.0)
    transport.close()
    return user.why


class User:
    """A user of a connection that counts answers."""

    def __init__(self) -> None:
        self.is_open, self.why, self.answers = False, "", list[Any]()

    def opened(self, connection: Any) -> None:
        self.is_open = True

    def answered(self, connection: Any, response: Any) -> None:
        self.answers.append(response)

    def lost(self, connection: Any, why: str) -> None:
        self.why = why


@in_trio_with_sockets
async def test_a_password_and_long_responses_over_tls() -> None:
    values = [bytes([index]) * 300_000 for index in range(5)]
    with FakeCluster(brokers=1, topics={"orders": 1}, tls=True, users={"alice": PASSWORD}) as cluster:
        cluster.topic("orders").produce(values)
        security = security_of(
            cluster,
            None,
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
        )
        servers = cluster.bootstrap_servers
        async with Consumer(servers, security=security, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            received: list[bytes | None] = []
            with trio.fail_after(20):
                while len(received) < len(values):
                    received += [record.value for record in await consumer.poll(20)]
        assert received == values
        assert not opened(addresses(servers)[0], security)
        assert {call.principal for call in cluster.journal.requests()} == {"User:alice"}


@in_trio_with_sockets
async def test_a_certificate_is_the_identity_of_a_client(cluster: FakeCluster) -> None:
    async with Admin(cluster.bootstrap_servers, "me", security=security_of(cluster)) as admin:
        assert set(await admin.list_topics()) == {"orders"}
    assert {call.principal for call in cluster.journal.requests(client_id="me")} == {"User:CN=alice"}


@in_trio_with_sockets
async def test_wrong_and_missing_certificates_are_refused(cluster: FakeCluster, tmp_path: Any) -> None:
    foreign = str(tmp_path / "foreign.pem")
    other_authority().cert_pem.write_to_path(foreign)
    cases = (
        (security_of(cluster, ssl_cafile=foreign), "certificate verify failed: .*(self-signed|issuer)"),
        (security_of(cluster, None), "tlsv13 alert certificate required"),
    )
    for security, why in cases:
        with pytest.raises(AuthenticationFailed, match=f"^broker 127.0.0.1:.*: TLS failed: {why}"):
            async with Admin(cluster.bootstrap_servers, security=security):
                pass


@pytest.mark.parametrize(("checks", "why"), [(True, "certificate verify failed: Hostname mismatch"), (False, "")])
def test_the_name_of_the_host_is_checked(cluster: FakeCluster, checks: bool, why: str) -> None:
    address = "localhost.localdomain", addresses(cluster.bootstrap_servers)[0][1]
    transport = SocketTransport(security=security_of(cluster, ssl_check_hostname=checks))
    user = User()
    transport._resolved[address] = transport._resolve(addresses(cluster.bootstrap_servers)[0])
    transport.connect(address, user)
    while not (user.is_open or user.why):
        transport.poll(20.0)
    transport.close()
    assert why in user.why
    assert user.is_open is not checks


def test_sockets_of_replays_report_why_tls_failed(cluster: FakeCluster, tmp_path: Any) -> None:
    address, foreign = addresses(cluster.bootstrap_servers)[0], str(tmp_path / "foreign.pem")
    other_authority().cert_pem.write_to_path(foreign)
    assert not opened(address, security_of(cluster))
    assert "the TLS handshake failed: certificate verify failed: " in opened(
        address, security_of(cluster, ssl_cafile=foreign)
    )
    assert "certificate required" in opened(address, security_of(cluster, None))
    assert opened(address, ClientSecurity()).startswith(
        "no valid response to ApiVersions (a TLS listener, or not Kafka?)"
    )
    with FakeCluster(brokers=1) as plain:
        why = opened(addresses(plain.bootstrap_servers)[0], security_of(cluster))
        assert why.startswith("the TLS handshake failed (a plaintext listener?): ")


@in_trio_with_sockets
async def test_ports_of_another_protocol_are_reported(cluster: FakeCluster) -> None:
    with pytest.raises(BrokerUnreachable, match="cannot be reached: "):
        async with Admin(cluster.bootstrap_servers):
            pass
    with (
        FakeCluster(brokers=1) as plain,
        pytest.raises(BrokerUnreachable, match=r"the TLS handshake failed \(a plaintext listener\?\): "),
    ):
        async with Admin(plain.bootstrap_servers, security=security_of(cluster)):
            pass


def test_many_long_requests_and_responses_over_sockets(cluster: FakeCluster) -> None:
    """More than the buffers of the sockets take."""
    transport, user = SocketTransport(security=security_of(cluster)), User()
    topics = [MetadataRequestTopic(name=f"{index:0>249}") for index in range(400)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    connection = transport.connect(addresses(cluster.bootstrap_servers)[0], user)
    while not user.is_open:
        transport.poll(20.0)
    assert connection.versions is not None
    assert connection.socket is not None
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    for _ in range(10):
        transport.send(connection, request, connection.versions.version_of(request), "c", user)
    assert connection.unsent
    while len(user.answers) < 10:
        transport.poll(20.0)
    transport.close()
    assert {len(answer.topics) for answer in user.answers} == {400}
