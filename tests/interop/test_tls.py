"""Real clients with TLS, with certificates, and with SASL over TLS."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.helpers import create_ssl_context
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from fakebroker import FakeCluster
from fakebroker.server.tls.certificates import ClientCertificate
from tests.support.control.nodejs import FOLDER, node_modules, run
from tests.support.kafka_clients.client import CALL_TIMEOUT_S

PASSWORD = "horse-battery-staple"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.fake_cluster(
        brokers=2,
        topics={"orders": 1, "hidden": 1},
        tls=True,
        listeners={"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_SSL"},
        users={"alice": PASSWORD},
        acls=[
            {"principal": principal, "operation": "DESCRIBE", "topic": "orders"}
            for principal in ("User:ANONYMOUS", "User:CN=alice", "User:alice")
        ],
        config={"listener.name.mutual.ssl.client.auth": "required"},
        seed=1,
    ),
]


class Login(NamedTuple):
    """How a client connects.

    Attributes:
        listener: The name of the listener.
        principal: The client's principal then.
        mechanism: The SASL mechanism; None without SASL.
    """

    listener: str
    principal: str
    mechanism: str | None = None

    @property
    def protocol(self) -> str:
        return "SSL" if self.mechanism is None else "SASL_SSL"

    def certificate(self, cluster: FakeCluster) -> ClientCertificate | None:
        return cluster.tls.client_certificate("alice") if self.listener == "MUTUAL" else None


LOGINS = [
    Login("TLS", "User:ANONYMOUS"),
    Login("MUTUAL", "User:CN=alice"),
    Login("SASL", "User:alice", "PLAIN"),
    Login("SASL", "User:alice", "SCRAM-SHA-512"),
]
EACH = pytest.mark.parametrize("login", LOGINS, ids=lambda each: each.mechanism or each.listener)


def check_principals(cluster: FakeCluster, login: Login) -> None:
    assert {call.principal for call in cluster.journal.requests("Metadata")} == {login.principal}


@EACH
def test_confluent_kafka(fake_cluster: FakeCluster, login: Login) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": fake_cluster.bootstrap_servers_of(login.listener),
        "security.protocol": login.protocol,
        "ssl.ca.location": fake_cluster.tls.ca_file,
    }
    if (certificate := login.certificate(fake_cluster)) is not None:
        settings |= {"ssl.certificate.location": certificate.certificate, "ssl.key.location": certificate.key}
    if login.mechanism is not None:
        settings |= {"sasl.mechanism": login.mechanism, "sasl.username": "alice", "sasl.password": PASSWORD}
    assert set(AdminClient(settings).list_topics(timeout=CALL_TIMEOUT_S).topics) == {"orders"}
    check_principals(fake_cluster, login)


@EACH
def test_kafka_python(fake_cluster: FakeCluster, login: Login) -> None:
    certificate = login.certificate(fake_cluster)
    admin = KafkaAdminClient(
        bootstrap_servers=fake_cluster.bootstrap_servers_of(login.listener),
        security_protocol=login.protocol,
        ssl_cafile=fake_cluster.tls.ca_file,
        ssl_certfile=certificate and certificate.certificate,
        ssl_keyfile=certificate and certificate.key,
        sasl_mechanism=login.mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )
    try:
        assert admin.list_topics() == ["orders"]
    finally:
        admin.close()
    check_principals(fake_cluster, login)


@EACH
def test_aiokafka(fake_cluster: FakeCluster, login: Login) -> None:
    certificate = login.certificate(fake_cluster)

    async def topics() -> set[str]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=fake_cluster.bootstrap_servers_of(login.listener),
            security_protocol=login.protocol,
            ssl_context=create_ssl_context(
                cafile=fake_cluster.tls.ca_file,
                certfile=certificate and certificate.certificate,
                keyfile=certificate and certificate.key,
            ),
            sasl_mechanism=login.mechanism or "PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
        )
        try:
            await consumer.start()
            return set(await consumer.topics())
        finally:
            await consumer.stop()

    assert asyncio.run(topics()) == {"orders"}
    check_principals(fake_cluster, login)


def test_kafkajs(fake_cluster: FakeCluster) -> None:
    node_modules()
    ca = Path(fake_cluster.tls.ca_file).read_text()
    results = []
    for listener in ("TLS", "MUTUAL", "SASL"):
        logins: list[dict[str, Any]] = []
        for login in (each for each in LOGINS if each.listener == listener):
            ssl: dict[str, Any] = {"ca": [ca]}
            if (certificate := login.certificate(fake_cluster)) is not None:
                ssl["cert"], ssl["key"] = (Path(each).read_text() for each in certificate)
            logins.append({"ssl": ssl})
            if login.mechanism is not None:
                logins[-1] |= {"mechanism": login.mechanism.lower(), "username": "alice", "password": PASSWORD}
        settings = json.dumps({"servers": fake_cluster.bootstrap_servers_of(listener), "logins": logins})
        results += json.loads(run(["node", "login.mjs"], FOLDER, CALL_TIMEOUT_S, SETTINGS=settings))
    assert results == [["orders"]] * len(LOGINS)
    assert {call.principal for call in fake_cluster.journal.requests("Metadata")} == {each.principal for each in LOGINS}
