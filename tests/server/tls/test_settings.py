"""Settings of TLS: certificates from files and texts, versions, prefixes of listeners, mistakes, secrets."""

import io
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from fakebroker import FakeCluster
from fakebroker.cluster.configs.settings import Config
from fakebroker.errors import ConfigError
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from fakebroker.server.fake_cluster import internals
from tests.support.security.certificates import client_context, context_of, other_authority
from tests.support.wire_client import WireClient

VERSIONS = ApiVersionsRequest(client_software_name="t", client_software_version="1")
PEM = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
PASSWORD = "correct-horse-battery"
BROKER = 4
Factory = Callable[..., FakeCluster]


def texts() -> tuple[str, str, str]:
    """Return a broker's certificate, its private key encrypted with `PASSWORD`, and the authority, all PEM."""
    issued = other_authority().issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    return issued.cert_chain_pems[0].bytes().decode(), encrypted.decode(), other_authority().cert_pem.bytes().decode()


@pytest.mark.parametrize("has_spaces", [False, True])
def test_certificates_can_be_texts_and_are_never_shown(
    fake_cluster_factory: Factory, tmp_path: Path, has_spaces: bool
) -> None:
    chain, key, authority = texts()
    other_authority().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    if has_spaces:  # As in a properties file of Kafka, where a value has one line.
        chain, key, authority = (" ".join(text.splitlines()) for text in (chain, key, authority))
    config = {
        **PEM,
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.certificates": authority,
        "ssl.client.auth": "requested",
    }
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger("fakebroker").addHandler(handler)
    try:
        cluster = fake_cluster_factory(1, tls=True, config=config)
        with WireClient(cluster.brokers[0], tls=client_context(str(tmp_path / "ca.pem"))) as wire:
            resource = DescribeConfigsResource(
                resource_type=BROKER, resource_name="1", configuration_keys=sorted(config)
            )
            request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
            (answer,) = wire.ask(request, DescribeConfigsResponse).results
    finally:
        logging.getLogger("fakebroker").removeHandler(handler)
    values = {each.name: (each.value, each.is_sensitive) for each in answer.configs}
    assert values["ssl.keystore.type"] == ("PEM", False)
    for name in ("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password"):
        assert values[name] == (None, True)
    shown = [log.getvalue(), repr(answer), cluster.report(), repr(cluster.snapshot()), repr(cluster.journal.requests())]
    shown += [
        repr(internals(cluster).server.reactor.connections.values()),
        repr(internals(cluster).cluster.config),
        repr(vars(cluster)),
    ]
    secrets = [PASSWORD, *key.split()[4:6]]
    assert not [secret for secret in secrets for text in shown if secret in text]


@pytest.mark.fake_cluster(brokers=1, tls=True, config={"ssl.enabled.protocols": "TLSv1.2"})
def test_versions_of_tls_are_limited(fake_cluster: FakeCluster) -> None:
    with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster)) as wire:
        assert isinstance(wire.socket, ssl.SSLSocket)
        assert wire.socket.version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster, version=ssl.TLSVersion.TLSv1_3))


@pytest.mark.fake_cluster(
    brokers=1,
    tls=True,
    users={"bob": "secret"},
    listeners={"OUT": "SSL", "IN": "SASL_PLAINTEXT"},
    config={
        "listener.name.out.ssl.enabled.protocols": "TLSv1.3",
        "listener.name.in.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "connections.max.reauth.ms": 1,
        "listener.name.in.connections.max.reauth.ms": 2,
        "listener.name.in.plain.connections.max.reauth.ms": 3,
    },
)
def test_settings_with_the_prefix_of_a_listener(fake_cluster: FakeCluster) -> None:
    config = internals(fake_cluster).cluster.config
    assert config.of_listener("IN").items("sasl.enabled.mechanisms") == ("SCRAM-SHA-256",)
    assert "PLAIN" in config.of_listener("OUT").items("sasl.enabled.mechanisms")
    times = [config.max_session_ms(*each) for each in (("IN", "PLAIN"), ("IN", "SCRAM-SHA-256"), ("OUT", "PLAIN"))]
    assert times == [3, 2, 1]
    with WireClient(fake_cluster.brokers[0], tls=context_of(fake_cluster)) as wire:
        assert isinstance(wire.socket, ssl.SSLSocket)
        assert wire.socket.version() == "TLSv1.3"
        assert wire.ask(VERSIONS, ApiVersionsResponse).api_keys
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
        (answer,) = wire.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse).results
    values = {each.name: each.value for each in answer.configs}
    assert values["listener.name.out.ssl.enabled.protocols"] == "TLSv1.3"
    assert values["listener.name.in.plain.connections.max.reauth.ms"] == "3"


