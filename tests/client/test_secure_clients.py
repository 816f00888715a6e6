"""The clients with SASL over sockets: each mechanism, refusals, sessions that end, and secrets that stay secret."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import trio

from fakebroker import Admin, ClientSecurity, Consumer, FakeCluster
from fakebroker.client.errors import AuthenticationFailed, BrokerUnreachable, ConnectionLost
from fakebroker.client.transport_security import TransportSecurity
from fakebroker.errors import ConfigError
from fakebroker.protocol.messages.metadata import MetadataRequest
from fakebroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from fakebroker.security.oauthbearer import unsecured_token
from fakebroker.server.fake_cluster import internals
from tests.support.client.connection import Connection
from tests.support.client.scripted_broker import ScriptedBroker, connect
from tests.support.trio_runner import in_trio, in_trio_with_sockets

PASSWORD = "horse-battery-staple"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 5_000
CONFIG = {"sasl.enabled.mechanisms": ",".join(MECHANISMS), "connection.failed.authentication.delay.ms": 0}
ASK = MetadataRequest(topics=[])


def login(mechanism: str = "SCRAM-SHA-256", password: str = PASSWORD, **settings: Any) -> ClientSecurity:
    given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if "sasl_oauth_token" not in settings:
        given["sasl_plain_username"] = "alice"
    if mechanism != "OAUTHBEARER":
        given["sasl_plain_password"] = password
    return ClientSecurity(**given, **settings)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2, topics={"orders": 1}, users={"alice": PASSWORD}, config=CONFIG, seed=1) as cluster:
        yield cluster


@pytest.mark.parametrize("mechanism", MECHANISMS)
@in_trio_with_sockets
async def test_admin_and_consumer_authenticate(cluster: FakeCluster, mechanism: str) -> None:
    security = login(mechanism)
    cluster.topic("orders").produce([b"1"])
    async with Admin(cluster.bootstrap_servers, "me", security=security) as admin:
        assert set(await admin.list_topics()) == {"orders"}
        assert len((await admin.describe_cluster()).nodes) == 2
    async with Consumer(
        cluster.bootstrap_servers, security=security, group_id=mechanism, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        assert await consumer.poll(20)
    principals = {call.principal for call in cluster.journal.requests() if call.client_id in ("me", "fakebroker")}
    assert principals == {"User:alice"}


@in_trio_with_sockets
async def test_a_wrong_password_is_not_tried_again(cluster: FakeCluster) -> None:
    for mechanism, why in (
        ("PLAIN", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-512", "Authentication failed during authentication due to invalid credentials"),
    ):
        security = login(mechanism, "wrong-secret")
        with pytest.raises(AuthenticationFailed) as refused:
            async with Admin(cluster.bootstrap_servers, security=security):
                pass
        first = cluster.brokers[0]
        assert str(refused.value).startswith(f"broker {first.host}:{first.port}: authentication failed: {why}")
        assert str(refused.value).endswith(f"(SASL_PLAINTEXT, {mechanism}, user 'alice')")
        async with Consumer(cluster.bootstrap_servers, security=security, group_id="g") as consumer:
            consumer.subscribe(["orders"])
            with pytest.raises(AuthenticationFailed, match="authentication failed"), trio.fail_after(20):
                await consumer.poll(3_600)
        for text in (str(refused.value), repr(refused.value), repr(security), str(security)):
            assert "wrong-secret" not in text


@in_trio_with_sockets
async def test_a_password_that_is_changed_fails_calls_of_an_open_client(cluster: FakeCluster) -> None:
    with FakeCluster(brokers=1, users={"alice": PASSWORD}, config=CONFIG) as other:
        async with Admin(other.bootstrap_servers, security=login()) as admin:
            assert not await admin.list_groups()
            internals(other).run(lambda: internals(other).cluster.credentials._scram.clear())
            other.broker(1).stop()
            other.broker(1).start()
            with pytest.raises(AuthenticationFailed):
                await admin.describe_groups(["g"])
            with pytest.raises(AuthenticationFailed):
                await admin.list_topics()


@in_trio_with_sockets
async def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are() -> None:
    config = {**CONFIG, "sasl.enabled.mechanisms": "PLAIN"}
    with FakeCluster(brokers=1, users={"alice": PASSWORD}, config=config) as one:
        await check_refused(one, r"the broker supports PLAIN \(SASL_PLAINTEXT, SCRAM-SHA-256, user 'alice'\)$")


@in_trio_with_sockets
async def test_listeners_of_another_protocol_are_reported(cluster: FakeCluster) -> None:
    with FakeCluster(brokers=1) as plain:
        await check_refused(plain, "ILLEGAL_SASL_STATE, the listener does not ask for authentication")
    broker = cluster.brokers[0]
    async with trio.open_nursery() as nursery:
        connection = await Connection.open(broker.host, broker.port, "c", nursery)
        why = r"closed the connection \(a listener that requires SASL authentication\?\)$"
        with pytest.raises(ConnectionLost, match=why):
            await connection.request(ASK)


async def check_refused(cluster: FakeCluster, why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        async with Admin(cluster.bootstrap_servers, security=login()):
            pass


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (unsecured_token("alice", 0.0), '{"status":"invalid_token"}'),
        ("not a token", "OAUTHBEARER: expected a token"),
        (lambda: 1 / 0, "sasl_oauth_token has raised ZeroDivisionError: division by zero"),
    ],
)
@in_trio_with_sockets
async def test_invalid_tokens(cluster: FakeCluster, token: Any, why: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        async with Admin(cluster.bootstrap_servers, security=login("OAUTHBEARER", sasl_oauth_token=token)):
            pass
    assert f"authentication failed: {why}" in str(refused.value)
    assert not isinstance(token, str) or token not in str(refused.value)


@pytest.fixture
def manual(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster whose clock, which stands still, is also that of the clients."""
    config = {**CONFIG, "connections.max.reauth.ms": SESSION_MS}
    with FakeCluster(brokers=1, users={"alice": PASSWORD}, config=config, clock="manual") as cluster:
        monkeypatch.setattr(TransportSecurity, "_now_ms", lambda _: internals(cluster).server.clock.now_ms())
        yield cluster


