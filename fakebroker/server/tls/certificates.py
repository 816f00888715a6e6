"""A certificate authority for one cluster: certificates of its brokers and of clients, in a temporary directory.

Needs the extra `tls`, the package cryptography.
"""

import ipaddress
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fakebroker.cluster.configs.listener_settings import KEYSTORE, KEYSTORE_TYPE, PEM, TRUSTSTORE, TRUSTSTORE_TYPE
from fakebroker.errors import ConfigError, FakebrokerError

_LIFETIME = timedelta(days=365)
_EARLIER = timedelta(days=1)
"""How long before now certificates begin to be valid, for clients whose clock is slow; or when expired ones ended."""
_MAX_NAME = 64
"""The longest common name (ub-common-name in RFC 5280)."""


class ClientCertificate(NamedTuple):
    """Paths of a client's certificate and of its private key, both PEM.

    Attributes:
        certificate: The path of the certificate.
        key: The path of the private key, which is not encrypted.
    """

    certificate: str
    key: str


class CertificateAuthority:
    """Signs certificates of brokers and clients. Its files are deleted with it, or at the end of the process.

    Args:
        hosts: Names and addresses of the brokers.

    Raises:
        ConfigError: A certificate cannot have one of these names.

    Attributes:
        ca_file: The path of the certificate that clients have to trust, PEM.
        broker_file: The path of the private key and the certificate of the brokers, PEM.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fakebroker-tls-"))  # Readable by this user only.
        self.delete = weakref.finalize(self, partial(shutil.rmtree, self._folder, ignore_errors=True))
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("fakebroker CA")
        self._clients: dict[str, ClientCertificate] = {}
        self.ca_file, self.broker_file = str(self._folder / "ca.pem"), str(self._folder / "broker.pem")
        Path(self.ca_file).write_bytes(_pem(self._authority()))
        self._names = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])
        self.renew()

    @property
    def settings(self) -> dict[str, str]:
        """The settings with which brokers use these certificates, and trust the certificates of clients."""
        return {KEYSTORE: self.broker_file, KEYSTORE_TYPE: PEM, TRUSTSTORE: self.ca_file, TRUSTSTORE_TYPE: PEM}

    def renew(self, *, expired: bool = False) -> None:
        """Replace the private key and the certificate in `broker_file`.

        Args:
            expired: Whether the certificate has expired already.
        """
        issued = self._issue("fakebroker", ExtendedKeyUsageOID.SERVER_AUTH, self._names, expired=expired)
        Path(self.broker_file).write_bytes(b"".join(issued))

    def client_certificate(self, name: str) -> ClientCertificate:
        """Return the certificate of a client, whose principal is `User:CN=` and the name.

        Args:
            name: The common name, which is all of the subject.

        Raises:
            ConfigError: The name is not valid.
            FakebrokerError: The files have been deleted, because the cluster has stopped.
        """
        if not self.delete.alive:
            raise FakebrokerError("the certificates have been deleted: expected a use before the cluster has stopped")
        found = self._clients.get(name)
        if found is None:
            if not name or len(name) > _MAX_NAME or not name.isprintable():
                raise ConfigError.of("name", name, f"1 to {_MAX_NAME} printable characters")
            key, certificate = self._issue(name, ExtendedKeyUsageOID.CLIENT_AUTH)
            number = len(self._clients)
            paths = self._folder / f"client-{number}.pem", self._folder / f"client-{number}-key.pem"
            for path, pem in zip(paths, (certificate, key), strict=True):
                path.write_bytes(pem)
            found = self._clients[name] = ClientCertificate(*map(str, paths))
        return found

    def _authority(self) -> x509.Certificate:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # keyCertSign, cRLSign
        return (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _issue(
        self,
        name: str,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
        *,
        expired: bool = False,
    ) -> tuple[bytes, bytes]:
        """Return a new private key and its certificate, both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            self._builder(_name(name), key.public_key(), -_EARLIER if expired else _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(issuer, critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return private, _pem(builder.sign(self._key, hashes.SHA256()))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta = _LIFETIME
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + min(lifetime, timedelta()) - _EARLIER)
            .not_valid_after(now + lifetime)
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        return x509.DNSName(host if host.isascii() else host.encode("idna").decode("ascii"))
    except UnicodeError:
        raise ConfigError.of("advertised_host", host, "a name that a certificate can have, because of tls") from None
