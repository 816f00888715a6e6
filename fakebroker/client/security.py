"""Security settings of all clients: credentials, and which certificates they trust. Plain data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from fakebroker.errors import ConfigError, one_of
from fakebroker.security.mechanisms import MECHANISMS, OAUTHBEARER

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

_PROTOCOLS: tuple[SecurityProtocol, ...] = get_args(SecurityProtocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """Security settings, with the names of kafka-python and aiokafka. The `repr` is without passwords and tokens.

    Attributes:
        security_protocol: The protocol of the listener.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
        sasl_plain_username: The user, also with SCRAM. With OAUTHBEARER and without a token: the name in unsecured
            tokens, which the client makes (KIP-255).
        sasl_plain_password: The password, also with SCRAM.
        sasl_oauth_token: The token, or a function that returns one; it is called for each authentication, and must not
            block.
        ssl_cafile: PEM file with certificates of the authorities to trust; None for the system's.
        ssl_certfile: PEM file with the client's certificate chain; None for none.
        ssl_keyfile: PEM file with its key; None if it is in `ssl_certfile`.
        ssl_password: The password of the key; None for none.
        ssl_check_hostname: Whether the broker's certificate must have its host name.

    Raises:
        ConfigError: Settings are invalid, or contradict each other.
    """

    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_oauth_token: str | Callable[[], str] | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True

    def __post_init__(self) -> None:
        if self.security_protocol not in _PROTOCOLS:
            raise ConfigError.of(
                "security_protocol", self.security_protocol, one_of(_PROTOCOLS, self.security_protocol)
            )
        if self.has_sasl:
            self._check_sasl()
        else:
            self._check_without("sasl_", "SASL_PLAINTEXT or SASL_SSL")
        if not self.has_tls:
            self._check_without("ssl_", "SSL or SASL_SSL")
        if self.ssl_certfile is None:
            for name in ("ssl_keyfile", "ssl_password"):
                if getattr(self, name) is not None:
                    raise ConfigError(
                        f"{name}: expected none without ssl_certfile", field=name, expected="none without ssl_certfile"
                    )

    @property
    def has_sasl(self) -> bool:
        """Whether the client authenticates with SASL."""
        return self.security_protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    def _check_sasl(self) -> None:
        if self.sasl_mechanism not in MECHANISMS:
            raise ConfigError.of("sasl_mechanism", self.sasl_mechanism, one_of(MECHANISMS, self.sasl_mechanism))
        if self.sasl_mechanism == OAUTHBEARER:
            given, needed = ("sasl_plain_password",), ("sasl_oauth_token", "sasl_plain_username")
            is_complete = (self.sasl_oauth_token is None) != (self.sasl_plain_username is None)
            wanted = "sasl_oauth_token, or sasl_plain_username for unsecured tokens"
        else:
            given, needed = ("sasl_oauth_token",), ("sasl_plain_username", "sasl_plain_password")
            is_complete = bool(self.sasl_plain_username and self.sasl_plain_password)
            wanted = "sasl_plain_username and sasl_plain_password"
        if not is_complete or any(getattr(self, name) is not None for name in given):
            raise ConfigError.of("sasl_mechanism", self.sasl_mechanism, f"{wanted} with it, and nothing else")
        for name in needed:
            if "\0" in str(getattr(self, name)):
                raise ConfigError(f"{name}: expected no NUL", field=name, expected="no NUL")

    def _check_without(self, prefix: str, protocols: str) -> None:
        """Check that settings of another protocol are not given. Errors do not show values, which may be secret."""
        for name in self.__dataclass_fields__:
            if name.startswith(prefix) and getattr(self, name) not in (None, True):
                expected = f"security_protocol {protocols} with it, not {self.security_protocol}"
                raise ConfigError(f"{name}: expected {expected}", field=name, expected=expected)


PLAINTEXT = ClientSecurity()
"""Connections without encryption and authentication."""