@pytest.mark.parametrize("mechanism", MECHANISMS)
@in_trio_with_sockets
async def test_a_connection_authenticates_again_before_its_session_ends(manual: FakeCluster, mechanism: str) -> None:
    broker = manual.brokers[0]
    async with trio.open_nursery() as nursery:
        security = TransportSecurity(login(mechanism))
        connection = await Connection.open(broker.host, broker.port, "c", nursery, security=security)
        for _ in range(3):
            for seconds in (4.2, 0.6, 3):  # The second is past 95 %, the third past the end of the first session.
                manual.advance(seconds)
                sent = await connection.send([ASK] * 5)
                for each in sent:
                    assert (await each.answer()).cluster_id
        manual.advance(3_600)  # Without requests, the session has ended long ago.
        assert (await connection.request(ASK)).cluster_id
        await connection.aclose()
    assert len(manual.journal.requests("Metadata")) == 46


@in_trio_with_sockets
async def test_requests_in_flight_are_answered_before_the_connection_authenticates_again(manual: FakeCluster) -> None:
    broker = manual.brokers[0]
    async with trio.open_nursery() as nursery:
        connection = await Connection.open(broker.host, broker.port, "c", nursery, security=TransportSecurity(login()))
        before = await connection.send([ASK] * 3)
        manual.advance(4.8)
        after = [each for _ in range(3) for each in await connection.send([ASK])]
        for each in (*before, *after):
            assert (await each.answer()).cluster_id
        await connection.aclose()