KEYSTORE = {**PEM, "ssl.keystore.location": "{key}"}
MUTUAL = {**KEYSTORE, "ssl.client.auth": "required"}


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({}, "ssl.keystore.location is missing: expected a PEM file"),
        ({"ssl.keystore.location": "{key}"}, "ssl.keystore.type='JKS': expected PEM"),
        ({**PEM, "ssl.keystore.location": "/nowhere"}, "ssl.keystore.location='/nowhere': expected a readable file"),
        ({**PEM, "ssl.keystore.location": "{ca}"}, "ssl.keystore.location=.*expected private key and certificates"),
        ({**KEYSTORE, "ssl.keystore.key": "x"}, "ssl.keystore.location=.*not both"),
        ({**PEM, "ssl.keystore.key": PASSWORD}, "ssl.keystore.certificate.chain is missing"),
        ({**PEM, "ssl.keystore.certificate.chain": "x"}, "ssl.keystore.key is missing"),
        (
            {**PEM, "ssl.keystore.certificate.chain": "x", "ssl.keystore.key": PASSWORD},
            r"ssl.keystore.key='\.\.\.': expected private key",
        ),
        ({**MUTUAL}, "ssl.truststore.location is missing: expected a PEM file"),
        (
            {
                **KEYSTORE,
                "ssl.client.auth": "required",
                "ssl.truststore.location": "{key}",
                "ssl.truststore.type": "JKS",
            },
            "ssl.truststore.type='JKS': expected PEM",
        ),
        (
            {**MUTUAL, "ssl.truststore.certificates": "x"},
            r"ssl.truststore.certificates='\.\.\.': expected certificates as PEM",
        ),
        ({**MUTUAL, "ssl.truststore.certificates": "\u00fc"}, "expected certificates as PEM"),
        (
            {**MUTUAL, "ssl.truststore.location": "/nowhere"},
            "ssl.truststore.location='/nowhere': expected a readable file",
        ),
        ({**KEYSTORE, "ssl.client.auth": "maybe"}, "ssl.client.auth='maybe': expected one of"),
        ({**KEYSTORE, "ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols='TLSv1.1': expected"),
        ({**KEYSTORE, "ssl.enabled.protocols": ""}, "ssl.enabled.protocols='': expected"),
        ({**KEYSTORE, "ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules='RULE:x': expected"),
        ({**KEYSTORE, "ssl.key.password": 724_725}, "ssl.key.password: expected a string"),
        ({**KEYSTORE, "listener.name.other.ssl.client.auth": "none"}, "listener.name.other.ssl.client.auth='none'"),
        ({**KEYSTORE, "listener.name.ssl.num.partitions": 1}, "unknown setting"),
        ({**KEYSTORE, "listener.name.ssl.plain.ssl.client.auth": "none"}, "unknown setting"),
    ],
    ids=lambda each: None if isinstance(each, str) else " ".join(f"{name}={value}" for name, value in each.items()),
)
def test_mistakes_are_errors(config: dict[str, Any], error: str, tmp_path: Path) -> None:
    files = {"key": tmp_path / "key.pem", "ca": tmp_path / "ca.pem"}
    other_authority().cert_pem.write_to_path(str(files["ca"]))
    files["key"].write_bytes(other_authority().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    given = {name: value.format(**files) if isinstance(value, str) else value for name, value in config.items()}
    with pytest.raises(ConfigError, match=error) as caught:
        FakeCluster(1, config=given, listeners={"SSL": "SSL"})
    assert PASSWORD not in str(caught.value)
    assert "724" not in str(caught.value)


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    """It is not asked for at the terminal."""
    chain, key, _ = texts()
    for password in ({}, {"ssl.key.password": "wrong"}):
        config = {**PEM, "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key, **password}
        with pytest.raises(ConfigError, match=r"ssl\.key\.password if the key is encrypted") as caught:
            FakeCluster(1, tls=True, config=config)
        assert "wrong" not in str(caught.value)


def test_tls_needs_a_listener_that_has_it() -> None:
    with pytest.raises(ConfigError, match=r"listeners=.*: expected SSL or SASL_SSL"):
        FakeCluster(1, tls=True, listeners={"IN": "PLAINTEXT"})


def test_settings_of_listeners_do_not_change_those_of_others() -> None:
    config = Config({"listener.name.a.ssl.client.auth": "required"})
    assert config.of_listener("b") is config
    assert config.of_listener("A") is config.of_listener("A")
    assert [config.of_listener(each).text("ssl.client.auth") for each in "Ab"] == ["required", "none"]
