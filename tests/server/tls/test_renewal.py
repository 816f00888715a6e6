"""New certificates while a cluster runs: by `renew_certificates`, by new files, and by configs of a broker."""

import re
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from fakebroker import FakeCluster
from fakebroker.cluster.inspect.views import BrokerView
from fakebroker.errors import ConfigError
from fakebroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fakebroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.security.certificates import EXPIRED, LONG_AGO, client_context, context_of
from tests.support.wire_client import WireClient

VERSIONS = ApiVersionsRequest(client_software_name="t", client_software_version="1")
KEYSTORE = "listener.name.ssl.ssl.keystore.location"
SET, DELETE, BROKER = 0, 1, 4
Factory = Callable[..., FakeCluster]

ALLOWED = {"ssl.allow.dn.changes": True, "ssl.allow.san.changes": True}

pytestmark = pytest.mark.fake_cluster(brokers=1, tls=True)


def ask(wire: WireClient) -> bytes:
    """Send a request, which has to be answered, and return the certificate of the broker."""
    wire.ask(VERSIONS, ApiVersionsResponse, 3)
    assert isinstance(wire.socket, ssl.SSLSocket)
    certificate = wire.socket.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def certificate_of(broker: BrokerView, trusted: ssl.SSLContext) -> bytes:
    """Return the certificate that new connections get."""
    with WireClient(broker, tls=trusted) as wire:
        return ask(wire)


def refusal(broker: BrokerView, trusted: ssl.SSLContext) -> str:
    """Return why a client refuses the certificate of a broker."""
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        certificate_of(broker, trusted)
    return caught.value.verify_message


class Store:
    """A key store: the file `path`, and a client that trusts its authority only.

    Args:
        folder: Where the file is.
        names: Alternative names of the first certificate.
        unit: The organizational unit in its subject.
    """

    def __init__(self, folder: Path, *names: str, unit: str = "tests") -> None:
        self._names, self._unit = names, unit
        authority = trustme.CA()
        self._authority, self._folder = authority, folder
        self.path = folder / "store.pem"
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.trusted = client_context(str(folder / "ca.pem"))
        self.renew()

    def renew(self, *names: str, unit: str = "", expired: bool = False) -> None:
        """Write a new certificate to the file, with the names and unit of the first one, unless they are given."""
        issued = self._authority.issue_cert(
            "127.0.0.1",
            *(names or self._names),
            organization_unit_name=unit or self._unit,
            not_before=LONG_AGO if expired else None,
            not_after=EXPIRED if expired else None,
        )
        issued.private_key_and_cert_chain_pem.write_to_path(str(self.path))


def alter(wire: WireClient, name: str, value: str | None, node_id: int = 1) -> tuple[int, str | None]:
    """Set a config of a broker, or delete it if there is no value; return error code and message."""
    config = AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=str(node_id), configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (result,) = wire.ask(request, IncrementalAlterConfigsResponse).responses
    return result.error_code, result.error_message


def test_new_connections_get_the_new_certificate_and_old_ones_go_on(fake_cluster: FakeCluster) -> None:
    (broker,) = fake_cluster.brokers
    trusted = context_of(fake_cluster)
    with WireClient(broker, tls=trusted) as old:
        before = ask(old)
        assert certificate_of(broker, trusted) == before
        fake_cluster.brokers.renew_certificates()
        after = certificate_of(broker, trusted)
        assert after != before
        assert ask(old) == before
        assert certificate_of(broker, trusted) == after


def test_clients_refuse_an_expired_certificate_until_it_is_renewed(fake_cluster: FakeCluster) -> None:
    (broker,) = fake_cluster.brokers
    trusted = context_of(fake_cluster)
    with WireClient(broker, tls=trusted) as old:
        fake_cluster.brokers.renew_certificates(expired=True)
        assert refusal(broker, trusted) == "certificate has expired"
        ask(old)
        fake_cluster.brokers.renew_certificates()
        certificate_of(broker, trusted)