@in_trio_with_sockets
async def test_credentials_that_are_refused_later_close_the_connection(manual: FakeCluster) -> None:
    broker, tokens = manual.brokers[0], [unsecured_token("alice", internals(manual).server.clock.now_ms()), "no token"]
    security = login("OAUTHBEARER", sasl_oauth_token=lambda: tokens.pop(0))
    async with trio.open_nursery() as nursery:
        connection = await Connection.open(broker.host, broker.port, "c", nursery, security=TransportSecurity(security))
        manual.advance(4.8)
        (sent,) = await connection.send([ASK])
        with pytest.raises(Exception, match="expected a token"):
            await sent.answer()
        assert connection.is_lost


@in_trio
async def test_a_broker_that_is_too_old_is_refused() -> None:
    for versions in ({18: (0, 3), 17: (0, 0)}, {18: (0, 3)}):
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ScriptedBroker(theirs, versions).serve_versions)
            with pytest.raises(AuthenticationFailed, match=r"SaslHandshake: .* this client 1-1$"):
                await connect(ours, nursery, security=TransportSecurity(login()))


@in_trio
async def test_a_broker_that_hangs_up_while_a_client_authenticates_may_be_tried_again() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    broker = ScriptedBroker(theirs, {18: (0, 3), 17: (0, 1), 36: (0, 2)})

    async def serve() -> None:
        await broker.serve_versions()
        assert isinstance((await broker.receive())[1], SaslHandshakeRequest)
        await theirs.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with pytest.raises(BrokerUnreachable, match=r"closed the connection before the authentication was complete$"):
            await connect(ours, nursery, security=TransportSecurity(login()))


Settings = dict[str, Any]
SASL: Settings = {"security_protocol": "SASL_PLAINTEXT"}
PLAIN: Settings = {**SASL, "sasl_mechanism": "PLAIN"}
USER: Settings = {**PLAIN, "sasl_plain_username": "a"}
OAUTH: Settings = {**SASL, "sasl_mechanism": "OAUTHBEARER"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security_protocol": "TLS"}, "security_protocol='TLS': expected one of PLAINTEXT, SSL"),
        (SASL, "sasl_mechanism=None: expected one of PLAIN"),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, "sasl_mechanism='GSSAPI': expected one of PLAIN"),
        (USER, "expected sasl_plain_username and sasl_plain_password with it"),
        ({**USER, "sasl_plain_password": PASSWORD, "sasl_oauth_token": "x"},
         "sasl_mechanism='PLAIN': expected sasl_plain_username and sasl_plain_password with it, and nothing else"),
        ({**USER, "sasl_plain_password": f"{PASSWORD}\0"}, "sasl_plain_password: expected no NUL"),
        (OAUTH, "sasl_mechanism='OAUTHBEARER': expected sasl_oauth_token, or sasl_plain_username"),
        ({**OAUTH, "sasl_plain_username": "a", "sasl_plain_password": PASSWORD}, "expected sasl_oauth_token, or"),
        ({"sasl_plain_password": PASSWORD}, "sasl_plain_password: expected security_protocol SASL_PLAINTEXT or SASL_"),
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile: expected security_protocol SSL or SASL_SSL with it, not PLAINTEXT"),
        ({"ssl_check_hostname": False}, "ssl_check_hostname: expected security_protocol SSL or SASL_SSL"),
        ({"security_protocol": "SSL", "ssl_password": PASSWORD}, "ssl_password: expected none without ssl_certfile"),
    ],
)  # fmt: skip
def test_invalid_settings(settings: Settings, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClientSecurity(**settings)
    assert message in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("name", ["ssl_cafile", "ssl_certfile"])
def test_files_that_cannot_be_read_are_named(name: Literal["ssl_cafile", "ssl_certfile"], tmp_path: Any) -> None:
    for content, why in ((None, "No such file or directory"), ("no certificate", "no certificate|no start line|PEM")):
        path = tmp_path / "file.pem"
        if content is not None:
            path.write_text(content)
        settings: Settings = {name: str(path)}
        with pytest.raises(ConfigError, match=f"^{name}='.*file.pem': expected a PEM file .*{why}"):
            Admin("localhost:1", security=ClientSecurity(security_protocol="SSL", **settings))
