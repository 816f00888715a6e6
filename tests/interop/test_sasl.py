"""Real clients that authenticate: by each mechanism, with wrong passwords, and as a user without permission."""

import asyncio
import json
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from fakebroker import FakeCluster
from tests.support.control.nodejs import FOLDER, node_modules, run
from tests.support.kafka_clients.client import CALL_TIMEOUT_S
from tests.support.security.tokens import token

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "horse-battery-staple"
ALLOWED = [{"principal": "alice", "operation": "DESCRIBE", "topic": "orders"}]

CLAIMS = {"sub": "alice", "exp": 2**31}
OAUTH = pytest.mark.fake_cluster(config={"sasl.enabled.mechanisms": "OAUTHBEARER"})

pytestmark = [
    pytest.mark.slow,
    pytest.mark.fake_cluster(
        brokers=2,
        topics={"orders": 1, "hidden": 1},
        users={"alice": PASSWORD, "bob": PASSWORD},
        acls=ALLOWED,
        config={"connection.failed.authentication.delay.ms": 0},
        seed=1,
    ),
]


def confluent_topics(servers: str, mechanism: str, user: str, password: str) -> set[str]:
    errors: list[str] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "error_cb": lambda error: errors.append(str(error)),
        "log_level": 0,
    }
    admin = AdminClient(settings)
    if password == PASSWORD:
        return set(admin.list_topics(timeout=CALL_TIMEOUT_S).topics)
    while not errors:
        admin.poll(0.05)
    raise KafkaException(errors[0])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(fake_cluster: FakeCluster, mechanism: str) -> None:
    servers = fake_cluster.bootstrap_servers
    assert confluent_topics(servers, mechanism, "alice", PASSWORD) == {"orders"}
    assert confluent_topics(servers, mechanism, "bob", PASSWORD) == set()
    with pytest.raises(KafkaException, match=r"(?i)authentication failed"):
        confluent_topics(servers, mechanism, "alice", "wrong")
    assert {call.principal for call in fake_cluster.journal.requests("Metadata")} == {"User:alice", "User:bob"}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(fake_cluster: FakeCluster, mechanism: str) -> None:
    # Not with a wrong password: it retries for 30 s, and then its thread remains.
    admin = KafkaAdminClient(
        bootstrap_servers=fake_cluster.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )
    try:
        assert admin.list_topics() == ["orders"]
    finally:
        admin.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(fake_cluster: FakeCluster, mechanism: str) -> None:
    async def topics(user: str, password: str) -> set[str]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=fake_cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
        try:
            await consumer.start()
            return set(await consumer.topics())
        finally:
            await consumer.stop()

    assert asyncio.run(topics("alice", PASSWORD)) == {"orders"}
    with pytest.raises(AioError):
        asyncio.run(topics("alice", "wrong"))


@OAUTH
def test_confluent_kafka_with_tokens(fake_cluster: FakeCluster) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": fake_cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda config: (token(CLAIMS), 2.0**31),
    }
    admin = AdminClient(settings)
    admin.poll(0)
    assert set(admin.list_topics(timeout=CALL_TIMEOUT_S).topics) == {"orders"}


@OAUTH
def test_aiokafka_with_tokens(fake_cluster: FakeCluster) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        def __init__(self, text: str) -> None:
            self.text = text

        async def token(self) -> str:
            return self.text

    async def topics(text: str) -> set[str]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=fake_cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(text),
        )
        try:
            await consumer.start()
            return set(await consumer.topics())
        finally:
            await consumer.stop()

    # Not with a token that is not valid: aiokafka ignores the reason in the answer (`OAuthAuthenticator.step`), and
    # sends a Metadata request, whose response has no place for the error ILLEGAL_SASL_STATE if it names no topics.
    assert asyncio.run(topics(token(CLAIMS))) == {"orders"}


@OAUTH
def test_kafkajs_with_tokens(fake_cluster: FakeCluster) -> None:
    node_modules()
    logins = [{"mechanism": "oauthbearer", "token": token(claims)} for claims in (CLAIMS, {**CLAIMS, "exp": 1})]
    settings = json.dumps({"servers": fake_cluster.bootstrap_servers, "logins": logins})
    good, bad = json.loads(run(["node", "login.mjs"], FOLDER, CALL_TIMEOUT_S, SETTINGS=settings))
    assert good == ["orders"]
    assert str(bad).startswith("KafkaJS")  # Without the reason: it does not ask for one.


def test_kafkajs(fake_cluster: FakeCluster) -> None:
    logins = [
        {"mechanism": mechanism.lower(), "username": "alice", "password": password}
        for mechanism in MECHANISMS
        for password in (PASSWORD, "wrong")
    ]
    node_modules()
    settings = json.dumps({"servers": fake_cluster.bootstrap_servers, "logins": logins})
    results = json.loads(run(["node", "login.mjs"], FOLDER, CALL_TIMEOUT_S, SETTINGS=settings))
    assert results[::2] == [["orders"]] * len(MECHANISMS)
    assert all("SASL" in error and "authentication failed" in error.lower() for error in results[1::2]), results