@pytest.mark.fake_cluster(brokers=2, config=ALLOWED)
def test_a_config_of_a_broker_changes_its_certificate_only(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    store, trusted = Store(tmp_path), context_of(fake_cluster)
    one, two = fake_cluster.brokers
    with WireClient(one, tls=trusted) as wire:
        assert alter(wire, KEYSTORE, str(store.path)) == (0, None)
        new = certificate_of(one, store.trusted)
        assert refusal(one, trusted)
        assert refusal(two, store.trusted)
        certificate_of(two, trusted)
        # The same value reads the file again (reloadUpdatedFilesWithoutConfigChange).
        store.renew()
        assert certificate_of(one, store.trusted) == new
        assert alter(wire, KEYSTORE, str(store.path)) == (0, None)
        assert certificate_of(one, store.trusted) != new
        store.renew(expired=True)
        fake_cluster.brokers.renew_certificates()
        assert refusal(one, store.trusted) == "certificate has expired"
        assert alter(wire, KEYSTORE, None) == (0, None)
        certificate_of(one, trusted)


def test_a_config_that_cannot_be_used_is_refused(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    (broker,) = fake_cluster.brokers
    trusted = context_of(fake_cluster)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    with WireClient(broker, tls=trusted) as wire:
        before = ask(wire)
        for path, reason in ((tmp_path / "missing.pem", "a readable file"), (garbage, "private key and certificates")):
            error, message = alter(wire, KEYSTORE, str(path))
            assert error == 42
            assert message is not None
            assert message.startswith(
                "Validation of dynamic config update of SSLFactory failed: ssl.keystore.location="
            )
            assert reason in message
        assert certificate_of(broker, trusted) == before


@pytest.mark.fake_cluster(config=ALLOWED)
def test_a_file_that_has_become_useless_changes_nothing(
    fake_cluster: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, (broker,) = Store(tmp_path), fake_cluster.brokers
    with WireClient(broker, tls=context_of(fake_cluster)) as wire:
        alter(wire, KEYSTORE, str(store.path))
        before = certificate_of(broker, store.trusted)
        store.path.write_text("half a certificate")
        with pytest.raises(ConfigError, match=r"ssl\.keystore\.location="):
            fake_cluster.brokers.renew_certificates()
        assert caplog.records == []
        assert alter(wire, "max.connections", "100") == (0, None)
        assert certificate_of(broker, store.trusted) == before
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage().startswith("certificates are not renewed: ssl.keystore.location=")


@pytest.mark.fake_cluster(tls=False)
def test_without_tls_there_is_nothing_to_renew(fake_cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match="tls is missing: expected tls=True, or a listener with SSL"):
        fake_cluster.brokers.renew_certificates()


def test_files_of_settings_are_read_again(fake_cluster_factory: Factory, tmp_path: Path) -> None:
    store = Store(tmp_path)
    config = {"ssl.keystore.location": str(store.path), "ssl.keystore.type": "PEM"}
    cluster = fake_cluster_factory(brokers=1, tls=True, config=config)
    (broker,) = cluster.brokers
    before = certificate_of(broker, store.trusted)
    store.renew()
    cluster.brokers.renew_certificates()
    assert certificate_of(broker, store.trusted) != before
    with pytest.raises(ConfigError, match=r"expired=True: expected false, because the certificates are files"):
        cluster.brokers.renew_certificates(expired=True)


def test_a_stored_config_is_applied_at_the_next_start(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for starts in range(2):
        # The certificates of a start need not have the names of those before.
        config = {} if starts else ALLOWED
        with FakeCluster(brokers=1, tls=True, data_dir=tmp_path / "data", config=config) as cluster:
            (broker,) = cluster.brokers
            if not starts:
                with WireClient(broker, tls=context_of(cluster)) as wire:
                    assert alter(wire, KEYSTORE, str(store.path)) == (0, None)
            certificate_of(broker, store.trusted)


DN, SAN = "ssl.allow.dn.changes", "ssl.allow.san.changes"


@pytest.mark.parametrize(
    ("names", "unit", "setting", "refused"),
    [
        ((), "others", DN, "the subject 'OU=tests,O=trustme v"),
        ((), "TESTS", None, None),
        (("b.example",), "", SAN, "all subject alternative names of the certificate before"),
        (("a.example", "b.example", "c.example"), "", None, None),
    ],
    ids=["another subject", "a subject in capitals", "a name less", "a name more"],
)
def test_names_of_a_file_that_is_read_again_are_compared(
    fake_cluster_factory: Factory,
    tmp_path: Path,
    names: tuple[str, ...],
    unit: str,
    setting: str | None,
    refused: str | None,
) -> None:
    for allowed in (DN, SAN):
        store = Store(tmp_path, "a.example", "b.example", unit="tests")
        config = {"ssl.keystore.location": str(store.path), "ssl.keystore.type": "PEM", allowed: True}
        cluster = fake_cluster_factory(brokers=1, tls=True, config=config)
        (broker,) = cluster.brokers
        before = certificate_of(broker, store.trusted)
        store.renew(*names, unit=unit)
        if refused is None or allowed == setting:
            cluster.brokers.renew_certificates()
            assert certificate_of(broker, store.trusted) != before
        else:
            with pytest.raises(ConfigError, match=re.escape(refused)) as caught:
                cluster.brokers.renew_certificates()
            assert str(caught.value).endswith(f"or {setting}=true")
            assert certificate_of(broker, store.trusted) == before


@pytest.mark.fake_cluster(config={SAN: True})
def test_a_config_with_another_subject_is_refused(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    store, (broker,) = Store(tmp_path), fake_cluster.brokers
    with WireClient(broker, tls=context_of(fake_cluster)) as wire:
        before = ask(wire)
        error, message = alter(wire, KEYSTORE, str(store.path))
        assert error == 42
        assert message is not None
        assert "expected the subject 'CN=fakebroker' as before, not 'OU=tests,O=trustme" in message
        assert message.startswith("Validation of dynamic config update of SSLFactory failed: ssl.keystore.location=")
        assert certificate_of(broker, context_of(fake_cluster)) == before


@pytest.mark.fake_cluster(as_version="3.6", config=ALLOWED)
def test_older_releases_lack_the_settings_that_allow_other_names(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    store, (broker,) = Store(tmp_path), fake_cluster.brokers
    with WireClient(broker, tls=context_of(fake_cluster)) as wire:
        _, message = alter(wire, KEYSTORE, str(store.path))
    assert message is not None
    assert "as before" in message
    assert DN not in message
