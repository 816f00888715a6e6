"""What transports need for secure connections: a TLS context, and authentications with the time and random nonces."""

import secrets
import ssl
import time
from itertools import count

from fakebroker.client.authentication import ClientAuthentication
from fakebroker.client.security import PLAINTEXT, ClientSecurity
from fakebroker.errors import ConfigError

_NONCE_BYTES = 24


class TransportSecurity:
    """The security of the connections of one client.

    Args:
        security: The settings.

    Attributes:
        ssl_context: For TLS; None without.

    Raises:
        ConfigError: A file with certificates or a key cannot be read.
    """

    def __init__(self, security: ClientSecurity = PLAINTEXT) -> None:
        self.ssl_context = _ssl_context(security) if security.has_tls else None
        self._security = security
        self._numbers = count()
        # The wall clock when the client starts, and the monotonic clock from then on.
        self._epoch_s = time.time() - time.monotonic()

    def new_authentication(self) -> ClientAuthentication | None:
        """Return the authentication of a new connection; None if the listener asks for none."""
        if not self._security.has_sasl:
            return None
        return ClientAuthentication(self._security, self._now_ms, _new_nonce, next(self._numbers))

    def _now_ms(self) -> float:
        return (time.monotonic() + self._epoch_s) * 1000


def _new_nonce() -> str:
    return secrets.token_hex(_NONCE_BYTES)


def _ssl_context(security: ClientSecurity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = security.ssl_check_hostname
    try:
        if security.ssl_cafile is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(security.ssl_cafile)
    except OSError as error:  # also ssl.SSLError
        raise ConfigError.of(
            "ssl_cafile", security.ssl_cafile, f"a PEM file of certificates ({reason(error)})"
        ) from None
    if security.ssl_certfile is not None:
        try:
            # Without a password, a function, so that OpenSSL does not ask on the terminal.
            context.load_cert_chain(security.ssl_certfile, security.ssl_keyfile, security.ssl_password or str)
        except OSError as error:
            expected = (
                f"a PEM file with a certificate and its key, or with ssl_keyfile, and ssl_password ({reason(error)})"
            )
            raise ConfigError.of("ssl_certfile", security.ssl_certfile, expected) from None
    return context


def reason(error: OSError) -> str:
    """Return the reason of an error in a short form, such as "certificate verify failed: self-signed certificate"."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        return error.reason.lower().replace("_", " ")
    return error.strerror or str(error)


def is_refusal(error: BaseException | None) -> bool:
    """Return whether an error of TLS means that a certificate or the protocol is refused, not that the peer is gone."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
