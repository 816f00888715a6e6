"""The settings of listeners: SASL, TLS, and names with the prefix of a listener.

Source: BrokerSecurityConfigs, SaslConfigs, SslConfigs, ListenerName.
"""

import re

from fakebroker.cluster.configs.definitions import ConfigKey, ConfigType
from fakebroker.security.mechanisms import MECHANISMS, PASSWORD_MECHANISMS

_STRING, _LIST, _PASSWORD, _BOOLEAN = ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD, ConfigType.BOOLEAN

SASL_MECHANISMS, SASL_MAX_BYTES = "sasl.enabled.mechanisms", "sasl.server.max.receive.size"
AUTHENTICATION_DELAY, MAX_SESSION = "connection.failed.authentication.delay.ms", "connections.max.reauth.ms"
ALLOW_DN_CHANGES, ALLOW_SAN_CHANGES = "ssl.allow.dn.changes", "ssl.allow.san.changes"
CLIENT_AUTH, PROTOCOLS, PRINCIPAL_RULES = "ssl.client.auth", "ssl.enabled.protocols", "ssl.principal.mapping.rules"
KEYSTORE, KEYSTORE_TYPE = "ssl.keystore.location", "ssl.keystore.type"
CERTIFICATE_CHAIN, PRIVATE_KEY, KEY_PASSWORD = "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password"
TRUSTSTORE, TRUSTSTORE_TYPE = "ssl.truststore.location", "ssl.truststore.type"
TRUSTED_CERTIFICATES = "ssl.truststore.certificates"
PEM = "PEM"
MAX_CONNECTIONS, MAX_CONNECTION_RATE = "max.connections", "max.connection.creation.rate"

_STORE_TYPES = ("JKS", "PKCS12", PEM)

SSL_SETTINGS: dict[str, ConfigKey] = {
    ALLOW_DN_CHANGES: ConfigKey(
        _BOOLEAN, False, about="A new certificate of a running broker may have another subject (KIP-978; from 3.7)."
    ),
    ALLOW_SAN_CHANGES: ConfigKey(
        _BOOLEAN, False, about="A new certificate of a running broker may lack alternative names of the old one."
    ),
    CLIENT_AUTH: ConfigKey(
        _STRING,
        "none",
        choices=("none", "requested", "required"),
        about="Whether clients of SSL listeners need a certificate; of SASL_SSL, only with the prefix of the listener.",
    ),
    PROTOCOLS: ConfigKey(
        _LIST, "TLSv1.2,TLSv1.3", choices=("TLSv1.2", "TLSv1.3"), about="Versions of TLS that clients can use."
    ),
    KEY_PASSWORD: ConfigKey(_PASSWORD, None, about="Password of the private key."),
    CERTIFICATE_CHAIN: ConfigKey(_PASSWORD, None, about="Certificates of the brokers, as PEM."),
    PRIVATE_KEY: ConfigKey(_PASSWORD, None, about="Private key of the brokers, as PEM."),
    KEYSTORE: ConfigKey(_STRING, None, about="PEM file with the private key and the certificates of the brokers."),
    KEYSTORE_TYPE: ConfigKey(
        _STRING,
        "JKS",
        choices=_STORE_TYPES,
        about="Format of the private key and certificates: must be set to PEM.",
    ),
    PRINCIPAL_RULES: ConfigKey(
        _STRING, "DEFAULT", about="How the subjects of certificates become names of principals (KIP-371)."
    ),
    TRUSTED_CERTIFICATES: ConfigKey(_PASSWORD, None, about="Certificates that sign those of clients, as PEM."),
    TRUSTSTORE: ConfigKey(_STRING, None, about="PEM file with certificates that sign those of clients."),
    TRUSTSTORE_TYPE: ConfigKey(
        _STRING, "JKS", choices=_STORE_TYPES, about="Format of the certificates that sign: must be set to PEM."
    ),
}

SASL_SETTINGS: dict[str, ConfigKey] = {
    AUTHENTICATION_DELAY: ConfigKey(
        ConfigType.INT, 100, 0, about="Wait before the answer to a failed authentication, in real time."
    ),
    MAX_SESSION: ConfigKey(
        ConfigType.LONG,
        0,
        about="Time after which clients have to authenticate again (KIP-368); 0: when their tokens expire.",
    ),
    SASL_MECHANISMS: ConfigKey(
        _LIST,
        ",".join(PASSWORD_MECHANISMS),
        about="Mechanisms of SASL listeners, of which OAUTHBEARER is off; Kafka: GSSAPI.",
    ),
    SASL_MAX_BYTES: ConfigKey(
        ConfigType.INT, 524_288, 1, about="Largest message before a client has authenticated (KIP-684)."
    ),
}

CERTIFICATE_SETTINGS = frozenset({KEYSTORE, CERTIFICATE_CHAIN, PRIVATE_KEY})
"""Settings with the certificates of the brokers."""

LISTENER_PREFIX = "listener.name."
LISTENER_SETTINGS = frozenset(
    {*SSL_SETTINGS, SASL_MECHANISMS, SASL_MAX_BYTES, MAX_SESSION, MAX_CONNECTIONS, MAX_CONNECTION_RATE}
)
"""Settings that may have the prefix of a listener, such as `listener.name.clients.ssl.client.auth`."""

_LISTENER = re.compile(rf"{re.escape(LISTENER_PREFIX)}[^.]+\.(?=.)")
_MECHANISM_PREFIX = re.compile("|".join(rf"{re.escape(mechanism.lower())}\.(?=.)" for mechanism in MECHANISMS))


def listener_prefix(listener: str) -> str:
    """Return the prefix of the settings of a listener (ListenerName.configPrefix)."""
    return f"{LISTENER_PREFIX}{listener.lower()}."


def mechanism_prefix(mechanism: str) -> str:
    """Return the prefix of the settings of a mechanism (ListenerName.saslMechanismPrefix).

    It follows the prefix of a listener, as in `listener.name.clients.plain.connections.max.reauth.ms`.
    """
    return f"{mechanism.lower()}."


def without_prefix(name: str) -> str:
    """Return the name of a setting without the prefix of a listener, and of a mechanism if it may have one."""
    prefix = _LISTENER.match(name)
    if prefix is None:
        return name
    base = name[prefix.end() :]
    of_mechanism = _MECHANISM_PREFIX.match(base)
    if of_mechanism is not None and base[of_mechanism.end() :] == MAX_SESSION:
        return MAX_SESSION
    return base if base in LISTENER_SETTINGS else name
