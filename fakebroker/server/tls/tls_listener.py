"""The TLS side of a listener: its certificates and versions, from settings with Kafka's names, and its clients' names.

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory. Only PEM files are supported (KIP-651).
"""

import base64
import logging
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Callable

from fakebroker.cluster.configs.listener_settings import (
    ALLOW_DN_CHANGES,
    ALLOW_SAN_CHANGES,
    CERTIFICATE_CHAIN,
    CLIENT_AUTH,
    KEY_PASSWORD,
    KEYSTORE,
    KEYSTORE_TYPE,
    PEM,
    PRINCIPAL_RULES,
    PRIVATE_KEY,
    PROTOCOLS,
    TRUSTED_CERTIFICATES,
    TRUSTSTORE,
    TRUSTSTORE_TYPE,
    listener_prefix,
)
from fakebroker.cluster.configs.settings import Config
from fakebroker.cluster.listeners import Listener
from fakebroker.errors import ConfigError, TransportError
from fakebroker.protocol.releases import Release
from fakebroker.security.acls import ANONYMOUS
from fakebroker.security.principals import PrincipalMapper, alternative_names_of, subject_of
from fakebroker.server.tls.tls_socket import TlsSocket

logger = logging.getLogger("fakebroker")

_MODES = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ENTRY = re.compile(r"(-----BEGIN [^-]+-----)([^-]*)(-----END [^-]+-----)")
_CERTIFICATE = re.compile(r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([^-]*)-----END")
KIP_978 = Release(3, 7)
"""The first release in which settings allow a new certificate to have other names."""


class TlsListener:
    """Certificates, versions of TLS and principals of one listener.

    Args:
        config: The settings of the cluster.
        listener: The listener.

    Raises:
        ConfigError: A setting is missing, or a file or certificate cannot be used.

    Attributes:
        settings: The settings of the cluster that were given.
    """

    def __init__(self, config: Config, listener: Listener) -> None:
        own = config.of_listener(listener.name)
        mode = own.text(CLIENT_AUTH) or "none"
        if listener.has_sasl and listener_prefix(listener.name) + CLIENT_AUTH not in config.overrides:
            if mode != "none":  # As in Kafka, only the setting of the listener counts.
                name = listener_prefix(listener.name) + CLIENT_AUTH
                logger.warning("%s=%s does not apply to SASL_SSL, expected %s", CLIENT_AUTH, mode, name)
            mode = "none"
        versions = sorted(_VERSIONS[each] for each in own.items(PROTOCOLS))
        if not versions:
            raise ConfigError.of(PROTOCOLS, "", f"one or more of {', '.join(_VERSIONS)}")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version, self._context.maximum_version = versions[0], versions[-1]
        self._context.options |= ssl.OP_NO_RENEGOTIATION
        self.settings, self._own = config.overrides, own
        self._certificate = _load_key(self._context, own)
        if mode != "none":
            _load_trusted(self._context, own)
            self._context.verify_mode = _MODES[mode]
        self._mapper = PrincipalMapper(own.text(PRINCIPAL_RULES) or "")

    def encrypted(
        self, sock: socket.socket, on_established: Callable[[bytes | None], None], on_unsent: Callable[[], None]
    ) -> TlsSocket:
        """Return the encrypted side of a connection; for the functions, see `TlsSocket`."""
        return TlsSocket(sock, self._context, on_established, on_unsent)

    def require_names_of(self, old: "TlsListener", release: Release) -> None:
        """Check that the certificate may replace another one while a broker runs (SslFactory.CertificateEntries).

        Args:
            old: The listener with the certificate that is replaced.
            release: The release of the broker, which has the settings that allow changes from 3.7 on.

        Raises:
            ConfigError: The new certificate has another subject, or lacks alternative names of the old certificate.
        """
        if self._certificate == old._certificate:
            return
        has_settings = release >= KIP_978
        field = KEYSTORE if self._own.text(KEYSTORE) is not None else CERTIFICATE_CHAIN
        value = self._own.text(KEYSTORE) or "..."
        subject, old_subject = subject_of(self._certificate), subject_of(old._certificate)
        if subject.lower() != old_subject.lower() and not (has_settings and self._own.switch(ALLOW_DN_CHANGES)):
            setting = f", or {ALLOW_DN_CHANGES}=true" if has_settings else ""
            raise ConfigError.of(field, value, f"the subject {old_subject!r} as before, not {subject!r}{setting}")
        missing = alternative_names_of(old._certificate) - alternative_names_of(self._certificate)
        if missing and not (has_settings and self._own.switch(ALLOW_SAN_CHANGES)):
            setting = f", or {ALLOW_SAN_CHANGES}=true" if has_settings else ""
            raise ConfigError.of(field, value, f"all subject alternative names of the certificate before{setting}")

    def principal_of(self, certificate: bytes | None) -> str:
        """Return type and name of the principal of a client (DefaultKafkaPrincipalBuilder).

        Args:
            certificate: The certificate of the client, verified, in DER; None if it has none.

        Raises:
            TransportError: No rule matches its subject.
        """
        if certificate is None:
            return ANONYMOUS
        subject = subject_of(certificate)
        name = self._mapper.name_of(subject)
        if name is None:
            raise TransportError(f"no rule of {PRINCIPAL_RULES} matches the subject of the certificate, {subject!r}")
        return f"User:{name}"


def _load_key(context: ssl.SSLContext, config: Config) -> bytes:
    """Load the private key and the certificates of the brokers, and return the certificate of the key, in DER.

    Raises:
        ConfigError: They are missing, or cannot be used.
    """
    location, chain, key = config.text(KEYSTORE), config.text(CERTIFICATE_CHAIN), config.text(PRIVATE_KEY)
    if location is None and (chain is None or key is None):
        missing = PRIVATE_KEY if chain is not None else CERTIFICATE_CHAIN if key is not None else KEYSTORE
        expected = "a PEM file with private key and certificates, because a listener has TLS (or tls=True, --tls)"
        raise ConfigError.missing(missing, expected if missing == KEYSTORE else "both a chain and a key")
    if location is not None and (chain is not None or key is not None):
        raise ConfigError.of(KEYSTORE, location, f"this or {CERTIFICATE_CHAIN} with {PRIVATE_KEY}, not both")
    _require_pem(config, KEYSTORE_TYPE)
    password = config.text(KEY_PASSWORD)
    if location is not None:
        _load_file(context, location, password, KEYSTORE, location)
        with open(location, encoding="latin-1") as file:
            return _first_certificate(file.read())
    # OpenSSL in Python reads keys from files only. The file is readable by this user only, and deleted at once.
    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with open(handle, "w") as file:
            file.write(f"{_lines(key)}\n{_lines(chain)}\n")
        _load_file(context, path, password, PRIVATE_KEY, "...")
    finally:
        os.unlink(path)
    return _first_certificate(chain or "")


def _first_certificate(pem: str) -> bytes:
    """Return the first certificate of a text that OpenSSL has accepted, in DER. It belongs to the key, as in Kafka."""
    found = _CERTIFICATE.search(pem)
    assert found is not None
    return base64.b64decode(found[1])


def _load_file(context: ssl.SSLContext, path: str, password: str | None, field: str, shown: str) -> None:
    """Load a file with private key and certificates. Errors show `shown`, and neither the key nor the password.

    Raises:
        ConfigError: It cannot be used.
    """
    try:
        # Without a password, OpenSSL would ask for it at the terminal.
        context.load_cert_chain(path, password=password or "")
    except ssl.SSLError as error:
        reason = (error.reason or "not PEM").replace("_", " ").lower()
        expected = f"private key and certificates as PEM, and {KEY_PASSWORD} if the key is encrypted ({reason})"
    except OSError as error:
        expected = f"a readable file ({error.strerror})"
    else:
        return
    raise ConfigError.of(field, shown, expected)


def _load_trusted(context: ssl.SSLContext, config: Config) -> None:
    """Load the certificates that sign the certificates of clients.

    Raises:
        ConfigError: They are missing, or cannot be used.
    """
    location, certificates = config.text(TRUSTSTORE), config.text(TRUSTED_CERTIFICATES)
    if location is None and certificates is None:
        raise ConfigError.missing(
            TRUSTSTORE, f"a PEM file with certificates that sign clients, because of {CLIENT_AUTH}"
        )
    _require_pem(config, TRUSTSTORE_TYPE)
    try:
        context.load_verify_locations(cafile=location, cadata=None if certificates is None else _lines(certificates))
    except (ssl.SSLError, ValueError, TypeError):  # TypeError: characters that are not ASCII.
        reason = "certificates as PEM"
    except OSError as error:
        reason = f"a readable file ({error.strerror})"
    else:
        return
    field, value = (TRUSTED_CERTIFICATES, "...") if location is None else (TRUSTSTORE, location)
    raise ConfigError.of(field, value, reason)


def _require_pem(config: Config, name: str) -> None:
    if config.text(name) != PEM:
        raise ConfigError.of(name, config.text(name), f"{PEM}, the only format that is supported")


def _lines(pem: str | None) -> str:
    """Return PEM with the line breaks that OpenSSL needs; in Kafka's properties files, there are spaces instead."""
    return _ENTRY.sub(lambda entry: "\n".join((entry[1], *entry[2].split(), entry[3], "")), pem or "")
